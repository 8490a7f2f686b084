//! Stores in scratch directories, daemons with arguments of a test's own, and clients in processes of their own.

use std::{
    io::{BufRead, BufReader, Write},
    path::{Path, PathBuf},
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
    time::{Duration, Instant},
};

use ioverbs::{Collection, Controls, Lent, Metadata, Name, Result, Session, SessionAttr, Which, Workspace, open};

/// Cargo builds the daemon for these tests.
pub(crate) const IOVD: &str = env!("CARGO_BIN_EXE_iovd");

/// Long enough for a machine with much else to do.
const PATIENCE: Duration = Duration::from_secs(60);

/// Waits until something holds.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < end, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Ends a process by its id with a signal.
pub(crate) fn signal(pid: u32, name: &str) {
    assert!(Command::new("kill").args([format!("-{name}"), pid.to_string()]).status().unwrap().success());
}

/// Whether a process has ended with all its threads, or only its entry is left.
pub(crate) fn has_ended(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let threads = std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, |tasks| tasks.count());
    threads <= 1 && stat.rsplit_once(')').is_none_or(|(_, rest)| rest.trim_start().starts_with(['Z', 'X']))
}

/// A store of one test.
pub(crate) struct Store {
    dir: PathBuf,
    /// Sessions are granted nothing.
    pub(crate) nodirect: bool,
    _owned: tempfile::TempDir,
}

impl Store {
    pub(crate) fn new() -> Store {
        let owned = tempfile::tempdir().unwrap();
        Store { dir: owned.path().join("store"), nodirect: false, _owned: owned }
    }

    pub(crate) fn at(dir: PathBuf) -> Store {
        Store { dir, nodirect: false, _owned: tempfile::tempdir().unwrap() }
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.dir.display())
    }

    pub(crate) fn open(&self) -> Result<Session> {
        open(Some(&self.url()), SessionAttr { nodirect: self.nodirect, ..SessionAttr::default() })
    }

    pub(crate) fn session(&self) -> Session {
        self.open().unwrap()
    }

    /// A session in a new workspace.
    pub(crate) fn in_workspace(&self) -> Workspace {
        self.session().create_workspace(Name::new("w").unwrap(), Default::default()).unwrap()
    }

    /// Another session in that workspace.
    pub(crate) fn again(&self) -> Workspace {
        self.session().load_workspace(Which::parse("w").unwrap()).unwrap()
    }

    /// A number that the daemon tells of itself.
    pub(crate) fn status(&self, name: &str) -> Option<u64> {
        let status = ioverbs::daemon_status(&self.url()).unwrap()?;
        status.into_iter().find(|(n, _)| n == name).map(|(_, value)| value)
    }

    /// The daemon that serves it, which may be one that a session of this process has started meanwhile, and not the one
    /// that [`Store::daemon`] has: of two that are started at once the second says that it is ready, too, and ends.
    pub(crate) fn serving(&self) -> u32 {
        let mut pid = None;
        wait_until("a daemon that serves", || {
            pid = self.status("pid");
            pid.is_some()
        });
        pid.unwrap() as u32
    }

    /// Tells its daemon to end, and waits until it has.
    pub(crate) fn shut_down(&self) {
        let Some(pid) = self.status("pid") else { return };
        ioverbs::daemon_shutdown(&self.url()).unwrap();
        wait_until("the daemon's end", || has_ended(pid as u32));
    }

    /// Kills the daemon that serves it.
    pub(crate) fn kill(&self) {
        let pid = self.status("pid").expect("a daemon runs") as u32;
        signal(pid, "KILL");
        wait_until("the daemon's end", || has_ended(pid));
    }

    /// Starts its daemon with arguments and variables, and waits until it serves.
    pub(crate) fn daemon(&self, args: &[&str], variables: &[(&str, &str)]) -> Daemon {
        std::fs::create_dir_all(&self.dir).unwrap();
        let mut child = Command::new(IOVD)
            .args(["--dir", self.dir.to_str().unwrap(), "--ready"])
            .args(if args.contains(&"--idle") { &[][..] } else { &["--idle", "0"] })
            .args(args)
            .envs(variables.iter().copied())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
        assert_eq!(line.trim(), "iovd is ready");
        Daemon(child)
    }

    /// What lies in a folder of the target.
    pub(crate) fn files(&self, folder: &str) -> Vec<String> {
        let mut found = Vec::new();
        let mut todo = vec![self.dir.join(folder)];
        while let Some(dir) = todo.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                match entry.file_type().unwrap().is_dir() {
                    true => todo.push(entry.path()),
                    false => found.push(entry.path().display().to_string()),
                }
            }
        }
        found
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        let _ = ioverbs::daemon_shutdown(&self.url());
    }
}

