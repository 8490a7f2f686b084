//! The store as this process has it: its session, the workspaces that were used, the files that are open. A child of `fork`
//! has a world of its own, and never touches that of its parent again, whose threads it does not have.

use std::{
    collections::HashMap,
    ffi::OsString,
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering},
    },
    time::Duration,
};

use iov_posix::{
    Caller, Errno, FileSystem, Kind, Level, Node, Options, Outcome, Paths, Rule,
    run::{Place, Settings},
};
use ioverbs::{Controls, Error, Name, Session, SessionAttr, Which, catalog::SearchSpec, copied::Copied, text};

use crate::{
    calls::users,
    files::Files,
    raw::kernel,
    record::Record,
    signals::{Quiet, inside, set_inside},
};

/// How long what others do to names may stay unseen.
const UNSEEN: Duration = Duration::from_secs(1);

/// A workspace that appears somewhere.
pub(crate) struct Mounted {
    /// Its path.
    pub(crate) at: Vec<u8>,
    /// Its name.
    pub(crate) name: Vec<u8>,
    /// What there is.
    pub(crate) paths: Paths,
    /// The number of the device that programs take it for.
    pub(crate) dev: u64,
}

/// The directory of the process, where that is not one of the kernel's.
#[derive(Clone)]
pub(crate) enum Directory {
    /// The kernel knows it.
    Outside,
    /// That of all workspaces, by its path.
    Named(Vec<u8>),
    /// One of a workspace, as another process has handed it to this one.
    Passed(Record),
    /// One of a workspace.
    Inside(Arc<Mounted>, Arc<Node>),
}

/// See the module.
pub(crate) struct World {
    pub(crate) settings: Settings,
    /// Where this library is.
    pub(crate) library: OsString,
    session: Mutex<Option<Session>>,
    /// The thread that opens it; 0: nobody does.
    opens: AtomicI32,
    mounted: Mutex<HashMap<Vec<u8>, Arc<Mounted>>>,
    pub(crate) files: Files,
    pub(crate) directory: RwLock<Directory>,
    /// Bits that new files do not get.
    pub(crate) umask: AtomicU32,
    /// This process has used the store, or has something of one that did.
    used: AtomicBool,
    /// The process that it is of.
    pub(crate) pid: i32,
}

static WORLD: AtomicPtr<World> = AtomicPtr::new(std::ptr::null_mut());

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether this process is a copy of the one that has looked last.
pub(crate) static COPIED: Copied = Copied::new();

/// The world of this process; none: it does without.
pub(crate) fn world() -> Option<&'static World> {
    COPIED.see(crate::calls::forks::become_copy);
    // SAFETY: what was put there was leaked, and stays for as long as the process.
    unsafe { WORLD.load(Ordering::Acquire).as_ref() }
}

/// This process has no world until it gets one of its own: what it calls meanwhile is the kernel's to do. That of its parent's.
pub(crate) fn leave_world() -> Option<&'static World> {
    // SAFETY: as above.
    unsafe { WORLD.swap(std::ptr::null_mut(), Ordering::AcqRel).as_ref() }
}

/// From now on this process has this world.
pub(crate) fn set_world(world: World) {
    WORLD.store(Box::into_raw(Box::new(world)), Ordering::Release);
}

/// This thread is in the store's library for as long as this is kept, and no handler of a signal interrupts it.
pub(crate) struct Inside(Quiet);

impl Inside {
    pub(crate) fn enter() -> Inside {
        let quiet = Quiet::enter();
        set_inside(inside() + 1);
        Inside(quiet)
    }

    /// Whether this thread is, or is one of the library's own: what it does then the library does, which may have locked what it would wait for.
    pub(crate) fn is() -> bool {
        inside() > 0 || is_ours()
    }
}

/// Whether this thread is one of the library's, which are called so.
fn is_ours() -> bool {
    let mut name = [0_u8; 16];
    let asked = kernel!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr());
    let main = kernel!(libc::SYS_gettid) == kernel!(libc::SYS_getpid);
    asked == 0 && !main && name.starts_with(b"iov-") && PROGRAM.get() != Some(&name)
}

/// What the program is called: its own threads are, too, unless it calls them otherwise.
static PROGRAM: OnceLock<[u8; 16]> = OnceLock::new();

/// Learns that, in its first thread.
pub(crate) fn learn_name() {
    let mut name = [0_u8; 16];
    if kernel!(libc::SYS_prctl, libc::PR_GET_NAME, name.as_mut_ptr()) == 0 {
        let _ = PROGRAM.set(name);
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        set_inside(inside().saturating_sub(1));
        if inside() == 0 {
            crate::calls::limits::tell();
        }
    }
}

