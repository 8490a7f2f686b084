//! `nftw`, `ftw` and `scandirat`. Those of the C library open directories by functions that have no name, and so cannot lead here; these do the same
//! by functions that do.

use std::{
    collections::HashSet,
    ffi::{CStr, CString, c_char, c_int, c_void},
};

use crate::{
    raw::{errno, set_errno},
    signals::Quiet,
};

/// What `nftw` calls for each file.
type Visit = unsafe extern "C-unwind" fn(*const c_char, *const libc::stat, c_int, *mut Ftw) -> c_int;
/// What `ftw` calls for each file.
type OldVisit = unsafe extern "C-unwind" fn(*const c_char, *const libc::stat, c_int) -> c_int;

/// Where a file is in a walk (`struct FTW`).
#[repr(C)]
pub(crate) struct Ftw {
    base: c_int,
    level: c_int,
}

/// Kinds of what is visited (`ftw.h`).
mod kind {
    use std::ffi::c_int;

    pub(super) const FILE: c_int = 0;
    pub(super) const DIR: c_int = 1;
    /// A directory that may not be read.
    pub(super) const UNREADABLE: c_int = 2;
    /// What nothing can be told of.
    pub(super) const UNKNOWN: c_int = 3;
    pub(super) const LINK: c_int = 4;
    /// A directory behind what is in it.
    pub(super) const DIR_AFTER: c_int = 5;
    /// A link to nothing.
    pub(super) const DANGLING: c_int = 6;
}

/// What is asked of a walk (`ftw.h`).
mod flag {
    use std::ffi::c_int;

    /// Links are visited, and not followed.
    pub(super) const PHYS: c_int = 1;
    /// No other file systems.
    pub(super) const MOUNT: c_int = 2;
    /// The process goes to each directory.
    pub(super) const CHDIR: c_int = 4;
    /// Directories behind what is in them.
    pub(super) const DEPTH: c_int = 8;
    /// What a visit answers says how to go on.
    pub(super) const ACTION: c_int = 16;
    pub(super) const ALL: c_int = PHYS | MOUNT | CHDIR | DEPTH | ACTION;
}

/// Answers of visits, where those say how to go on.
const SKIP_SUBTREE: c_int = 2;
const SKIP_SIBLINGS: c_int = 3;

/// Why a walk ends before its end: what it returns, with the number of the error if that is -1.
struct Ends(c_int);

type Step = Result<(), Ends>;

/// How the walk goes on behind something.
enum Next {
    /// To what is beside it.
    Beside,
    /// To what is beside the directory that it is in.
    Above,
}

/// Calls a function of the program for a file.
type Tell = dyn Fn(&CStr, &libc::stat, c_int, &mut Ftw) -> c_int;

struct Walk<'a> {
    /// The walk itself is not interrupted, but the program is in each visit.
    quiet: &'a Quiet,
    visit: &'a Tell,
    flags: c_int,
    /// The device of its beginning.
    dev: libc::dev_t,
    /// Directories that were visited.
    known: HashSet<(libc::dev_t, libc::ino_t)>,
}

fn nothing_known() -> libc::stat {
    // SAFETY: all of it may be zero.
    unsafe { std::mem::zeroed() }
}

/// The names in a directory but its own and that of the one above.
fn names(dir: &CStr) -> Result<Vec<CString>, ()> {
    // SAFETY: the path ends with NUL; what is opened is closed, and names are copied before the next one is read.
    unsafe {
        let stream = libc::opendir(dir.as_ptr());
        if stream.is_null() {
            return Err(());
        }
        let names = read_names(stream, &mut |entry| CStr::from_ptr((*entry).d_name.as_ptr()).to_owned());
        let why = errno();
        libc::closedir(stream);
        set_errno(why);
        let dots = |name: &CString| [c".", c".."].contains(&name.as_c_str());
        names.map(|names| names.into_iter().filter(|name| !dots(name)).collect())
    }
}

