//! A worker process, from the side of the test.

use std::{
    io::{BufRead, BufReader, Write},
    process::{Child, ChildStdin, Command, Stdio},
    sync::mpsc::{Receiver, channel},
    time::Duration,
};

use ioverbs::seam;

use crate::{WORKSPACE, store};

/// How long an answer may take. The library itself gives up after 60 s.
const PATIENCE: Duration = Duration::from_secs(180);

/// A process that obeys lines of text; killed when it is dropped.
pub struct Worker {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Worker {
    pub(crate) fn start(url: &str, flags: &[&str]) -> Worker {
        let mut command = Command::new(store::worker_program());
        command.arg(url).arg(WORKSPACE).args(flags).env("IOVERBS_IOVD", store::iovd()).env("IOVD_IDLE_S", "20");
        // The fail point of a daemon is not that of the next one, which this process may start.
        command.env_remove("IOV_FAIL_POINT").stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().expect("the worker starts");
        let (stdin, stdout) = (child.stdin.take().expect("a pipe"), child.stdout.take().expect("a pipe"));
        let (to, lines) = channel();
        let read = move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if to.send(line).is_err() {
                    return;
                }
            }
        };
        seam::spawn("answers", read).expect("a thread");
        let worker = Worker { child, stdin, lines };
        assert_eq!(worker.hear().as_deref(), Some("ok"), "the worker opens the store");
        worker
    }

    /// Gives an order without waiting for the answer. A worker that has died does not hear it.
    pub fn tell(&mut self, line: &str) {
        let _ = writeln!(self.stdin, "{line}").and_then(|()| self.stdin.flush());
    }

    /// The next answer; `None`: it has died.
    pub fn hear(&self) -> Option<String> {
        match self.lines.recv_timeout(PATIENCE) {
            Ok(line) => Some(line),
            Err(std::sync::mpsc::RecvTimeoutError::Disconnected) => None,
            Err(std::sync::mpsc::RecvTimeoutError::Timeout) => panic!("a worker is stuck"),
        }
    }

    /// Gives an order and waits for the answer.
    pub fn ask(&mut self, line: &str) -> String {
        self.tell(line);
        self.hear().unwrap_or_else(|| panic!("the worker died of {line:?}"))
    }

    /// The same for an order that must succeed; what follows `ok`.
    pub fn ok(&mut self, line: &str) -> String {
        let answer = self.ask(line);
        result(&answer).unwrap_or_else(|| panic!("{line:?} was answered by {answer:?}")).to_owned()
    }

    /// The same for what was told before.
    pub fn heard_ok(&self) -> String {
        let answer = self.hear().expect("the worker lives");
        result(&answer).unwrap_or_else(|| panic!("answered by {answer:?}")).to_owned()
    }

    /// Kills it, by SIGKILL.
    pub fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// What it has said and nobody has heard, after its end.
    pub fn last_words(&mut self) -> Vec<String> {
        self.kill();
        std::iter::from_fn(|| self.hear()).collect()
    }
}

/// What follows `ok` in an answer.
fn result(answer: &str) -> Option<&str> {
    answer.strip_prefix("ok").map(str::trim_start)
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.kill();
    }
}
