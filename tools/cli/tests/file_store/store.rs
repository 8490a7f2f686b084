//! A store of its own for each test, and the program as a person would call it.

use std::{
    ffi::OsStr,
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Output, Stdio},
    sync::OnceLock,
    time::{Duration, Instant},
};

/// The daemon beside the program. Cargo builds it only where somebody asks for it.
fn iovd() -> &'static Path {
    static IOVD: OnceLock<PathBuf> = OnceLock::new();
    IOVD.get_or_init(|| {
        let path = Path::new(env!("CARGO_BIN_EXE_iov")).with_file_name("iovd");
        if !path.exists() {
            let mut build = Command::new(env!("CARGO"));
            build.args(["build", "--quiet", "--package", "iovd", "--manifest-path"]);
            build.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/../../Cargo.toml"));
            build.args(profile(&path));
            assert!(build.status().unwrap().success(), "iovd could not be built");
        }
        path
    })
}

/// What Cargo is told to build something else as a program was: programs lie in a directory named after their profile.
pub(crate) fn profile(program: &Path) -> Vec<&OsStr> {
    let named = program.parent().and_then(Path::file_name).filter(|name| *name != "debug");
    named.map_or(Vec::new(), |name| vec![OsStr::new("--profile"), name])
}

pub(crate) struct Store {
    pub(crate) dir: tempfile::TempDir,
}

impl Store {
    pub(crate) fn new() -> Store {
        Store { dir: tempfile::tempdir().unwrap() }
    }

    /// One with a workspace `w`.
    pub(crate) fn with_workspace() -> Store {
        let store = Store::new();
        store.iov(&["ws", "create", "w"]).ok();
        store
    }

    pub(crate) fn url(&self) -> String {
        format!("file:{}", self.path("store").display())
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn file(&self, name: &str, bytes: &[u8]) -> String {
        std::fs::write(self.path(name), bytes).unwrap();
        self.path(name).to_str().unwrap().to_owned()
    }

    /// All files in a directory of the store, and below it.
    pub(crate) fn files(&self, name: &str) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut dirs = vec![self.path("store").join(name)];
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
                let path = entry.path();
                if path.is_dir() { dirs.push(path) } else { found.push(path) }
            }
        }
        found
    }

    pub(crate) fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_iov"));
        command.args(args).current_dir(self.dir.path());
        command.env("IOVERBS_URL", self.url()).env("IOVERBS_IOVD", iovd()).env("IOVD_IDLE_S", "20");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    pub(crate) fn start(&self, args: &[&str]) -> Child {
        self.command(args).spawn().unwrap()
    }

    pub(crate) fn iov(&self, args: &[&str]) -> Ran {
        self.with_stdin(b"", args)
    }

    pub(crate) fn with_stdin(&self, stdin: &[u8], args: &[&str]) -> Ran {
        let mut child = self.start(args);
        let mut pipe = child.stdin.take().unwrap();
        let stdin = stdin.to_vec();
        // A program that does not read its input to the end is no failure of the test.
        let writer = std::thread::spawn(move || drop(pipe.write_all(&stdin)));
        let output = child.wait_with_output().unwrap();
        writer.join().unwrap();
        Ran::new(output)
    }

    pub(crate) fn cat(&self, address: &str) -> Vec<u8> {
        self.iov(&["cat", address]).ok().out
    }

    /// Lets the daemon stand still.
    pub(crate) fn stop_daemon(&self) -> Stopped {
        Stopped::new(self.daemon())
    }

    /// The daemon's process.
    pub(crate) fn daemon(&self) -> u64 {
        self.iov(&["status", "--json"]).ok().json()["daemon"]["pid"].as_u64().unwrap()
    }

    pub(crate) fn count(&self) -> String {
        self.iov(&["find", "w", "iov.kind = \"collection\"", "--count"]).ok().text().trim().to_owned()
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        // The daemon goes before its directory does.
        self.iov(&["down"]);
    }
}

#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) code: Option<i32>,
    pub(crate) out: Vec<u8>,
    pub(crate) err: String,
}

impl Ran {
    pub(crate) fn new(output: Output) -> Ran {
        Ran {
            code: output.status.code(),
            out: output.stdout,
            err: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }

    #[track_caller]
    pub(crate) fn ok(self) -> Ran {
        assert_eq!(self.code, Some(0), "{}", self.err);
        self
    }

    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Ran {
        assert_eq!(self.code, Some(code), "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in:\n{}", self.err);
        }
        self
    }
}

/// A daemon that stands still until this is dropped.
pub(crate) struct Stopped(String);

impl Stopped {
    pub(crate) fn new(pid: u64) -> Stopped {
        kill("STOP", &pid.to_string());
        Stopped(pid.to_string())
    }
}

impl Drop for Stopped {
    fn drop(&mut self) {
        let _ = Command::new("kill").args(["-CONT", &self.0]).status();
    }
}

fn kill(name: &str, pid: &str) {
    assert!(Command::new("kill").args([&format!("-{name}"), pid]).status().unwrap().success());
}

/// Sends a signal to a child of this test.
pub(crate) fn signal(child: &Child, name: &str) {
    kill(name, &child.id().to_string());
}

/// Sends signals to a child of this test, as close together as can be.
pub(crate) fn signals(child: &Child, names: &[&str]) {
    let all: Vec<String> = names.iter().map(|name| format!("kill -{name} {}", child.id())).collect();
    // It may have ended by the first.
    let _ = Command::new("sh").arg("-c").arg(all.join("; ")).stderr(Stdio::null()).status().unwrap();
}

/// Waits for a child to end; if it does not it is killed, and the test fails.
#[track_caller]
pub(crate) fn finished(mut child: Child, seconds: u64) -> Ran {
    let end = Instant::now() + Duration::from_secs(seconds);
    while child.try_wait().unwrap().is_none() {
        if Instant::now() > end {
            child.kill().unwrap();
            panic!("it has not ended within {seconds} s");
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    Ran::new(child.wait_with_output().unwrap())
}

/// Asks until the answer is yes.
#[track_caller]
pub(crate) fn until(what: &str, mut yes: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(40);
    while !yes() {
        assert!(Instant::now() < end, "not within 40 s: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

pub(crate) fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