/// All entries of a directory, as something makes of them what is to be kept.
///
/// # Safety
/// The stream is open.
unsafe fn read_names<T>(
    stream: *mut libc::DIR,
    keep: &mut dyn FnMut(*const libc::dirent64) -> T,
) -> Result<Vec<T>, ()> {
    let mut names = Vec::new();
    loop {
        set_errno(0);
        // SAFETY: the caller says so.
        let entry = unsafe { libc::readdir64(stream) };
        if entry.is_null() {
            return if errno() == 0 { Ok(names) } else { Err(()) };
        }
        names.push(keep(entry));
    }
}

impl Walk<'_> {
    fn has(&self, flag: c_int) -> bool {
        self.flags & flag != 0
    }

    fn tell(&self, path: &CStr, stat: &libc::stat, kind: c_int, at: (usize, c_int)) -> Result<c_int, Ends> {
        let mut ftw = Ftw { base: at.0 as c_int, level: at.1 };
        match self.quiet.without(|| (self.visit)(path, stat, kind, &mut ftw)) {
            0 => Ok(0),
            skip @ (SKIP_SUBTREE | SKIP_SIBLINGS) if self.has(flag::ACTION) => Ok(skip),
            ends => Err(Ends(ends)),
        }
    }

    /// The path by which something is asked for: where the process goes along, its name.
    fn asked<'a>(&self, path: &'a CStr, base: usize) -> &'a CStr {
        let name = path.to_bytes_with_nul().get(base..).and_then(|name| CStr::from_bytes_with_nul(name).ok());
        match name {
            Some(name) if self.has(flag::CHDIR) && !name.is_empty() => name,
            _ => path,
        }
    }

    /// What is told of a file, and what kind of file it is for the walk.
    fn look(&self, path: &CStr, base: usize) -> Result<(libc::stat, c_int), Ends> {
        let asked = self.asked(path, base);
        let mut stat = nothing_known();
        let mut look = |follow: bool| {
            // SAFETY: the path ends with NUL, and there is room for the answer.
            unsafe {
                match follow {
                    true => libc::stat(asked.as_ptr(), &mut stat),
                    false => libc::lstat(asked.as_ptr(), &mut stat),
                }
            }
        };
        if look(!self.has(flag::PHYS)) == 0 {
            let kind = match stat.st_mode & libc::S_IFMT {
                libc::S_IFDIR => kind::DIR,
                libc::S_IFLNK => kind::LINK,
                _ => kind::FILE,
            };
            return Ok((stat, kind));
        }
        if ![libc::EACCES, libc::ENOENT].contains(&errno()) {
            return Err(Ends(-1));
        }
        if !self.has(flag::PHYS) && look(false) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFLNK {
            return Ok((stat, kind::DANGLING));
        }
        Ok((stat, kind::UNKNOWN))
    }

    /// Visits something in a directory, and what is in it.
    fn entry(&mut self, path: &CStr, at: (usize, c_int)) -> Result<Next, Ends> {
        let (stat, kind) = self.look(path, at.0)?;
        // Only of what is known.
        if self.has(flag::MOUNT) && kind != kind::UNKNOWN && stat.st_dev != self.dev {
            return Ok(Next::Beside);
        }
        let answer = match kind {
            kind::DIR if self.has(flag::PHYS) || self.known.insert((stat.st_dev, stat.st_ino)) => {
                return self.directory(path, &stat, at);
            }
            // Another link has led there.
            kind::DIR => 0,
            kind => self.tell(path, &stat, kind, at)?,
        };
        Ok(if answer == SKIP_SIBLINGS { Next::Above } else { Next::Beside })
    }

    fn directory(&mut self, path: &CStr, stat: &libc::stat, at: (usize, c_int)) -> Result<Next, Ends> {
        let above = |answer| if answer == SKIP_SIBLINGS { Next::Above } else { Next::Beside };
        let asked = self.asked(path, at.0);
        let names = match names(asked) {
            Ok(names) => names,
            Err(()) if errno() == libc::EACCES => return self.tell(path, stat, kind::UNREADABLE, at).map(above),
            Err(()) => return Err(Ends(-1)),
        };
        if !self.has(flag::DEPTH) {
            let answer = self.tell(path, stat, kind::DIR, at)?;
            if answer != 0 {
                return Ok(above(answer));
            }
        }
        let back = if self.has(flag::CHDIR) { Some(Back::go(asked)?) } else { None };
        let mut within = path.to_bytes().to_vec();
        if !within.ends_with(b"/") {
            within.push(b'/');
        }
        for name in names {
            let path = [&within[..], name.as_bytes_with_nul()].concat();
            let path = CString::from_vec_with_nul(path).map_err(|_| Ends(-1))?;
            if let Next::Above = self.entry(&path, (within.len(), at.1 + 1))? {
                break;
            }
        }
        // The process is still there, as with the C library.
        let next = match self.has(flag::DEPTH) {
            true => self.tell(path, stat, kind::DIR_AFTER, at).map(above)?,
            false => Next::Beside,
        };
        if let Some(back) = back {
            back.come()?;
        }
        Ok(next)
    }

    /// All of it: what `nftw` returns.
    fn run(&mut self, dir: &CStr) -> Step {
        let bytes = dir.to_bytes();
        // Slashes at the end are not of the name.
        let len = bytes.iter().rposition(|b| *b != b'/').map_or(bytes.len().min(1), |last| last + 1);
        let path = CString::new(&bytes[..len]).map_err(|_| Ends(-1))?;
        let base = path.as_bytes().iter().rposition(|b| *b == b'/').map_or(0, |slash| slash + 1);
        let fail = |number| {
            set_errno(number);
            Err(Ends(-1))
        };
        if self.flags & !flag::ALL != 0 {
            return fail(libc::EINVAL);
        }
        if path.is_empty() {
            return fail(libc::ENOENT);
        }
        let back = match self.has(flag::CHDIR) {
            true => Some(Back::go(&CString::new(if base == 0 { b"." } else { &bytes[..base] }).unwrap_or_default())?),
            false => None,
        };
        let walked = self.from(&path, base);
        let why = errno();
        if let Some(back) = back {
            back.come()?;
        }
        set_errno(why);
        walked
    }

    fn from(&mut self, path: &CStr, base: usize) -> Step {
        let (stat, kind) = self.look(path, base)?;
        if kind == kind::UNKNOWN {
            return Err(Ends(-1));
        }
        self.dev = stat.st_dev;
        self.known.insert((stat.st_dev, stat.st_ino));
        match kind {
            kind::DIR => self.directory(path, &stat, (base, 0)).map(|_| ()),
            kind => self.tell(path, &stat, kind, (base, 0)).map(|_| ()),
        }
    }
}

