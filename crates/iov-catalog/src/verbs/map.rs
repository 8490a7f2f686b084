//! Map: the targets of the store and the patterns of places, for whoever has a session in it.

use iov_types::catalog::CatalogReply;

use super::Reply;
use crate::exec::Exec;

pub(crate) fn map(x: &mut Exec<'_>, from: u32) -> Reply {
    Ok(CatalogReply::Map(Box::new(x.core.map().tell(from))))
}
