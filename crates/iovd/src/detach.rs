//! Serving in the background: the daemon runs as a grandchild in a session of its own, so that whoever started it has
//! nobody to wait for and no terminal to lose.

use std::{
    io::{BufRead, BufReader, Write},
    os::unix::process::ExitStatusExt,
    process::{Command, Stdio},
};

use iov_types::{Error, Result};

use crate::Args;

/// What the daemon says once it listens.
pub(crate) const READY: &str = "iovd is ready";

/// Starts the daemon and waits until it is ready or has failed; the code is what it ended with.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let exe = std::env::current_exe().map_err(Error::from)?;
    let mut child = Command::new(exe)
        .arg("--dir")
        .arg(&args.dir)
        .arg("--ready")
        .args(["--idle", &args.idle.to_string(), "--lease-ms", &args.lease_ms.to_string()])
        .args(["--inline-bytes", &args.inline_bytes.to_string()])
        .args(args.storage.iter().flat_map(|storage| ["--storage".to_owned(), storage.to_string()]))
        .args(args.new_storage.iter().flat_map(|storage| ["--new-storage".to_owned(), storage.to_string()]))
        .args(args.trace.iter().flat_map(|path| [std::ffi::OsStr::new("--trace"), path.as_os_str()]))
        .arg("--shm")
        .arg(&args.shm)
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
