//! File systems on a store in memory, two on one workspace where it matters.

mod behind;
mod files;
mod meaning;
mod opening;
mod others;
mod paths;

use std::sync::Arc;

use ioverbs::{Name, Which, Workspace};

use crate::{Create, File, FileSystem, Flags, Node, Options, Who};

pub(super) const WRITE: Flags = Flags { write: true, append: false, truncate: false, blind: false };
pub(super) const READ: Flags = Flags { write: false, append: false, truncate: false, blind: false };

/// A new one: all that open `mem:` in one process are in one store.
pub(super) fn workspace() -> Workspace {
    let session = ioverbs::open(Some("mem:"), Default::default()).unwrap();
    let name = format!("w-{:?}", ioverbs::seam::new_uuid());
    session.create_workspace(Name::new(name).unwrap(), Default::default()).unwrap()
}

/// The same workspace in a session of its own.
pub(super) fn again(ws: &Workspace) -> Workspace {
    let session = ioverbs::open(Some("mem:"), Default::default()).unwrap();
    session.load_workspace(Which::Uuid(ws.uuid())).unwrap()
}

pub(super) fn file_system() -> FileSystem {
    FileSystem::new(workspace(), Options::default())
}

pub(super) fn born(mode: u32) -> Create {
    let who = ioverbs::caller();
    Create { mode, umask: 0, who: Who { uid: who.uid, gid: who.gid } }
}

/// A file with these bytes, closed.
pub(super) fn put(fs: &FileSystem, parent: &Node, name: &[u8], bytes: &[u8]) -> Arc<Node> {
    let (file, node, _) = fs.create(parent, name, born(0o644), WRITE).unwrap();
    assert_eq!(file.write(0, bytes).unwrap(), bytes.len());
    file.close().unwrap();
    node
}

pub(super) fn get(node: &Arc<Node>) -> Vec<u8> {
    let file = File::open(node, READ).unwrap().0;
    let mut bytes = vec![0; file.size().unwrap() as usize + 10];
    let n = file.read(0, &mut bytes).unwrap();
    bytes.truncate(n);
    bytes
}

pub(super) fn names(node: &Arc<Node>) -> Vec<String> {
    let stream = crate::Directory::open(node).unwrap();
    let entries = stream.entries(0, usize::MAX).unwrap();
    let mut names: Vec<String> = entries.iter().map(|e| String::from_utf8_lossy(&e.name).into_owned()).collect();
    names.sort();
    names
}
