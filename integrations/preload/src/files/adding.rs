//! What was opened, on its way to a descriptor.

use std::{ffi::c_int, sync::OnceLock};

use iov_posix::{How, Opened};
use ioverbs::Uuid;

use super::What;
use crate::{
    record::{Access, Record},
    world::Mounted,
};

/// Something that was opened, and gets a descriptor.
pub(crate) struct Adding<'a> {
    pub(super) record: Record,
    pub(super) what: What,
    pub(super) how: &'a How,
    pub(super) flags: c_int,
}

impl<'a> Adding<'a> {
    /// What was opened under a path, with these flags.
    pub(crate) fn new(at: &Mounted, path: Vec<u8>, opened: Opened, how: &'a How, flags: c_int) -> Adding<'a> {
        let (uuid, what) = match opened {
            Opened::File(file, _) => (file.node().uuid(), What::File(file)),
            Opened::Directory(dir) => (dir.node().uuid(), What::Directory(dir)),
            Opened::Path(node, _) => (node.uuid(), What::Path(node)),
        };
        let access = Access { read: how.read, write: how.write, path: how.path, sync: flags & libc::O_SYNC };
        let record = Record { at: at.at.clone(), workspace: at.name.clone(), uuid, path, access, token: Vec::new() };
        Adding { record, what, how, flags }
    }

    /// The directory of all workspaces.
    pub(crate) fn top(at: &[u8], how: &'a How, flags: c_int) -> Adding<'a> {
        let record = Record {
            at: at.to_vec(),
            workspace: Vec::new(),
            uuid: Uuid::NIL,
            path: at.to_vec(),
            access: Access { read: true, ..Access::default() },
            token: Vec::new(),
        };
        Adding { record, what: What::Top(OnceLock::new()), how, flags }
    }
}