/// A daemon that this process has started.
pub(crate) struct Daemon(Child);

impl Daemon {
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A client in a process of its own: this program once more, doing one of [`crate::peers::PEERS`].
pub(crate) struct Peer {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

/// Says which part a child plays.
const PART: &str = "IOV_TEST_PART";

impl Peer {
    pub(crate) fn start(part: &str, store: &Store) -> Peer {
        Peer::start_with(part, store, &[])
    }

    pub(crate) fn start_with(part: &str, store: &Store, variables: &[(&str, &str)]) -> Peer {
        Peer::run(Command::new(std::env::current_exe().unwrap()), part, store, variables)
    }

    /// As another user; `program` is what [`for_everybody`] has made of this program.
    pub(crate) fn start_as(uid: u32, program: &Path, part: &str, store: &Store, variables: &[(&str, &str)]) -> Peer {
        let mut command = Command::new("setpriv");
        let id = uid.to_string();
        command.args(["--reuid", &id, "--regid", &id, "--clear-groups"]).arg(program);
        Peer::run(command, part, store, variables)
    }

    pub(crate) fn run(mut command: Command, part: &str, store: &Store, variables: &[(&str, &str)]) -> Peer {
        let mut child = command
            .envs(variables.iter().copied())
            .args(["--exact", "kit::a_child_plays_its_part", "--nocapture", "--test-threads=1"])
            .env(PART, part)
            .env("IOV_TEST_STORE", store.dir())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (input, output) = (child.stdin.take().unwrap(), BufReader::new(child.stdout.take().unwrap()));
        Peer { child, input, output }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits for a line that it says; the words behind the mark.
    pub(crate) fn hear(&mut self) -> String {
        loop {
            let mut line = String::new();
            assert!(self.output.read_line(&mut line).unwrap() > 0, "the child has ended");
            if let Some((_, words)) = line.split_once("says: ") {
                return words.trim().to_owned();
            }
        }
    }

    /// Lets it go on.
    pub(crate) fn tell(&mut self, words: &str) {
        writeln!(self.input, "{words}").unwrap();
    }

    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A copy of a program that every user can reach and run: `program` in a directory.
pub(crate) fn for_everybody(program: impl AsRef<Path>) -> tempfile::TempDir {
    use std::os::unix::fs::PermissionsExt;
    let open = || std::fs::Permissions::from_mode(0o755);
    let dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(dir.path(), open()).unwrap();
    // By another process: a child that a test beside this one forks meanwhile would hold a descriptor of this one for writing,
    // and then the program cannot be run (ETXTBSY).
    let copied = Command::new("cp").arg(program.as_ref()).arg(dir.path().join("program")).status();
    assert!(copied.unwrap().success());
    std::fs::set_permissions(dir.path().join("program"), open()).unwrap();
    dir
}

/// In a child: says something to the parent.
pub(crate) fn say(words: &str) {
    println!("says: {words}");
}

/// In a child: waits for the parent's word.
pub(crate) fn listen() -> String {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    line.trim().to_owned()
}

#[test]
fn a_child_plays_its_part() {
    let Ok(part) = std::env::var(PART) else { return };
    let store = PathBuf::from(std::env::var_os("IOV_TEST_STORE").unwrap());
    let (_, play) = crate::peers::PEERS.iter().find(|(name, _)| *name == part).unwrap();
    play(&format!("file:{}", store.display()));
}

pub(crate) fn controls(text: &str) -> Controls {
    let mut controls = Controls::default();
    ioverbs::text::parse(&mut controls, text).unwrap();
    controls
}

pub(crate) fn create(ws: &Workspace, name: &str, asked: &str) -> Collection {
    ioverbs::create(ws, None, Some(name), Metadata::new(), controls(asked)).unwrap()
}

pub(crate) fn lookup(ws: &Workspace, name: &str) -> Collection {
    ioverbs::lookup(ws, None, name, Controls::default()).unwrap()
}

/// All bytes, up to 16 MiB.
pub(crate) fn read(c: &Collection) -> Vec<u8> {
    let mut buf = vec![0; 16 << 20];
    let n = ioverbs::read_at(c, 0, &mut buf).unwrap();
    buf.truncate(n);
    buf
}

/// Runs a batch; the first error among its operations.
pub(crate) fn batch(s: &Session, attr: ioverbs::BatchAttr, ops: Vec<Lent<'_>>) -> Result<()> {
    let status = ioverbs::run_batch(s, attr, ops)?;
    status.into_iter().try_for_each(|status| status.result())
}
