//! A store of its own for each test, with a daemon that the test can arm and kill.

use std::{
    ffi::OsStr,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use ioverbs::{Controls, Layout, Name, Session, SessionAttr, Which, Workspace, WorkspaceAttr, seam, text};

use crate::Worker;

/// The workspace that every test uses.
pub const WORKSPACE: &str = "w";

/// The directory where cargo has put the programs of this build.
fn programs() -> PathBuf {
    let exe = std::env::current_exe().expect("the test has a path");
    exe.ancestors().nth(2).expect("tests lie in deps, below the programs").to_owned()
}

pub(crate) fn worker_program() -> PathBuf {
    programs().join("litmus-worker")
}

/// The daemon beside the test. Cargo builds it only where somebody asks for it.
pub(crate) fn iovd() -> &'static Path {
    static IOVD: OnceLock<PathBuf> = OnceLock::new();
    IOVD.get_or_init(|| {
        if let Some(named) = std::env::var_os("IOVERBS_IOVD") {
            return named.into();
        }
        let path = programs().join("iovd");
        if !path.exists() {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--package", "iovd", "--manifest-path"]);
            build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"));
            // Programs lie in a directory named after their profile.
            let profile = path.parent().and_then(Path::file_name).filter(|name| *name != "debug");
            build.args(profile.map(|name| [OsStr::new("--profile"), name]).into_iter().flatten());
            assert!(build.status().expect("cargo runs").success(), "iovd could not be built");
        }
        path
    })
}

fn medium() -> Option<String> {
    std::env::var("IOV_LITMUS_MEDIUM").ok().filter(|medium| !medium.is_empty())
}

/// Whether stores keep their bytes in shared memory (`IOV_LITMUS_MEDIUM=shmem`), or in files.
pub fn in_shared_memory() -> bool {
    medium().is_some_and(|medium| medium == "shmem")
}

/// Whether workers reach stores over TCP (`IOV_LITMUS_MEDIUM=tcp`), and only the test itself is on their host.
pub fn over_tcp() -> bool {
    medium().is_some_and(|medium| medium == "tcp")
}

/// Whether stores have three targets and each collection lies on all of them (`IOV_LITMUS_MEDIUM=striped`), in chunks that are
/// smaller than most of what is written.
pub fn is_striped() -> bool {
    medium().is_some_and(|medium| medium == "striped")
}

/// Whether the bytes lie at another daemon than the catalog (`IOV_LITMUS_MEDIUM=member`), which is the one that dies.
pub fn at_member() -> bool {
    medium().is_some_and(|medium| medium == "member")
}

/// What every collection of such a store is created with: appends go to one of the targets all the same.
fn stripes() -> Option<Layout> {
    match (is_striped(), at_member()) {
        (true, _) => Some(Layout { targets: 3, chunk_size: 8192, ..Layout::default() }),
        (_, true) => Some(Layout { targets: 1, policy: Some("targets:64".into()), ..Layout::default() }),
        _ => None,
    }
}

/// Where a daemon listens, as it has written it down: while it is away nobody else can tell.
fn address_of(dir: &Path) -> String {
    let listens = std::fs::read_to_string(dir.join("listen")).expect("the daemon listens");
    listens.lines().find_map(|line| line.strip_prefix("on ")).expect("an address").to_owned()
}

/// A daemon that the test has started itself.
pub struct Daemon(Child);

impl Daemon {
    /// Starts one; `point` is `NAME:N:kill` of a fail point.
    fn start(dir: &Path, point: Option<&str>) -> Daemon {
        let mut command = Command::new(iovd());
        command.arg("--dir").arg(dir).args(["--ready", "--idle", "60"]);
        if in_shared_memory() {
            command.args(["--new-storage", "shmem:256MiB"]);
        }
        if is_striped() {
            command.args(["--storage", "files"].repeat(3));
        }
        // One that comes in place of one that died listens as that did.
        if (over_tcp() || at_member()) && !dir.join("listen").exists() {
            command.args(["--listen", "127.0.0.1:0"]);
        }
        Daemon::run(command, point)
    }