/// Tells whoever reads the program's errors what the library has said.
pub(crate) fn report(what: &str, e: &dyn std::fmt::Display) {
    // What the store cannot do is not written to the store.
    if world().is_some_and(|world| world.files.may_have(2)) {
        return;
    }
    let line = format!("iov run: {what}: {e}\n");
    // There may be nobody to read it.
    kernel!(libc::SYS_write, 2, line.as_ptr(), line.len());
}

impl World {
    pub(crate) fn new(settings: Settings, library: OsString, files: Files, umask: u32) -> World {
        World {
            settings,
            library,
            session: Mutex::default(),
            opens: AtomicI32::new(0),
            mounted: Mutex::default(),
            files,
            directory: RwLock::new(Directory::Outside),
            umask: AtomicU32::new(umask),
            used: AtomicBool::new(false),
            pid: crate::raw::pid(),
        }
    }

    /// The session, which the first who needs it opens.
    fn session(&self) -> Outcome<Session> {
        let mut session = lock(&self.session);
        if let Some(session) = &*session {
            return Ok(session.clone());
        }
        // What the library looks for meanwhile, as its daemon on `PATH`, it does not look for in workspaces.
        let _inside = Inside::enter();
        self.opens.store(kernel!(libc::SYS_gettid) as i32, Ordering::Relaxed);
        let program =
            std::env::current_exe().ok().and_then(|exe| Some(exe.file_name()?.to_string_lossy().into_owned()));
        let attr = SessionAttr { deadline_ns: self.settings.deadline_ns, program, ..SessionAttr::default() };
        let opened = as_starter(|| ioverbs::open(Some(&self.settings.store), attr));
        self.opens.store(0, Ordering::Relaxed);
        let opened = opened.map_err(|e| failed("the store cannot be reached", &e))?;
        self.used.store(true, Ordering::Relaxed);
        Ok(session.insert(opened).clone())
    }

    /// Whether this thread is opening the store.
    pub(crate) fn is_opening(&self) -> bool {
        let opens = self.opens.load(Ordering::Relaxed);
        opens != 0 && kernel!(libc::SYS_gettid) as i32 == opens
    }

    /// By this others may use what this process has open (X1); none: it has nothing, or the store does not say.
    pub(crate) fn token(&self) -> Vec<u8> {
        let session = lock(&self.session).clone();
        session.and_then(|session| session.export_token().ok()).unwrap_or_default()
    }

