//! What a file system answers.

use crate::{
    device::Kernel,
    handshake::Granted,
    names::{Names, Room},
    types::{Attr, Entry, Lock, LockAsked, Moved, Opened, Request, SetAttr, Space, Written},
};
use std::{path::Path, process::Command, time::Duration};

type Answer<T, F> = Result<T, <F as Filesystem>::Error>;

/// A file system: a method for each request of the kernel. The file that a request is about is [`Request::node`]; directories that
/// a name is looked up in, made in or taken from are, too. Handles are the numbers that [`Opened::handle`] told. Names have no
/// zero and no `/`, and need not be UTF-8.
///
/// Methods are called by many threads at a time. One that panics ends its request with `EIO`.
pub trait Filesystem: Send + Sync + Sized + 'static {
    /// Errors, as numbers of the system (`errno`), above 0.
    type Error: Into<i32>;

    /// Called first, by itself: how to tell the kernel anything, and what it has agreed to.
    fn start(&mut self, kernel: &Kernel, granted: Granted);

    /// What starts a program that calls [`look_on`](crate::look_on) for this directory: so that a mount whose process is killed is known to be gone, whatever that was waiting
    /// for. `None`: there is none, and a thread has to do, as it has for a program that does not work.
    fn looks_by(&self, _at: &Path) -> Option<Box<dyn Fn() -> Command + Send + Sync>> {
        None
    }

    /// Called last: the directory is mounted nowhere any more.
    fn end(&self);

    /// What a name in a directory stands for.
    fn lookup(&self, req: &Request<'_>, name: &[u8]) -> Answer<Entry, Self>;

    /// The kernel has forgotten a file so many times; entries told count.
    fn forget(&self, node: u64, times: u64);

    /// Attributes, and for how long they may be taken for true.
    fn getattr(&self, req: &Request<'_>) -> Answer<(Attr, Duration), Self>;

    /// Changes attributes; answers with those behind it.
    fn setattr(&self, req: &Request<'_>, set: &SetAttr) -> Answer<(Attr, Duration), Self>;

    /// Where a symbolic link leads.
    fn readlink(&self, req: &Request<'_>) -> Answer<Vec<u8>, Self>;

    /// Makes a file of any kind but a directory or a link. `rdev`: the device's number, major and minor.
    fn mknod(&self, req: &Request<'_>, name: &[u8], mode: u32, rdev: (u32, u32)) -> Answer<Entry, Self>;

    /// Makes a directory.
    fn mkdir(&self, req: &Request<'_>, name: &[u8], mode: u32) -> Answer<Entry, Self>;

    /// Removes a name of what is no directory.
    fn unlink(&self, req: &Request<'_>, name: &[u8]) -> Answer<(), Self>;

    /// Removes an empty directory.
    fn rmdir(&self, req: &Request<'_>, name: &[u8]) -> Answer<(), Self>;

    /// Makes a symbolic link.
    fn symlink(&self, req: &Request<'_>, name: &[u8], target: &[u8]) -> Answer<Entry, Self>;

    /// Moves a name to another directory or name. `flags`: of `renameat2(2)`.
    fn rename(&self, req: &Request<'_>, name: &[u8], to: (u64, &[u8]), flags: u32) -> Answer<(), Self>;

    /// Gives the file `of` another name, in the directory that is asked.
    fn link(&self, req: &Request<'_>, of: u64, name: &[u8]) -> Answer<Entry, Self>;

    /// Opens a file. `flags`: of `open(2)`; `lowers_rights`: it is also cut, and rights that it gives to who runs it are to be taken from it.
    fn open(&self, req: &Request<'_>, flags: i32, lowers_rights: bool) -> Answer<Opened, Self>;

    /// Makes a file and opens it, or opens the one that is there if `flags` do not say `O_EXCL`.
    fn create(&self, req: &Request<'_>, name: &[u8], mode: u32, flags: i32) -> Answer<(Entry, Opened), Self>;

    /// Makes a file without a name, which belongs where the directory is, and opens it (`O_TMPFILE`).
    fn tmpfile(&self, req: &Request<'_>, mode: u32, flags: i32) -> Answer<(Entry, Opened), Self>;

    /// Reads bytes into the room, all of which is asked for; answers how many. Fewer: the file ends there.
    fn read(&self, req: &Request<'_>, handle: u64, offset: u64, room: &mut [u8]) -> Answer<usize, Self>;

    /// Writes bytes; answers how many.
    fn write(&self, req: &Request<'_>, written: &Written<'_>) -> Answer<usize, Self>;

    /// A program has closed a descriptor; `owner` gives its locks back.
    fn flush(&self, req: &Request<'_>, handle: u64, owner: u64) -> Answer<(), Self>;

    /// The last descriptor of an open file is closed. Whoever closed it does not hear of an error.
    fn release(&self, req: &Request<'_>, handle: u64) -> Answer<(), Self>;

    /// Makes what was written survive what the file promises.
    fn fsync(&self, req: &Request<'_>, handle: u64) -> Answer<(), Self>;

    /// Opens a directory.
    fn opendir(&self, req: &Request<'_>) -> Answer<Opened, Self>;

    /// Lists the names behind an offset, 0 at first.
    fn readdir(&self, req: &Request<'_>, handle: u64, offset: u64, names: &mut Names<'_>) -> Answer<(), Self>;

    /// The same with attributes ([`Names::add_entry`]).
    fn readdirplus(&self, req: &Request<'_>, handle: u64, offset: u64, names: &mut Names<'_>) -> Answer<(), Self>;

    /// Closes a directory.
    fn releasedir(&self, req: &Request<'_>, handle: u64) -> Answer<(), Self>;

    /// Makes the changes of a directory survive.
    fn fsyncdir(&self, req: &Request<'_>, handle: u64) -> Answer<(), Self>;

    /// What room there is.
    fn statfs(&self, req: &Request<'_>) -> Answer<Space, Self>;

    /// Sets an extended attribute. `how`: flags of `setxattr(2)`, and whether that takes the right to run as its group from a file, as a list is set
    /// by somebody who is not in it.
    fn setxattr(&self, req: &Request<'_>, name: &[u8], value: &[u8], how: (i32, bool)) -> Answer<(), Self>;

    /// Gives the value of an extended attribute.
    fn getxattr(&self, req: &Request<'_>, name: &[u8], room: &mut Room<'_>) -> Answer<(), Self>;

    /// Gives the names of all extended attributes, each with a zero behind it.
    fn listxattr(&self, req: &Request<'_>, room: &mut Room<'_>) -> Answer<(), Self>;

    /// Removes an extended attribute.
    fn removexattr(&self, req: &Request<'_>, name: &[u8]) -> Answer<(), Self>;

    /// The lock that is in the way of another one; its kind is `F_UNLCK` if there is none.
    fn getlk(&self, req: &Request<'_>, asked: &LockAsked) -> Answer<Lock, Self>;

    /// Gets a lock, changes it, or gives it back; `sleep`: waits for it ([`Request::waits`]).
    fn setlk(&self, req: &Request<'_>, asked: &LockAsked, sleep: bool) -> Answer<(), Self>;

    /// Allocates or frees space. `mode`: of `fallocate(2)`.
    fn fallocate(&self, req: &Request<'_>, handle: u64, range: (u64, u64), mode: i32) -> Answer<(), Self>;

    /// Finds data or a hole. `whence`: `SEEK_DATA` or `SEEK_HOLE`.
    fn lseek(&self, req: &Request<'_>, handle: u64, offset: u64, whence: u32) -> Answer<u64, Self>;

    /// Copies bytes from one open file, that which is asked, to another; answers how many.
    fn copy_file_range(&self, req: &Request<'_>, moved: &Moved) -> Answer<u64, Self>;
}
