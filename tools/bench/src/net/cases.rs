//! Arranges the rounds: a process that writes, another that reads, a third one beside the daemon, and the bare server.

use std::path::Path;

use anyhow::{Context, Result};

use crate::{
    report::{Case, Ceiling},
    worker::{Worker, step},
};

/// Who does the work of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Who {
    Writer,
    Reader,
    /// A reader by the UNIX socket.
    Local,
}

/// A case.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    who: Who,
    step: &'static str,
    ceiling: &'static str,
}

impl Kind {
    /// What its figures are in, and whether more is better.
    fn unit(&self) -> (&'static str, bool) {
        match self.step {
            LATENCY | SUBMIT => ("us", false),
            OVERLAP => ("%", true),
            _ => ("GB/s", true),
        }
    }
}

pub(crate) const KINDS: [Kind; 6] = [
    Kind { name: "tcp.write.1MiB", who: Who::Writer, step: "write", ceiling: "bare loopback TCP" },
    Kind { name: "tcp.read.1MiB", who: Who::Reader, step: "read", ceiling: "bare loopback TCP" },
    Kind { name: "tcp.read.4KiB.latency", who: Who::Reader, step: LATENCY, ceiling: "bare TCP ping-pong" },
    Kind { name: "uds.read.4KiB.latency", who: Who::Local, step: LATENCY, ceiling: "bare UNIX ping-pong" },
    Kind { name: "tcp.submit.4KiB", who: Who::Writer, step: SUBMIT, ceiling: "bare send of 4 KiB" },
    Kind { name: "tcp.overlap", who: Who::Writer, step: OVERLAP, ceiling: "a bare sender in a thread" },
];

/// The same at another daemon than the catalog's.
pub(crate) const MEMBER_KINDS: [Kind; 3] = [
    Kind { name: "member.write.1MiB", who: Who::Writer, step: "write", ceiling: "bare loopback TCP" },
    Kind { name: "member.read.1MiB", who: Who::Reader, step: "read", ceiling: "bare loopback TCP" },
    Kind { name: "member.read.4KiB.latency", who: Who::Reader, step: LATENCY, ceiling: "bare TCP ping-pong" },
];

const LATENCY: &str = "latency";
const SUBMIT: &str = "submit";
const OVERLAP: &str = "overlap";

/// Where the daemon that is measured can be reached.
pub(crate) struct Ways {
    /// The URL over TCP.
    pub(crate) network: String,
    /// The URL of the store's directory.
    pub(crate) local: String,
    /// Its process.
    pub(crate) pid: u64,
}

/// Runs cases, `runs` rounds each, in the store of these URLs, whose workspace `bench` exists. `plain` is a directory for a
/// socket.
pub(crate) fn cases(kinds: &[Kind], ways: &Ways, plain: &Path, runs: usize) -> Result<Vec<Case>> {
    // Of other cases one may be left.
    let _ = std::fs::remove_file(plain.join("bare.sock"));
    let socket = plain.join("bare.sock").to_string_lossy().into_owned();
    let mut bare = [Worker::start(&["bare-net".to_owned(), socket.clone()])?];
    let (_, said) = step(&mut bare, "address")?;
    let address = said[0]["address"].as_str().context("the bare server has no address")?;
    let pid = ways.pid.to_string();
    let start =
        |url: &str, bare: &str| Worker::start(&["net", url, "bench", bare, &pid].map(str::to_owned)).map(|w| [w]);
    let mut writer = start(&ways.network, address)?;
    let mut reader = start(&ways.network, address)?;
    let mut local = start(&ways.local, &socket)?;
    // What is in the collection and in the bare server's memory: each write has another byte, which readers look for.
    let mut tag = 1u8;
    step(&mut writer, &format!("fill 0 {tag}"))?;
    let new = |kind: &Kind| Case {
        name: kind.name.to_owned(),
        unit: kind.unit().0,
        higher_is_better: kind.unit().1,
        values: Vec::new(),
        ceiling: Some(Ceiling { name: kind.ceiling.to_owned(), values: Vec::new() }),
        counters: Vec::new(),
    };
    let mut cases: Vec<Case> = kinds.iter().map(new).collect();
    // One round is not counted: connections grow their windows in it, and memory its pages.
    for round in 0..=runs {
        for (case, kind) in cases.iter_mut().zip(kinds) {
            let worker = match kind.who {
                Who::Writer => {
                    // Others write a part only, the same again.
                    tag = tag.wrapping_add(u8::from(kind.step == "write"));
                    &mut writer
                }
                Who::Reader => &mut reader,
                Who::Local => &mut local,
            };
            let (_, said) = step(worker, &format!("{} {round} {tag}", kind.step))?;
            if round == 0 {
                continue;
            }
            let figure = |side: &str| said[0][side].as_f64().with_context(|| format!("a worker gave no {side}"));
            case.values.push(figure("ours")?);
            if let Some(ceiling) = &mut case.ceiling {
                ceiling.values.push(figure("bare")?);
            }
            let counters = said[0]["counters"].as_object().cloned().unwrap_or_default();
            case.counters = counters.into_iter().map(|(k, v)| (k, v.as_u64().unwrap_or(0))).collect();
        }
    }
    // The bare server last, since the others are connected to it.
    writer.into_iter().chain(reader).chain(local).chain(bare).try_for_each(Worker::end)?;
    Ok(cases)
}
