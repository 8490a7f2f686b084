//! What clients in processes of their own do.

use ioverbs::{SessionAttr, Which, open};

use crate::kit::{create, listen, lookup, say};

type Part = fn(&str);

/// Every part, by name.
pub(crate) const PEERS: &[(&str, Part)] = &[
    ("stages and waits", stages_and_waits),
    ("holds and writes", holds_and_writes),
    ("locks and writes", locks_and_writes),
    ("leaves unsealed", unsealed),
    ("tries to open", tries_to_open),
    ("fills the disk with bytes", crate::full::with_bytes),
    ("fills the disk with records", crate::full::with_records),
    ("stages too much", crate::full::with_stages),
    ("restarts on a full disk: atomicity=unit", |url| crate::full_start::restarts(url, "atomicity=unit")),
    ("restarts on a full disk: atomicity=unit,persistence=durable", |url| {
        crate::full_start::restarts(url, "atomicity=unit,persistence=durable")
    }),
    ("is killed on a full disk: atomicity=unit", |url| crate::full_start::is_killed(url, "atomicity=unit")),
    ("is killed on a full disk: atomicity=unit,persistence=durable", |url| {
        crate::full_start::is_killed(url, "atomicity=unit,persistence=durable")
    }),
    ("restarts on a full disk with bytes elsewhere", crate::full_start::restarts_elsewhere),
    ("starts otherwise on a full disk", crate::full_start::starts_otherwise),
    ("begins checksums on a full disk", crate::full_start::begins_checksums),
    ("changes both in batches", crate::members::changes_both),
    ("writes round after round", crate::near::writes_rounds),
    ("binds what it opens", crate::lifetimes::binds),
    ("holds over the network", crate::network::holds_over_the_network),
    ("has few descriptors", crate::limits::with_few_descriptors),
    ("limits itself and starts the daemon", crate::limits::starts_a_daemon),
    ("has no memory", crate::limits::without_memory),
    ("stops inside its copy", crate::shared::stops_inside_its_copy),
    ("owns a store", crate::users::owns),
    ("intrudes", crate::users::intrudes),
    ("keeps a canary", crate::users::keeps_a_canary),
    ("searches for the canary", crate::users::searches),
    ("searches in memory of his own", crate::users::searches_his_own),
];

fn workspace(url: &str) -> ioverbs::Workspace {
    let session = open(Some(url), SessionAttr::default()).unwrap();
    session.load_workspace(Which::parse("w").unwrap()).unwrap()
}

/// Writes into what shows only at a commit, and never commits.
fn stages_and_waits(url: &str) {
    let c = lookup(&workspace(url), "published");
    ioverbs::write_at(&c, 0, b"new").unwrap();
    say("staged");
    listen();
}

/// Holds a collection exclusively, and writes into it each time it is told to.
fn holds_and_writes(url: &str) {
    let ws = workspace(url);
    let c = ioverbs::lookup(&ws, None, "held", crate::kit::controls("concurrency=exclusive")).unwrap();
    writes_when_told(&c);
}

/// Locks a collection, and writes into it each time it is told to.
fn locks_and_writes(url: &str) {
    let c = lookup(&workspace(url), "locked");
    crate::restart::try_lock(&c).unwrap();
    writes_when_told(&c);
}

fn writes_when_told(c: &ioverbs::Collection) {
    loop {
        match ioverbs::write_at(c, 0, b"the holder's") {
            Ok(()) => say("written"),
            Err(e) => say(&format!("{:?} {:?}", e.kind(), e.clause())),
        }
        match listen().as_str() {
            "write" => {}
            "close" => {
                match ioverbs::close(c) {
                    Ok(()) => say("closed"),
                    Err(e) => say(&format!("{:?}", e.kind())),
                }
                return;
            }
            _ => return,
        }
    }
}

/// Says how opening the store ends.
fn tries_to_open(url: &str) {
    match open(Some(url), SessionAttr::default()) {
        Ok(_) => say("opened"),
        Err(e) => say(&format!("{:?} {:?} {}", e.kind(), e.clause(), e.detail())),
    }
}

/// Writes into an immutable collection and never seals it.
fn unsealed(url: &str) {
    let c = create(&workspace(url), "unsealed", "mutability=immutable");
    ioverbs::write_at(&c, 0, b"half").unwrap();
    say("written");
    listen();
}
