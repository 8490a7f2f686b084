//! Whole command lines, in this process, on mem: stores; and the small things they are made of.

mod addresses;
mod archives;
mod errors;
mod files;
mod groups;
mod help;
mod holes;
mod listing;
mod metadata;
mod modes;
mod names;
mod promises;
mod quantities;
mod segments;
mod values;
mod workspaces;

use std::{
    ffi::OsString,
    io::{Cursor, Read, Write},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use crate::{app, interrupt::Interrupt, output::Out};

/// What a command did.
#[derive(Debug)]
struct Ran {
    code: u8,
    out: Vec<u8>,
    err: String,
}

impl Ran {
    fn text(&self) -> String {
        String::from_utf8(self.out.clone()).unwrap()
    }

    fn lines(&self) -> Vec<String> {
        self.text().lines().map(str::to_owned).collect()
    }

    fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.out).unwrap_or_else(|e| panic!("{e} in {self:?}"))
    }

    /// Fails the test unless the command did all of its work.
    #[track_caller]
    fn ok(self) -> Ran {
        assert_eq!(self.code, 0, "{}", self.err);
        self
    }

    /// Fails the test unless the command failed like this, and said these words.
    #[track_caller]
    fn fails(self, code: u8, words: &[&str]) -> Ran {
        assert_eq!(self.code, code, "{self:?}");
        for word in words {
            assert!(self.err.contains(word), "no {word:?} in:\n{}", self.err);
        }
        self
    }
}

#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Vec<u8>>>);

impl Write for Shared {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// A store of its own, and a folder of its own.
struct World {
    url: String,
    dir: tempfile::TempDir,
}

impl World {
    fn new() -> World {
        static STORES: AtomicUsize = AtomicUsize::new(0);
        let n = STORES.fetch_add(1, Ordering::Relaxed);
        World { url: format!("mem:test-{n}"), dir: tempfile::tempdir().unwrap() }
    }

    /// One with a workspace `w`.
    fn with_workspace() -> World {
        let world = World::new();
        world.iov(&["ws", "create", "w"]).ok();
        world
    }

    fn run(&self, args: Vec<OsString>, stdin: Box<dyn Read + Send>, stop: Interrupt) -> Ran {
        let mut all: Vec<OsString> = vec!["iov".into(), "--store".into(), self.url.clone().into()];
        all.extend(args);
        let (out, err) = (Shared::default(), Shared::default());
        let streams = (Out::new(Box::new(out.clone()), false), Out::new(Box::new(err.clone()), false));
        let code = app::run(all, streams.0, streams.1, stdin, |_| stop);
        let err = String::from_utf8(err.0.lock().unwrap().clone()).unwrap();
        // Suggested commands name the store that was named here, which differs from test to test.
        let err = err.replace(&format!("-S {} ", self.url), "");
        let out = out.0.lock().unwrap().clone();
        Ran { code, out, err }
    }

    fn iov(&self, args: &[&str]) -> Ran {
        self.with_stdin(b"", args)
    }

    fn with_stdin(&self, stdin: &[u8], args: &[&str]) -> Ran {
        let args = args.iter().map(OsString::from).collect();
        self.run(args, Box::new(Cursor::new(stdin.to_vec())), Interrupt::default())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes a local file and tells its path as an argument.
    fn file(&self, name: &str, bytes: &[u8]) -> String {
        let path = self.path(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, bytes).unwrap();
        arg(&path)
    }

    /// How many files there are that are not complete.
    fn parts(&self) -> usize {
        let names = std::fs::read_dir(&self.dir).unwrap().map(|entry| entry.unwrap().file_name());
        names.filter(|name| name.to_str().is_some_and(|name| name.ends_with(".part"))).count()
    }

    /// What `iov cat` shows.
    fn cat(&self, address: &str) -> Vec<u8> {
        self.iov(&["cat", address]).ok().out
    }

    /// How many collections the workspace `w` holds, those without a name included.
    fn count(&self) -> String {
        self.iov(&["find", "w", "iov.kind = \"collection\"", "--count"]).ok().text().trim().to_owned()
    }
}

fn arg(path: &Path) -> String {
    path.to_str().unwrap().to_owned()
}

/// Bytes that differ from place to place.
fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
}
