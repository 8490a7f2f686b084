//! Starts a store's daemon on demand.

use std::{
    io::Read,
    os::{
        fd::{AsRawFd, BorrowedFd},
        unix::process::CommandExt,
    },
    path::PathBuf,
    process::{Command, Stdio},
};

use iov_store::seam;
use iov_types::{Clause, Error, Result};

use crate::socket;

/// How to start a daemon.
#[derive(Clone, Debug)]
pub struct Starter {
    /// The program.
    pub program: PathBuf,
    /// More arguments, behind the directory.
    pub args: Vec<String>,
    /// Somebody has asked for it, and with it for where it runs. Else it is started for all who use the store, by whichever of them comes first.
    pub asked_for: bool,
}

impl Starter {
    /// Finds `iovd`: `$IOVERBS_IOVD`, beside the running program or the library, or on the path.
    pub fn find(beside: Option<PathBuf>) -> Result<Starter> {
        let named = std::env::var_os("IOVERBS_IOVD").map(PathBuf::from);
        if let Some(program) = named {
            if !program.is_file() {
                return Err(Error::not_found(format!("IOVERBS_IOVD names {}, which is no file", program.display())));
            }
            return Ok(Starter { program, args: Vec::new(), asked_for: false });
        }
        let exe = std::env::current_exe().ok().and_then(|p| p.parent().map(PathBuf::from));
        let near = [exe.clone(), exe.as_ref().and_then(|p| p.parent().map(PathBuf::from)), beside.clone()];
        let sibling_bin = beside.and_then(|p| p.parent().map(|p| p.join("bin")));
        let on_path = std::env::var_os("PATH").unwrap_or_default();
        near.into_iter()
            .flatten()
            .chain(sibling_bin)
            .chain(std::env::split_paths(&on_path).collect::<Vec<_>>())
            .map(|dir| dir.join("iovd"))
            .find(|p| p.is_file())
            .map(|program| Starter { program, args: Vec::new(), asked_for: false })
            .ok_or_else(|| {
                Error::not_found(
                    "the daemon iovd was found neither beside this program nor on the path: install it, or name it in IOVERBS_IOVD",
                )
            })
    }

    /// Starts the daemon in a session of its own and waits until it listens, or until it has found another that does; not
    /// beyond a time of the monotonic clock, after which it goes on by itself.
    pub fn start(&self, dir: BorrowedFd<'_>, until_ns: i64) -> Result<()> {
        let dir =
            rustix::io::fcntl_dupfd_cloexec(dir, 3).map_err(|e| Error::exhausted(format!("no descriptor: {e}")))?;
        let number = dir.as_raw_fd();
        // The child opens the directory by our descriptor: no path, no inherited descriptor.
        let mut command = Command::new(&self.program);
        command
            .arg("--dir")
            .arg(format!("/proc/{}/fd/{number}", std::process::id()))
            .arg("--detach")
            .args(&self.args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .current_dir("/")
            .process_group(0);
        let spawned = match self.asked_for {
            true => seam::unbound(|| command.spawn()),
            false => seam::for_others(|| command.spawn()),
        };
        let mut child = spawned
            .map_err(|e| Error::unavailable(format!("the daemon {} cannot be started: {e}", self.program.display())))?;
        let mut words = String::new();
        if let Some(mut stderr) = child.stderr.take() {
            // The detached daemon has closed this pipe by the time the one we started ends.
            let mut piece = [0; 1024];
            loop {
                let left = until_ns.saturating_sub(seam::monotonic_ns());
                if left <= 0 {
                    // It needs our descriptor of the directory until it has its own, and somebody to wait for it. Without
                    // a thread for that it may have to be started once more.
                    let _ = seam::spawn("iov-start", move || drop((child.wait(), dir)));
                    return Err(
                        Error::timeout("the store's daemon is still starting: try again").with_clause(Clause::O8)
                    );
                }
                if !socket::wait_readable(&stderr, left.min(1_000_000_000)) {
                    continue;
                }
                match stderr.read(&mut piece) {
                    Ok(0) => break,
                    Ok(n) => words.push_str(&String::from_utf8_lossy(&piece[..n])),
                    Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(_) => break,
                }
            }
        }
        // A program that ignores SIGCHLD has nobody to wait for: connecting will tell.
        match child.wait() {
            Ok(status) if !status.success() => Err(failure(&words, status)),
            _ => Ok(()),
        }
    }

    /// Gives back the shared memory of a store that no daemon serves; how many bytes that were.
    pub fn release(&self, dir: BorrowedFd<'_>) -> Result<u64> {
        let dir =
            rustix::io::fcntl_dupfd_cloexec(dir, 3).map_err(|e| Error::exhausted(format!("no descriptor: {e}")))?;
        let place = format!("/proc/{}/fd/{}", std::process::id(), dir.as_raw_fd());
        let mut command = Command::new(&self.program);
        command.args(["--dir", &place, "--release"]).stdin(Stdio::null()).current_dir("/");
        let out = command
            .output()
            .map_err(|e| Error::unavailable(format!("the daemon {} cannot be started: {e}", self.program.display())))?;
        if !out.status.success() {
            return Err(failure(&String::from_utf8_lossy(&out.stderr), out.status));
        }
        let text = String::from_utf8_lossy(&out.stdout);
        text.trim().parse().map_err(|_| Error::internal(format!("the daemon said {text:?}, and not how much it freed")))
    }
}

/// Why a daemon has ended.
fn failure(words: &str, status: std::process::ExitStatus) -> Error {
    let words = words.trim();
    let words = words.strip_prefix("iovd: ").unwrap_or(words);
    match status.code() {
        // The codes of sysexits that the daemon uses.
        Some(77) if words.contains("ead-only") => Error::denied(words),
        Some(77) => Error::denied(words).with_clause(Clause::A2),
        Some(75) => Error::busy(words),
        Some(76) => Error::version(words),
        Some(65) => Error::corrupt(words),
        Some(64) => Error::invalid(words),
        Some(66) => Error::not_found(words),
        Some(28 | 73) => Error::exhausted(words),
        // A setting in the environment; what follows the first paragraph is advice for a command line.
        Some(2) => {
            let first = words.split("\n\n").next().unwrap_or(words);
            let first = first.strip_prefix("error: ").unwrap_or(first);
            Error::invalid(format!(
                "the daemon does not take a setting (of the command, or IOVD_… in the environment): {first}"
            ))
        }
        _ => Error::unavailable(format!("the daemon could not start: {words} ({status})"))
            .with_next("see to what it says; iovd.log in the store's directory may say more"),
    }
}