/// The directory to which the process goes back.
struct Back(c_int);

impl Back {
    /// Goes to a directory.
    fn go(to: &CStr) -> Result<Back, Ends> {
        // SAFETY: the paths end with NUL.
        unsafe {
            let here = libc::open(c".".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC);
            let back = Back(here);
            if here < 0 || libc::chdir(to.as_ptr()) < 0 {
                return Err(Ends(-1));
            }
            Ok(back)
        }
    }

    fn come(self) -> Step {
        // SAFETY: it is a descriptor of this walk.
        if unsafe { libc::fchdir(self.0) } < 0 { Err(Ends(-1)) } else { Ok(()) }
    }
}

impl Drop for Back {
    fn drop(&mut self) {
        let why = errno();
        // SAFETY: it is a descriptor of this walk, or none.
        unsafe { libc::close(self.0) };
        set_errno(why);
    }
}

fn walk(dir: *const c_char, visit: &Tell, flags: c_int) -> c_int {
    let quiet = Quiet::enter();
    let before = errno();
    let Some(dir) = super::bytes_of(dir).and_then(|dir| CString::new(dir).ok()) else {
        set_errno(libc::EFAULT);
        return -1;
    };
    let mut walk = Walk { quiet: &quiet, visit, flags, dev: 0, known: HashSet::new() };
    let walked = walk.run(&dir);
    match walked {
        Ok(()) => {
            set_errno(before);
            0
        }
        Err(Ends(answer)) => answer,
    }
}

