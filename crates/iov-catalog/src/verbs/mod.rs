//! One verb, one file: what each operation on facts does.

pub(crate) mod bytes;
pub(crate) mod close;
pub(crate) mod create;
pub(crate) mod delete;
pub(crate) mod link;
pub(crate) mod lock;
pub(crate) mod map;
pub(crate) mod meta;
pub(crate) mod open;
pub(crate) mod publish;
pub(crate) mod rename;
pub(crate) mod resume;
pub(crate) mod seal;
pub(crate) mod search;
pub(crate) mod session;
pub(crate) mod set;
pub(crate) mod setattr;
pub(crate) mod stat;
pub(crate) mod ticket;
pub(crate) mod workspace_create;
pub(crate) mod workspace_delete;
pub(crate) mod workspace_load;
pub(crate) mod workspace_persist;
pub(crate) mod workspace_rename;
pub(crate) mod workspace_search;
pub(crate) mod workspace_set;
pub(crate) mod workspace_stat;

use iov_types::Result;
use iov_types::catalog::CatalogReply;

/// What a verb returns.
pub(crate) type Reply = Result<CatalogReply>;
