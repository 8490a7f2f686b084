//! Serving in the background: the daemon runs as a grandchild in a session of its own, so that whoever started it has
//! nobody to wait for and no terminal to lose.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use iov_types::{Error, Result};

/// What the daemon says once it listens.
pub(crate) const READY: &str = "iovd is ready";

/// Starts the daemon and waits until it is ready or has failed; the code is what it ended with.
pub(crate) fn run() -> Result<u8> {
    // What the program that starts it has open would stay open for as long as the daemon runs: the pipes of a launcher wait for that.
    iov_store::kept::close_inherited();
    let exe = std::env::current_exe().map_err(Error::from)?;
    let mut child = Command::new(exe)
        // What came by the environment comes so again.
        .args(std::env::args_os().skip(1).filter(|arg| arg != "--detach"))
        .arg("--ready")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| Error::unavailable(format!("the daemon cannot be started: {e}")))?;
    if let Some(stderr) = child.stderr.take() {
        for line in BufReader::new(stderr).lines().map_while(std::result::Result::ok) {
            if line == READY {
                return Ok(0);
            }
            // Whoever started us may have given up waiting.
            let _ = writeln!(std::io::stderr(), "{line}");
        }
    }
    // It has closed its standard error without being ready: it has ended, or is about to.
    let status = child.wait().map_err(Error::from)?;
    status.code().map(|code| code as u8).ok_or_else(|| {
        let signal = status.signal().unwrap_or_default();
        Error::unavailable(format!("the daemon was ended by signal {signal} while it started; is memory short?"))
    })
}
