//! Errors as POSIX knows them.

use ioverbs::{Clause, Error, Kind};

/// A number of the system, such as `ENOENT`; the names are those of `errno(3)` on Linux.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Errno(pub i32);

/// What a call comes to.
pub type Outcome<T> = std::result::Result<T, Errno>;

macro_rules! numbers {
    ($($name:ident = $number:literal, $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Errno = Errno($number);)*

            /// Its name, if it is one that this crate gives.
            pub fn name(self) -> Option<&'static str> {
                match self { $(Errno::$name => Some(stringify!($name)),)* _ => None }
            }
        }
    };
}

numbers! {
    EPERM = 1, "Not permitted, whoever asks.";
    ENOENT = 2, "There is none.";
    EINTR = 4, "A signal came first.";
    EIO = 5, "The store could not do it.";
    E2BIG = 7, "More than one value holds.";
    EBADF = 9, "The descriptor was not opened for that.";
    EAGAIN = 11, "Not without waiting.";
    ENOMEM = 12, "No memory left.";
    EACCES = 13, "Not for this user.";
    EBUSY = 16, "In use.";
    EEXIST = 17, "It is there already.";
    ENOTDIR = 20, "Not a directory.";
    EISDIR = 21, "A directory.";
    EINVAL = 22, "An argument makes no sense.";
    EFBIG = 27, "Beyond the largest file.";
    ENOSPC = 28, "No room left.";
    EROFS = 30, "Nothing can be changed here.";
    EMLINK = 31, "More names than one file has.";
    ERANGE = 34, "The buffer is too small.";
    ENAMETOOLONG = 36, "Longer than a name.";
    ENOLCK = 37, "No locks left.";
    ENOTEMPTY = 39, "The directory has entries.";
    ELOOP = 40, "A symbolic link where none may be, or too many.";
    ENODATA = 61, "No such attribute.";
    EOVERFLOW = 75, "Does not fit the type.";
    EOPNOTSUPP = 95, "Not supported here.";
    ENXIO = 6, "Nothing there behind this offset.";
    ESTALE = 116, "It is gone, and another may be in its place.";
    EDQUOT = 122, "The quota is used up.";
}

impl From<Errno> for i32 {
    fn from(e: Errno) -> i32 {
        e.0
    }
}

impl std::fmt::Debug for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name() {
            Some(name) => f.write_str(name),
            None => write!(f, "errno {}", self.0),
        }
    }
}

impl std::fmt::Display for Errno {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        std::fmt::Display::fmt(&std::io::Error::from_raw_os_error(self.0), f)
    }
}

impl std::error::Error for Errno {}

impl From<&Error> for Errno {
    /// Programs repeat what says `EAGAIN` and give up a file that says `EIO`, so that what the store cannot do now is the latter.
    fn from(e: &Error) -> Errno {
        match e.kind() {
            Kind::Unavailable | Kind::Timeout | Kind::Conflict | Kind::Version | Kind::Forked | Kind::Cancelled => {
                Errno::EIO
            }
            Kind::Exhausted if e.clause() == Some(Clause::O1) => Errno::EDQUOT,
            // What has the name is not what it was taken for: a group, where nothing else is said.
            Kind::Invalid if e.clause() == Some(Clause::O10) => Errno::EISDIR,
            Kind::TooBig => Errno::EFBIG,
            Kind::Fenced => Errno::ESTALE,
            kind => Errno(kind.errno()),
        }
    }
}

impl From<Error> for Errno {
    fn from(e: Error) -> Errno {
        Errno::from(&e)
    }
}
