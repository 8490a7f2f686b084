//! What the litmus tests share: levels, collections, verdicts.

use iov_litmus::{Report, Store, Worker, is_striped};

pub(crate) const LEVELS: [&str; 4] = ["sequential", "commit", "session", "eventual"];

pub(crate) const LITMUS: Report = Report {
    file: "litmus.md",
    head: HEAD,
    keys: &["test"],
    columns: &["sequential", "commit", "session", "eventual"],
};

const HEAD: &str = "\
# Litmus tests on `file:`

Written by the tests of `testing/litmus` (`IOV_WRITE_DOCS=1 cargo test -p iov-litmus`), which also fail when their
verdicts and this page differ. The programs are those of section 3 of the [clauses](clauses.md), run by processes with
blocking calls, with and without direct access. Every level is granted as it is asked for.

- *forbidden*: the level forbids the outcome, and it was never seen in so many rounds.
- *holds*: what the test demands was so in every round.
- *allowed*: the level allows the weak outcome. On one machine with one target the store shows every write at once, which
  is stronger than these levels demand.";

/// The rows of the document.
pub(crate) const ROWS: &[&str] = &[
    "T1 read your writes",
    "T2 monotonic reads",
    "T3 store buffering",
    "T4 message passing, raw",
    "T5 real time",
    "T6 commit",
    "T7 close, open",
    "T8 convergence",
    "T9 false sharing",
    "T10 append",
    "T11 seal race",
    "T13 names",
    "T14 search",
    "T15 rollback",
    "T16 units",
    "T18 size",
    "T20 in a batch",
    "T21 reuse",
    "T22 rename over, open",
    "T23 fork",
    "T24 publication",
];

/// Two processes, each with direct access or without.
pub(crate) const PAIRS: [[&[&str]; 2]; 3] = [[&[], &[]], [&["nodirect"], &[]], [&[], &["nodirect"]]];

/// A collection of zeros at a level, made by a worker that has closed it since.
pub(crate) fn collection(w: &mut Worker, name: &str, level: &str, more: &str, size: usize) {
    w.ok(&format!("create made {name} consistency={level} {more}"));
    assert_eq!(w.ok("effective made"), level, "the level is granted as it was asked for");
    if size > 0 {
        w.ok(&format!("write made 0 {size} 0"));
    }
    w.ok("close made");
}

/// Two workers on a store, with handles A and B of the same two collections.
pub(crate) fn two(store: &Store, flags: [&[&str]; 2], names: [&str; 2]) -> [Worker; 2] {
    flags.map(|flags| {
        let mut w = store.worker_with(flags);
        w.ok(&format!("lookup A {}", names[0]));
        w.ok(&format!("lookup B {}", names[1]));
        w
    })
}

/// The one byte of which what was read consists; nothing there, and a hole, are 0.
pub(crate) fn value(answer: &str) -> u8 {
    let runs = answer.trim_start_matches("ok").trim();
    let (len, runs) = runs.split_once(':').unwrap_or_else(|| panic!("{answer:?} is nothing read"));
    if len == "0" {
        return 0;
    }
    if is_striped() && runs.contains(',') {
        // Where a chunk ends within it, a read that races a write may find some of it (C5): none of it counts, then, as each byte
        // by itself would.
        let bytes = runs.split(',').map(|run| run.split('*').next().and_then(|b| b.parse::<u8>().ok()).expect("a run"));
        return bytes.min().unwrap_or(0);
    }
    let (byte, count) = runs.split_once('*').unwrap_or_else(|| panic!("{answer:?} is no run"));
    assert_eq!(count, len, "one byte throughout: {answer}");
    byte.parse().expect("a byte")
}

/// How often the weak outcome was seen.
#[derive(Default, Clone, Copy)]
pub(crate) struct Seen {
    pub(crate) rounds: u64,
    pub(crate) weak: u64,
}

impl Seen {
    pub(crate) fn note(&mut self, weak: bool) {
        self.rounds += 1;
        self.weak += u64::from(weak);
    }

    /// The verdict where the level forbids the outcome, or allows it.
    pub(crate) fn verdict(self, forbidden: bool) -> String {
        let Seen { rounds, weak } = self;
        match (forbidden, weak) {
            (true, 0) => format!("forbidden: never in {rounds}"),
            (true, _) => panic!("a forbidden outcome was seen {weak} times in {rounds} rounds"),
            (false, 0) => format!("allowed: stronger, never in {rounds}"),
            (false, _) => format!("allowed: {weak} of {rounds}"),
        }
    }
}

/// Runs a test at each level, and tells its row. `forbidden` says at how many levels, from the strongest on, the weak
/// outcome is forbidden.
pub(crate) fn at_each_level(row: &str, forbidden: usize, run: impl Fn(&str) -> Seen) {
    let verdicts: Vec<(&str, String)> =
        LEVELS.iter().enumerate().map(|(n, level)| (*level, run(level).verdict(n < forbidden))).collect();
    LITMUS.tell(&[row], &verdicts);
}
