//! Who is asked for nothing comes back to its store by itself when the daemon there has been followed by another one, which gives no locks until
//! those whom the earlier one served are there, or their leases are over (O11).

use std::{
    sync::mpsc::{RecvTimeoutError, Sender, channel},
    time::Duration,
};

use ioverbs::{Op, Workspace, seam};

/// How often it is looked.
const EVERY: Duration = Duration::from_millis(500);
/// How long the daemon may take to say that it is there, in nanoseconds.
const PATIENCE_NS: i64 = 5_000_000_000;

/// Nobody looks any more once this has gone.
pub struct Staying(#[expect(dead_code, reason = "its end is what it says")] Sender<()>);

/// Looks from now on whether the daemon of a workspace's store is the one that was there before. `None`: that is not known here, or nobody can be had to look.
pub fn stay(ws: &Workspace) -> Option<Staying> {
    let (sender, ended) = channel();
    let ws = ws.clone();
    let mut known = ws.session().changes().is_some();
    let looks = move || {
        while ended.recv_timeout(EVERY) == Err(RecvTimeoutError::Timeout) {
            let there = ws.session().changes().is_some();
            // One that was told to end, and has not been started again, is not started by this.
            if known && !there && matches!(ioverbs::daemon_status_within(ws.session().url(), PATIENCE_NS), Ok(Some(_)))
            {
                // What it says does not matter: that it is asked brings the session back.
                let asked = ioverbs::run(ws.session(), Op::WorkspaceStat { w: ws.clone() });
                // It may be one of a release that says nothing of this.
                known = asked.is_err();
            }
            known |= ws.session().changes().is_some();
        }
    };
    seam::spawn("iov-stay", looks).ok().map(|_| Staying(sender))
}