    /// Starts one that serves a target of the store whose daemon has this directory.
    fn join(dir: &Path, catalog: &Path, point: Option<&str>) -> Daemon {
        let mut command = Command::new(iovd());
        command.arg("--dir").arg(dir).args(["--ready", "--storage", "files"]);
        command.args(["--join", &address_of(catalog), "--secret"]).arg(catalog.join("secret"));
        Daemon::run(command, point)
    }

    fn run(mut command: Command, point: Option<&str>) -> Daemon {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        match point {
            Some(point) => command.env("IOV_FAIL_POINT", point),
            None => command.env_remove("IOV_FAIL_POINT"),
        };
        let mut child = command.spawn().expect("the daemon starts");
        let stderr = child.stderr.take().expect("a pipe");
        let mut words = String::new();
        for line in BufReader::new(stderr).lines().map_while(Result::ok) {
            if line == "iovd is ready" {
                return Daemon(child);
            }
            words.push_str(&line);
        }
        // It was killed while it opened the store, or says why it cannot serve it.
        let status = child.wait().expect("its end");
        assert!(point.is_some() && status.code().is_none(), "the daemon could not start: {words} {status}");
        Daemon(child)
    }

    /// Whether it has died; never waits.
    pub fn is_dead(&mut self) -> bool {
        self.0.try_wait().expect("its state").is_some()
    }

    /// Waits up to 60 s for it to die of its fail point.
    pub fn dies(&mut self) -> bool {
        self.dies_within(60_000_000_000)
    }

    /// The same for so many nanoseconds.
    pub fn dies_within(&mut self, ns: i64) -> bool {
        let until = seam::monotonic_ns() + ns;
        while !self.is_dead() {
            if seam::monotonic_ns() > until {
                return false;
            }
            seam::sleep(1_000_000);
        }
        true
    }

