//! The daemon dies at a fail point while a worker does something.

use iov_litmus::{Report, Store, Worker, is_striped};
use iov_media::fail::POINTS;

pub(crate) const CRASHES: Report =
    Report { file: "crashes.md", head: HEAD, keys: &["operation", "fail point"], columns: &["found afterwards"] };

const HEAD: &str = "\
# Crashes on `file:`

Written by the tests of `testing/litmus` (`IOV_WRITE_DOCS=1 cargo test -p iov-litmus`), which also fail when their
verdicts and this page differ. The daemon kills itself at a fail point (`IOV_FAIL_POINT=NAME:N:kill`) while a process
does the operation; the store is opened again, and everything that had been acknowledged is there.

- *old*: nothing of the operation is there. *new*: all of it is. In brackets what the program had been told: *done*, where
  the library had repeated the operation at the next daemon by itself, or *unknown*.
- *none lost*: what was acknowledged is there, what was in flight is there as a whole or not at all, nothing else is.
- A fail point is told as it is passed for the first, second … time by one operation.";

/// Operations of other files than `operations.rs`.
pub(crate) const OTHERS: &[&str] = &[
    "appends",
    "creates, writes and deletes",
    "publication by close",
    "publication by commit",
    "rollback batch",
    "rollback batches",
    "writes",
];

/// What was found after a death, with the answer that the program had got.
pub(crate) type Verdict = (Found, String);

/// What was found after a death.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Found {
    Old,
    New,
}

/// One death: at which point, the n-th time, and the number of the run, which makes names new.
pub(crate) struct Death {
    pub(crate) point: &'static str,
    pub(crate) n: u32,
    pub(crate) k: u32,
}

/// Lets the daemon die at each of the points that begin so, up to `times` times of passing, and tells what was found.
///
/// `act` prepares, then calls [`Store::arm`] and does the operation. It returns what it found after the store was opened
/// again, or `None` if the operation went through without passing the point so often.
pub(crate) fn at_each_point(
    operation: &str,
    points: &[&str],
    times: u32,
    mut act: impl FnMut(&mut Store, &Death) -> Option<Verdict>,
) -> u64 {
    let mut store = Store::new();
    let mut deaths = 0;
    for point in POINTS.iter().filter(|p| points.iter().any(|start| p.starts_with(start))) {
        for n in 1..=times {
            deaths += 1;
            let death = Death { point, n, k: deaths };
            let Some((found, answer)) = act(&mut store, &death) else {
                // What is cut into chunks is not large anywhere.
                assert!(n > 1 || is_striped(), "{operation} does not pass {point}");
                // It is still armed.
                store.restart();
                break;
            };
            let row = if n == 1 { format!("`{point}`") } else { format!("`{point}`, {n}.") };
            let verdict = match (found, answer.contains("err ")) {
                (Found::Old, true) => "old (unknown)",
                (Found::New, true) => "new (unknown)",
                (Found::New, false) => "new (done)",
                (Found::Old, false) => panic!("{operation}, {point}: acknowledged, and gone"),
            };
            CRASHES.tell(&[operation, &row], &[("found afterwards", verdict.to_owned())]);
        }
    }
    u64::from(deaths)
}

/// Lets a worker, started after the daemon was armed, give an order, and waits for the end: the answer, or `None` if the
/// daemon survived.
pub(crate) fn die_of(store: &mut Store, w: &mut Worker, order: &str) -> Option<String> {
    let answer = w.ask(order);
    // What is removed at another daemon goes behind the answer.
    if !answer.contains("err ") && !store.daemon().dies_within(500_000_000) {
        return None;
    }
    // The end of its connections is seen a little before its own.
    assert!(store.daemon().dies(), "{order:?} without a death: {answer}");
    Some(answer)
}

impl Death {
    /// Arms the daemon with it.
    pub(crate) fn arm(&self, store: &mut Store) {
        store.arm(&format!("{}:{}:kill", self.point, self.n));
    }
}