    /// This process is a child of `fork`: what its parent has used it may use too.
    pub(crate) fn comes_from(&self, parent: &World) {
        self.used.store(parent.used.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Something of the store was handed to this process.
    pub(crate) fn has_something(&self) {
        self.used.store(true, Ordering::Relaxed);
    }

    /// The process is about to be another user's, whom the store may know nothing of: what it will need is opened now.
    pub(crate) fn before_another_user(&self) {
        if self.used.load(Ordering::Relaxed) && crate::raw::pid() == self.pid {
            let _inside = Inside::enter();
            // Who needs it will hear why not.
            drop(self.session());
        }
    }

    /// The workspace of this name, at this path.
    pub(crate) fn mounted(&self, at: &[u8], name: &[u8]) -> Outcome<Arc<Mounted>> {
        if let Some(mounted) = lock(&self.mounted).get(at) {
            return Ok(mounted.clone());
        }
        let session = self.session()?;
        let which = Name::new(name).map_err(|_| Errno::ENOENT)?;
        let ws = session.load_workspace(Which::Name(which)).map_err(|e| failed("a workspace", &e))?;
        let dev = ws.uuid().0.iter().fold(0_u64, |dev, byte| dev.wrapping_mul(131).wrapping_add(u64::from(*byte)));
        let fs = FileSystem::new(ws, self.options()?);
        let mounted =
            Mounted { at: at.to_vec(), name: name.to_vec(), paths: Paths::new(fs), dev: (dev >> 24) | 0x10_0000 };
        // Somebody else may have been faster: there is one.
        Ok(lock(&self.mounted).entry(at.to_vec()).or_insert_with(|| Arc::new(mounted)).clone())
    }

    fn options(&self) -> Outcome<Options> {
        let wrong = |e: Error| failed("what iov run was told", &e);
        let rules =
            self.settings.rules.iter().map(|rule| Rule::parse(rule)).collect::<Result<_, _>>().map_err(wrong)?;
        let mut controls = Controls::default();
        for control in &self.settings.controls {
            text::parse(&mut controls, control).map_err(wrong)?;
        }
        let strict = self.settings.strict;
        Ok(Options {
            level: if strict { Level::Strict } else { Level::Session },
            unseen: if strict { Duration::ZERO } else { UNSEEN },
            controls,
            rules,
            report: Some(Arc::new(|what, e| report(what, e))),
            ..Options::default()
        })
    }

    /// The workspaces that this process uses.
    pub(crate) fn all_mounted(&self) -> Vec<Arc<Mounted>> {
        lock(&self.mounted).values().cloned().collect()
    }

    /// What was found a moment ago is looked for anew.
    pub(crate) fn refresh(&self) {
        self.all_mounted().iter().for_each(|mounted| mounted.paths.refresh());
    }

    /// The names of all workspaces.
    pub(crate) fn workspaces(&self) -> Outcome<Vec<Vec<u8>>> {
        let wrong = |e: Error| failed("the list of workspaces", &e);
        let spec = SearchSpec { page: 1024, names: true, ..SearchSpec::default() };
        let found = self.session()?.search_workspaces(spec).map_err(wrong)?;
        let mut names = Vec::new();
        loop {
            let page = found.next(1024, -1).map_err(wrong)?;
            if page.is_empty() {
                return Ok(names);
            }
            names.extend(page.into_iter().filter_map(|entry| Some(entry.name?.as_bytes().to_vec())));
        }
    }

    /// The place of which a path is, or is below, and what comes behind it.
    pub(crate) fn place<'a>(&self, path: &'a [u8]) -> Option<(&Place, &'a [u8])> {
        self.settings.places.iter().find_map(|place| {
            let rest = path.strip_prefix(&place.at[..])?;
            matches!(rest.first(), None | Some(b'/')).then_some((place, rest))
        })
    }

    /// Whether a directory of the kernel is above one where a workspace appears.
    pub(crate) fn is_above(&self, dir: &[u8]) -> bool {
        let dir = dir.strip_suffix(b"/").unwrap_or(dir);
        self.settings
            .places
            .iter()
            .any(|place| place.at.strip_prefix(dir).is_some_and(|rest| rest.first() == Some(&b'/')))
    }
}

/// The number for a failure of the store, which is told.
fn failed(what: &str, e: &Error) -> Errno {
    let errno = Errno::from(e);
    if errno != Errno::ENOENT {
        report(what, e);
    }
    errno
}

/// Does something as the user who has started the program, whoever it does things for just now (`seteuid`): it is that user's store.
pub(crate) fn as_starter<T>(work: impl FnOnce() -> T) -> T {
    // SAFETY: these ask the kernel for numbers.
    let (real, now) = unsafe { (libc::getuid(), libc::geteuid()) };
    // Of this thread alone, unlike what the C library does.
    let become_user = |uid: u32| kernel!(libc::SYS_setresuid, -1_i32, uid, -1_i32);
    let files = user();
    if real == now && files == real {
        return work();
    }
    // Of both, as the one sets the other.
    if become_user(real) != 0 || kernel!(libc::SYS_setfsuid, real) < 0 {
        return work();
    }
    let done = work();
    become_user(now);
    if files != now {
        kernel!(libc::SYS_setfsuid, files);
    }
    done
}

/// As which user this thread meets files: as which it does all else, unless it has said otherwise (`setfsuid(2)`).
pub(crate) fn user() -> u32 {
    // SAFETY: it asks the kernel for a number.
    users::for_files(libc::SYS_setfsuid).unwrap_or_else(|| unsafe { libc::geteuid() })
}

/// The same of its group.
fn group() -> u32 {
    // SAFETY: as above.
    users::for_files(libc::SYS_setfsgid).unwrap_or_else(|| unsafe { libc::getegid() })
}

/// On whose behalf this thread does things.
pub(crate) fn caller() -> Caller {
    let (uid, gid) = (user(), group());
    // Root is asked for no groups.
    let umask = world().map_or(0, |world| world.umask.load(Ordering::Relaxed));
    Caller { uid, gid, groups: if uid == 0 { Vec::new() } else { groups() }, umask }
}

fn groups() -> Vec<u32> {
    let mut groups = [0; 64];
    // SAFETY: there is room for as many as are said.
    let n = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
    if let Ok(n) = usize::try_from(n) {
        return groups[..n].to_vec();
    }
    // As many as there can be.
    let mut groups = vec![0; 1 << 16];
    // SAFETY: as above.
    let n = unsafe { libc::getgroups(groups.len() as i32, groups.as_mut_ptr()) };
    groups.truncate(usize::try_from(n).unwrap_or(0));
    groups
}

/// The type of a file, as `d_type` says it.
pub(crate) fn d_type(kind: Kind) -> u8 {
    (kind.bits() >> 12) as u8
}