/// `nftw(3)`. Directories are read at once, so that it needs no more than one descriptor for each level.
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn nftw(
    dir: *const c_char,
    visit: Visit,
    _descriptors: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the program says what is to be called.
    let visit =
        move |path: &CStr, stat: &libc::stat, kind, at: &mut Ftw| unsafe { visit(path.as_ptr(), stat, kind, at) };
    walk(dir, &visit, flags)
}

/// `ftw(3)`
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C-unwind" fn ftw(dir: *const c_char, visit: OldVisit, _descriptors: c_int) -> c_int {
    let visit = move |path: &CStr, stat: &libc::stat, kind, _: &mut Ftw| {
        // It knows of no links.
        let kind = match kind {
            kind::LINK => kind::FILE,
            kind::DANGLING => kind::UNKNOWN,
            kind => kind,
        };
        // SAFETY: the program says what is to be called.
        unsafe { visit(path.as_ptr(), stat, kind) }
    };
    walk(dir, &visit, 0)
}

type Wanted = unsafe extern "C" fn(*const libc::dirent64) -> c_int;
type Order = unsafe extern "C" fn(*const c_void, *const c_void) -> c_int;

/// `scandirat(3)`
///
/// # Safety
/// As the function that it stands for.
pub(crate) unsafe extern "C" fn scandirat(
    dirfd: c_int,
    dir: *const c_char,
    found: *mut *mut *mut libc::dirent64,
    wanted: Option<Wanted>,
    order: Option<Order>,
) -> c_int {
    let quiet = Quiet::enter();
    let before = errno();
    // SAFETY: the program gives it so; entries are copied before the next one is read, and what is given is of the C library's memory.
    unsafe {
        let fd = super::open::openat(dirfd, dir, libc::O_RDONLY | libc::O_DIRECTORY | libc::O_CLOEXEC, 0);
        let stream = if fd < 0 { std::ptr::null_mut() } else { libc::fdopendir(fd) };
        if stream.is_null() {
            let why = errno();
            libc::close(fd);
            set_errno(why);
            return -1;
        }
        let read = read_names(stream, &mut |entry| {
            // The program's own function may leave a number behind.
            if wanted.is_some_and(|wanted| quiet.without(|| wanted(entry)) == 0) {
                return std::ptr::null_mut();
            }
            let len = usize::from((*entry).d_reclen);
            let copy = libc::malloc(len);
            if !copy.is_null() {
                std::ptr::copy_nonoverlapping(entry.cast::<u8>(), copy.cast(), len);
            }
            copy
        });
        let why = errno();
        libc::closedir(stream);
        let Ok(entries) = read else {
            set_errno(why);
            return -1;
        };
        let entries: Vec<*mut c_void> = entries.into_iter().filter(|entry| !entry.is_null()).collect();
        let list = libc::malloc(size_of_val(&entries[..]).max(1)).cast::<*mut c_void>();
        if list.is_null() {
            entries.iter().for_each(|entry| libc::free(*entry));
            set_errno(libc::ENOMEM);
            return -1;
        }
        std::ptr::copy_nonoverlapping(entries.as_ptr(), list, entries.len());
        if let Some(order) = order {
            quiet.without(|| libc::qsort(list.cast(), entries.len(), size_of::<*mut c_void>(), Some(order)));
        }
        found.write(list.cast());
        set_errno(before);
        entries.len() as c_int
    }
}
