//! Answers that are as long as the kernel has room for.

use crate::{abi::ERANGE, fields::Writer, types::Entry};

/// Bytes of a name's record before the name, and the same where an entry stands before it.
const RECORD: usize = 24;
const RECORD_PLUS: usize = 128 + RECORD;

/// Entries of a directory.
pub struct Names<'a> {
    room: &'a mut [u8],
    len: usize,
}

impl<'a> Names<'a> {
    pub(crate) fn new(room: &'a mut [u8]) -> Names<'a> {
        Names { room, len: 0 }
    }

    fn room_for(&mut self, len: usize) -> Option<Writer<'_>> {
        let end = self.len + len.next_multiple_of(8);
        let room = self.room.get_mut(self.len..end)?;
        self.len = end;
        Some(Writer::new(room))
    }

    /// Adds a name: the number and the kind (the upper bits of a mode) of what it stands for, and the offset behind it. `false`: there
    /// is no room left, so that the kernel will ask for it next time.
    pub fn add(&mut self, ino: u64, mode: u32, next: u64, name: &[u8]) -> bool {
        let Some(mut to) = self.room_for(RECORD + name.len()) else { return false };
        write(&mut to, ino, mode, next, name);
        true
    }

    /// The same with attributes. The entry counts as looked up where it was added.
    pub fn add_entry(&mut self, entry: &Entry, next: u64, name: &[u8]) -> bool {
        let Some(mut to) = self.room_for(RECORD_PLUS + name.len()) else { return false };
        entry.write(&mut to);
        write(&mut to, entry.attr.ino, entry.attr.mode, next, name);
        true
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

/// `fuse_dirent`, filled up to 8 bytes.
fn write(to: &mut Writer<'_>, ino: u64, mode: u32, next: u64, name: &[u8]) {
    to.u64(ino).u64(next).u32(name.len() as u32).u32((mode & 0o170_000) >> 12).bytes(name);
    to.zeros(name.len().next_multiple_of(8) - name.len());
}

/// Room for a value of which the kernel wants to know the length, or the bytes.
pub struct Room<'a> {
    room: &'a mut [u8],
    size: usize,
    given: Result<usize, i32>,
}

impl<'a> Room<'a> {
    pub(crate) fn new(room: &'a mut [u8], size: usize) -> Room<'a> {
        Room { room, size, given: Ok(0) }
    }

    /// Gives the value. If it is longer than there is room for, the program hears `ERANGE`.
    pub fn give(&mut self, value: &[u8]) {
        let mut to = Writer::new(self.room);
        self.given = match self.size {
            0 => to.u32(value.len() as u32).u32(0).done(),
            size if size < value.len() => Err(ERANGE),
            _ => to.bytes(value).done(),
        };
    }

    pub(crate) fn given(&self) -> Result<usize, i32> {
        self.given
    }
}
