//! A store of its own for each test, with a daemon that the test can arm and kill.

use std::{
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::OnceLock,
};

use ioverbs::{Controls, Name, Session, SessionAttr, Which, Workspace, WorkspaceAttr, seam, text};

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
            if path.parent().is_some_and(|p| p.ends_with("release")) {
                build.arg("--release");
            }
            assert!(build.status().expect("cargo runs").success(), "iovd could not be built");
        }
        path
    })
}

/// Whether stores keep their bytes in shared memory (`IOV_LITMUS_MEDIUM=shmem`), or in files.
pub fn in_shared_memory() -> bool {
    std::env::var_os("IOV_LITMUS_MEDIUM").is_some_and(|medium| medium == "shmem")
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
        let until = seam::monotonic_ns() + 60_000_000_000;
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
    dir: tempfile::TempDir,
    daemon: Option<Daemon>,
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
        let attr = WorkspaceAttr { controls: Some(controls), ..WorkspaceAttr::default() };
        let dir = tempfile::tempdir().expect("a directory");
        let mut store = Store { dir, daemon: None };
        store.daemon = Some(Daemon::start(store.dir.path(), None));
        let made = store.session().create_workspace(Name::new(WORKSPACE).expect("a name"), attr);
        made.expect("the workspace is made");
        store
    }

    /// Its URL.
    pub fn url(&self) -> String {
        format!("file:{}", self.dir.path().display())
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
        Worker::start(&self.url(), &[])
    }

    /// A worker process with flags: `nodirect`, `nostart`.
    pub fn worker_with(&self, flags: &[&str]) -> Worker {
        Worker::start(&self.url(), flags)
    }

    /// Kills whatever daemon serves the store, by SIGKILL.
    pub fn kill_daemon(&mut self) {
        if let Some(mut daemon) = self.daemon.take() {
            daemon.kill();
        }
        // One that a library has started meanwhile.
        while let Ok(Some(status)) = ioverbs::daemon_status(&self.url()) {
            let pid = status.iter().find(|(name, _)| name == "pid").expect("a pid").1;
            let kill = Command::new("kill").args(["-9", &pid.to_string()]).stderr(Stdio::null()).status();
            assert!(kill.is_ok(), "kill runs");
            seam::sleep(1_000_000);
        }
    }

    /// Kills the daemon and starts one that is armed with a fail point.
    pub fn arm(&mut self, point: &str) -> &mut Daemon {
        self.kill_daemon();
        self.daemon.insert(Daemon::start(self.dir.path(), Some(point)))
    }

    /// Kills the daemon and starts another, which recovers.
    pub fn restart(&mut self) {
        self.kill_daemon();
        self.daemon = Some(Daemon::start(self.dir.path(), None));
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
        self.kill_daemon();
        if in_shared_memory() {
            // A test that fails must not fill the machine's memory.
            let _ = ioverbs::store_release(&self.url());
        }
    }
}
