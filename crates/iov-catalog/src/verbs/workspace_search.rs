//! WorkspaceSearch: the workspaces that the caller may see (A1).

use std::sync::Arc;

use iov_types::catalog::SearchSpec;

use super::{Reply, search};
use crate::{exec::Exec, sources::Workspaces};

pub(crate) fn search(x: &mut Exec<'_>, spec: &SearchSpec) -> Reply {
    let source = Workspaces::new(x.core, &x.cx.caller);
    search::first_page(x, Arc::new(source), spec)
}
