//! Arranges the rounds: a process that writes, another that reads.

use std::path::Path;

use anyhow::{Context, Result};

use super::{SCHEDULE, worker::IN_MEMORY};
use crate::{
    report::{Case, Ceiling},
    worker::{Worker, step},
};

/// Name of the case, step of the worker, name of the ceiling.
pub(crate) const CASES: [(&str, &str, &str); 5] = [
    ("file.write.first.1MiB", "first", "pwrite"),
    ("file.write.1MiB", "over", "pwrite"),
    ("file.write.4KiB", "over-4KiB", "pwrite"),
    ("file.read.1MiB", "read", "pread"),
    ("file.read.4KiB", "read-4KiB", "pread"),
];

/// The same on a disk, with `persistence=durable`: the write ends with the close that makes it so.
pub(crate) const DURABLE_CASES: [(&str, &str, &str); 2] =
    [("file.write.durable.1MiB", "durable", "pwrite and fdatasync"), ("file.read.durable.1MiB", "read", "pread")];

/// The same in shared memory; nothing of it goes through a file.
pub(crate) const SHARED_CASES: [(&str, &str, &str); 6] = [
    ("shm.write.first.1MiB", "first", "memcpy to shared memory"),
    ("shm.write.1MiB", "over", "memcpy to shared memory"),
    ("shm.write.4KiB", "over-4KiB", "memcpy to shared memory"),
    ("shm.read.1MiB", "read", "memcpy from shared memory"),
    ("shm.read.4KiB", "read-4KiB", "memcpy from shared memory"),
    ("shm.view", VIEW, ""),
];

/// The same of collections over four targets in shared memory, in chunks of 1 MiB.
pub(crate) const STRIPED_CASES: [(&str, &str, &str); 4] = [
    ("shm.striped.write.first.1MiB", "first", "memcpy to shared memory"),
    ("shm.striped.write.1MiB", "over", "memcpy to shared memory"),
    ("shm.striped.read.1MiB", "read", "memcpy from shared memory"),
    ("shm.striped.write.4KiB", "over-4KiB", "memcpy to shared memory"),
];

/// The same in the shared memory of a daemon of this machine that has joined the store.
pub(crate) const NEAR_CASES: [(&str, &str, &str); 4] = [
    ("shm.near.write.first.1MiB", "first", "memcpy to shared memory"),
    ("shm.near.write.1MiB", "over", "memcpy to shared memory"),
    ("shm.near.read.1MiB", "read", "memcpy from shared memory"),
    ("shm.near.write.4KiB", "over-4KiB", "memcpy to shared memory"),
];

/// Views of 4 KiB at distinct offsets, one after the other; what is told is how long one takes.
const VIEW: &str = "view";

/// Runs cases, `runs` rounds each, in the store at `store`, whose workspace `bench` exists. `plain` is a directory in the
/// same file system.
pub(crate) fn cases(kinds: &[(&str, &str, &str)], store: &Path, plain: &Path, runs: usize) -> Result<Vec<Case>> {
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let url = format!("file:{}", store.display());
    let shared = kinds.iter().any(|(name, ..)| name.starts_with("shm."));
    let data = if shared { IN_MEMORY.to_owned() } else { text(&store.join("data")) };
    let args = ["data".to_owned(), url, "bench".to_owned(), data, text(plain)];
    let mut writer = [Worker::start(&args)?];
    let mut reader = [Worker::start(&args)?];
    let new = |(name, what, ceiling): &(&str, &str, &str)| Case {
        name: (*name).to_owned(),
        unit: if *what == VIEW { "ns" } else { "GB/s" },
        higher_is_better: *what != VIEW,
        values: Vec::new(),
        ceiling: (*what != VIEW).then(|| Ceiling { name: (*ceiling).to_owned(), values: Vec::new() }),
        counters: Vec::new(),
    };
    let mut cases: Vec<Case> = kinds.iter().map(new).collect();
    // One round is not counted: it warms the machine's memory up.
    for round in 0..=runs {
        let file = format!("run-{round}");
        for (case, (_, what, _)) in cases.iter_mut().zip(kinds) {
            let reads = what.starts_with("read") || *what == VIEW;
            let worker = if reads { &mut reader } else { &mut writer };
            let (_, said) = step(worker, &format!("{what} {file} {round}"))?;
            if round == 0 {
                continue;
            }
            let rate = |side: &str| -> Result<f64> {
                let seconds = said[0][side].as_f64().with_context(|| format!("a worker gave no time of {side}"))?;
                Ok(SCHEDULE.footprint as f64 / seconds / 1e9)
            };
            match said[0]["views"].as_f64() {
                Some(views) => case.values.push(said[0]["ours"].as_f64().unwrap_or(f64::NAN) / views * 1e9),
                None => case.values.push(rate("ours")?),
            }
            if let Some(ceiling) = &mut case.ceiling {
                ceiling.values.push(rate("bare")?);
            }
            let counters = said[0]["counters"].as_object().cloned().unwrap_or_default();
            case.counters = counters.into_iter().map(|(k, v)| (k, v.as_u64().unwrap_or(0))).collect();
        }
        step(&mut reader, "close")?;
        step(&mut writer, &format!("drop {file}"))?;
    }
    writer.into_iter().chain(reader).try_for_each(Worker::end)?;
    Ok(cases)
}