    fn kill(&mut self) {
        // It may have died already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A store in a temporary directory, with the workspace `w`.
pub struct Store {
    // Ends first.
    keeper: Option<Keeper>,
    dir: tempfile::TempDir,
    /// That of the daemon which dies, if it is not the catalog's, and the catalog's.
    member: Option<(tempfile::TempDir, Daemon)>,
    daemon: Option<Daemon>,
}

/// Sees to it that a daemon serves the store: clients over a network cannot start one.
struct Keeper {
    /// Nobody is kept while this is locked.
    pause: Arc<Mutex<()>>,
    ends: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    fn of(url: String) -> Keeper {
        let (pause, ends) = (Arc::<Mutex<()>>::default(), Arc::new(AtomicBool::new(false)));
        let (paused, ended) = (pause.clone(), ends.clone());
        let thread = seam::spawn("keeper", move || {
            while !ended.load(Ordering::SeqCst) {
                seam::sleep(20_000_000);
                let _paused = paused.lock().unwrap_or_else(PoisonError::into_inner);
                if matches!(ioverbs::daemon_status(&url), Ok(None)) {
                    // As a program on the store's host does. One that dies again is started again.
                    drop(ioverbs::open(Some(&url), SessionAttr::default()));
                }
            }
        });
        Keeper { pause, ends, thread: thread.ok() }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.ends.store(true, Ordering::SeqCst);
        self.thread.take().map(JoinHandle::join);
    }
}

impl Store {
    /// A store with a daemon.
    pub fn new() -> Store {
        Store::at("sequential")
    }

    /// The same, with a workspace whose names and metadata obey a consistency level.
    pub fn at(level: &str) -> Store {
        let mut controls = Controls::default();
        text::parse(&mut controls, &format!("consistency={level}")).expect("a level");
        let attr = WorkspaceAttr { controls: Some(controls), layout: stripes(), ..WorkspaceAttr::default() };
        let dir = tempfile::tempdir().expect("a directory");
        let mut store = Store { keeper: None, dir, member: None, daemon: None };
        let catalog = Daemon::start(store.dir.path(), None);
        if at_member() {
            store.member = Some((tempfile::tempdir().expect("a directory"), catalog));
            store.daemon = Some(store.start(None));
        } else {
            store.daemon = Some(catalog);
        }
        store.keeper = store.needs_keeper().then(|| Keeper::of(store.url_of_daemon()));
        let made = store.session().create_workspace(Name::new(WORKSPACE).expect("a name"), attr);
        made.expect("the workspace is made");
        store
    }

    /// Starts the daemon that dies.
    fn start(&self, point: Option<&str>) -> Daemon {
        match &self.member {
            Some((dir, _)) => Daemon::join(dir.path(), self.dir.path(), point),
            None => Daemon::start(self.dir.path(), point),
        }
    }

    /// Whether no client can start it.
    fn needs_keeper(&self) -> bool {
        over_tcp() || self.member.is_some()
    }

    /// The URL of the directory of the daemon that dies.
    fn url_of_daemon(&self) -> String {
        let dir = self.member.as_ref().map_or(&self.dir, |(dir, _)| dir);
        format!("file:{}", dir.path().display())
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("file:{}", self.dir.path().display())
    }

    /// The URL by which workers reach it.
    fn worker_url(&self) -> String {
        if !over_tcp() {
            return self.url();
        }
        let dir = self.dir.path();
        format!("iov://{}?secret={}", address_of(dir), dir.join("secret").display())
    }

    /// A session of the test itself.
    pub fn session(&self) -> Session {
        // A daemon that died is replaced by the next session, as in every program.
        ioverbs::open(Some(&self.url()), SessionAttr::default()).expect("the store opens")
    }

    /// The workspace as the test itself sees it, by a new session.
    pub fn workspace(&self) -> Workspace {
        self.session().load_workspace(Which::parse(WORKSPACE).expect("a name")).expect("the workspace opens")
    }

    /// A worker process.
    pub fn worker(&self) -> Worker {
        Worker::start(&self.worker_url(), &[])
    }

    /// A worker process with flags: `nodirect`, `nostart`.
    pub fn worker_with(&self, flags: &[&str]) -> Worker {
        Worker::start(&self.worker_url(), flags)
    }

    /// Kills whatever daemon serves the store, by SIGKILL.
    pub fn kill_daemon(&mut self) {
        let pause = self.keeper.as_ref().map(|keeper| keeper.pause.clone());
        let _paused = pause.as_ref().map(|pause| pause.lock().unwrap_or_else(PoisonError::into_inner));
        self.kill_now();
    }

    /// The same, and none comes in its place but by [`Store::restart`].
    pub fn kill_for_good(&mut self) {
        self.keeper = None;
        self.kill_now();
    }

    fn kill_now(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
        // One that a library has started meanwhile.
        while let Ok(Some(status)) = ioverbs::daemon_status(&self.url_of_daemon()) {
            let pid = status.iter().find(|(name, _)| name == "pid").expect("a pid").1;
            let kill = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
            assert!(kill.is_ok(), "kill runs");
            seam::sleep(1_000_000);
        }
    }

    /// Kills the daemon and starts one that is armed with a fail point.
    pub fn arm(&mut self, point: &str) -> &mut Daemon {
        let pause = self.keeper.as_ref().map(|keeper| keeper.pause.clone());
        let _paused = pause.as_ref().map(|pause| pause.lock().unwrap_or_else(PoisonError::into_inner));
        self.kill_now();
        self.daemon.insert(self.start(Some(point)))
    }

    /// Kills the daemon and starts another, which recovers.
    pub fn restart(&mut self) {
        let pause = self.keeper.as_ref().map(|keeper| keeper.pause.clone());
        let _paused = pause.as_ref().map(|pause| pause.lock().unwrap_or_else(PoisonError::into_inner));
        self.kill_now();
        self.daemon = Some(self.start(None));
        if self.needs_keeper() && self.keeper.is_none() {
            self.keeper = Some(Keeper::of(self.url_of_daemon()));
        }
    }

    /// The daemon that the test has started.
    pub fn daemon(&mut self) -> &mut Daemon {
        self.daemon.as_mut().expect("the test has started a daemon")
    }
}

impl Default for Store {
    fn default() -> Store {
        Store::new()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // What the daemon has to say goes with the directory.
            let dir = self.member.as_ref().map_or(&self.dir, |(dir, _)| dir);
            let log = std::fs::read_to_string(dir.path().join("iovd.log")).unwrap_or_default();
            eprintln!("the log of the daemon:\n{log}");
        }
        self.keeper = None;
        self.kill_daemon();
        if let Some((_, mut catalog)) = self.member.take() {
            catalog.kill();
        }
        if in_shared_memory() {
            // A test that fails must not fill the machine's memory.
            let _ = ioverbs::store_release(&self.url());
        }
    }
}
