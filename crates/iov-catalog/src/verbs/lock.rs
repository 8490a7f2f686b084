use iov_types::{Error, Uuid, catalog::LockSpec};
use super::Reply;
use crate::exec::Exec;
pub(crate) fn lock(_: &mut Exec<'_>, _: Uuid, _: Uuid, _: &LockSpec) -> Reply { Err(Error::unsupported("")) }
pub(crate) fn unlock(_: &mut Exec<'_>, _: Uuid, _: Uuid, _: &LockSpec) -> Reply { Err(Error::unsupported("")) }
pub(crate) fn query(_: &mut Exec<'_>, _: Uuid, _: Uuid, _: &LockSpec) -> Reply { Err(Error::unsupported("")) }
