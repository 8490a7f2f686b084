//! The process that does both sides: ours through the C ABI, the bare one as a client of the bare server.

use anyhow::{Context, Result, bail, ensure};
use serde_json::{Map, Value, json};

use super::{bare::Bare, beside};
use crate::{
    buffer::{Buffer, spoil},
    capi::{Collection, NODIRECT, NOW, Session, Workspace},
    cores,
    data::{SCHEDULE, SMALL},
    meta,
    report::{TRANSPORTS, median},
    worker as workers,
};

const REQUEST: usize = SCHEDULE.request as usize;
/// Requests that are under way together; the bare side has no such thing, its bytes just follow each other.
pub(super) const BATCH: u64 = 16;

/// Reads of a round whose times are taken, on each side.
pub(super) const SAMPLES: usize = 4000;
/// Those of one turn.
pub(super) const TURN: usize = 200;

/// The name of the one collection.
const NAME: &std::ffi::CStr = c"remote";

/// Offsets of the reads of a round. No two of a round are alike, nor of rounds that follow each other.
pub(super) fn offsets(round: u64) -> Vec<u64> {
    let blocks = SCHEDULE.footprint / SMALL.request;
    let start = round as usize * SAMPLES % blocks as usize;
    meta::shuffled(blocks).cycle().skip(start).take(SAMPLES).map(|block| block * SMALL.request).collect()
}

/// The counters of a round with all transports among them, if that many bytes went by `transport` and none another way.
pub(super) fn by(transport: &str, moved: u64, mut counters: Map<String, Value>) -> Result<Map<String, Value>> {
    for way in TRANSPORTS {
        let bytes = counters.entry(format!("bytes_{way}")).or_insert(json!(0)).as_u64().unwrap_or(0);
        let expected = if way == transport { bytes >= moved } else { bytes == 0 };
        ensure!(expected, "{moved} bytes were to go by {transport}, but {bytes} went by {way}");
    }
    Ok(counters)
}

struct Client {
    session: Session,
    workspace: Workspace,
    collection: Option<Collection>,
    /// The way that our bytes go.
    transport: &'static str,
    bare: Bare,
    /// A connection that is served on the core of the daemon.
    apart: Bare,
    /// The daemon's process.
    daemon: u32,
    /// The cores that this process may use.
    cores: Vec<usize>,
    /// Room for the reads of one batch. The first part of it is the source of all writes, and where the bare side receives.
    buffer: Buffer,
}

impl Client {
    fn collection(&mut self) -> Result<Collection> {
        let collection = match self.collection {
            Some(collection) => collection,
            None => self.workspace.lookup(&NOW, NAME)?,
        };
        self.collection = Some(collection);
        Ok(collection)
    }

    /// What a step says: figures of both sides and what ours has cost.
    fn said(&self, ours: f64, bare: f64, before: &[(String, u64)], moved: u64) -> Result<Value> {
        let counters = by(self.transport, moved, self.session.grown(before)?)?;
        Ok(json!({"ours": ours, "bare": bare, "counters": counters}))
    }

    fn write(&mut self, round: u64, tag: u8) -> Result<Value> {
        let collection = self.collection()?;
        let before = self.session.counters()?;
        let batch = self.session.batch()?;
        let source = &mut self.buffer.bytes()[..REQUEST];
        source.fill(tag);
        let (ours, bare) = SCHEDULE.run_pieces(
            SCHEDULE.footprint / 2,
            round,
            &mut (&*source, &mut self.bare),
            |(source, _), at| {
                let mut batches = (at..at + SCHEDULE.piece).step_by(BATCH as usize * REQUEST);
                batches.try_for_each(|at| batch.write(collection, at, source, BATCH))
            },
            |(source, bare), at| bare.write(at, source, SCHEDULE.piece / SCHEDULE.request),
        )?;
        self.said(rate(ours), rate(bare), &before, SCHEDULE.footprint)
    }

    fn read(&mut self, round: u64, tag: u8) -> Result<Value> {
        let collection = self.collection()?;
        let before = self.session.counters()?;
        let batch = self.session.batch()?;
        let (ours, bare) = SCHEDULE.run_pieces(
            SCHEDULE.footprint / 2,
            round,
            &mut (self.buffer.bytes(), &mut self.bare),
            |(buffer, _), at| {
                for at in (at..at + SCHEDULE.piece).step_by(BATCH as usize * REQUEST) {
                    let parts = buffer.chunks_exact_mut(REQUEST).zip((at..).step_by(REQUEST));
                    let spots: Vec<usize> = parts.map(|(part, at)| spoil(part, at, !tag)).collect();
                    batch.read(collection, at, buffer, REQUEST)?;
                    let mut parts = buffer.chunks_exact(REQUEST).zip(spots);
                    ensure!(parts.all(|(part, spot)| part[spot] == tag), "wrong bytes were read");
                }
                Ok(())
            },
            |(buffer, bare), at| {
                let buffer = &mut buffer[..REQUEST];
                bare.ask(at, SCHEDULE.piece)?;
                for at in SCHEDULE.requests(at) {
                    let spot = spoil(buffer, at, !tag);
                    bare.receive(buffer)?;
                    ensure!(buffer[spot] == tag, "the bare side brought wrong bytes");
                }
                Ok(())
            },
        )?;
        self.said(rate(ours), rate(bare), &before, SCHEDULE.footprint)
    }

    /// Both sides on two cores, this process on the one: the kernel would put them on one core at one time and on two at
    /// another, and waking the other core takes longer than all else.
    fn latency(&mut self, round: u64, tag: u8) -> Result<Value> {
        let (all, here) = (&self.cores, std::process::id());
        if let [one, other, ..] = all[..] {
            cores::process_stays_on(here, &[one])?;
            cores::process_stays_on(self.daemon, &[other])?;
        }
        let said = self.small_reads(round, tag);
        cores::process_stays_on(here, &self.cores)?;
        cores::process_stays_on(self.daemon, &self.cores)?;
        said
    }

    /// Microseconds of a small read, medians.
    fn small_reads(&mut self, round: u64, tag: u8) -> Result<Value> {
        let collection = self.collection()?;
        let before = self.session.counters()?;
        let len = SMALL.request as usize;
        let buffer = &mut self.buffer.bytes()[..len];
        let (mut ours, mut bare) = (Vec::with_capacity(SAMPLES), Vec::with_capacity(SAMPLES));
        for (turn, offsets) in offsets(round).chunks(TURN).enumerate() {
            let ours_first = (turn as u64 + round).is_multiple_of(2);
            for is_ours in [ours_first, !ours_first] {
                for at in offsets {
                    let at = if is_ours { *at } else { (at + SCHEDULE.footprint / 2) % SCHEDULE.footprint };
                    let spot = spoil(buffer, at, !tag);
                    let from = workers::clock();
                    if is_ours {
                        let got = collection.read(at, buffer)?;
                        ensure!(got == len, "{got} bytes were read of {len}");
                    } else {
                        self.apart.ask(at, SMALL.request)?;
                        self.apart.receive(buffer)?;
                    }
                    let spent = workers::clock() - from;
                    ensure!(buffer[spot] == tag, "wrong bytes were read");
                    if is_ours { &mut ours } else { &mut bare }.push(spent * 1e6);
                }
            }
        }
        let moved = (ours.len() * len) as u64;
        self.said(median(&ours), median(&bare), &before, moved)
    }
}

impl Client {
    /// Writes that go on beside other work: what starting them costs, and how much of them does.
    fn beside(&mut self, what: &str, round: u64, tag: u8) -> Result<Value> {
        let collection = self.collection()?;
        let before = self.session.counters()?;
        self.buffer.bytes()[..REQUEST].fill(tag);
        let source = &self.buffer.bytes()[..REQUEST];
        let mut sides = beside::Sides { session: &self.session, collection, bare: &mut self.bare, source };
        let done = if what == "submit" { sides.submit(round)? } else { sides.overlap(round)? };
        self.said(done.ours, done.bare, &before, done.moved)
    }
}

/// Gigabytes per second.
fn rate(seconds: f64) -> f64 {
    SCHEDULE.footprint as f64 / seconds / 1e9
}

/// Arguments: URL, workspace, the bare server's address or socket, the daemon's process. Steps: `fill ROUND TAG`, which
/// makes the collection, `write ROUND TAG`, and of what was written with that tag `read ROUND TAG` and `latency ROUND TAG`;
/// `submit ROUND TAG` and `overlap ROUND TAG`, which write it anew.
pub(crate) fn worker(args: &[String]) -> Result<()> {
    let [url, ws, address, daemon] = args else {
        bail!("a network worker takes a URL, a workspace, a bare server and the daemon's process")
    };
    // A daemon of this machine would lend its memory, and no byte would go over the socket.
    let transport = if url.starts_with("iov:") { "tcp" } else { "unix" };
    let session = Session::open_with(url, NODIRECT)?;
    let workspace = session.workspace(ws)?;
    let connect = || Bare::connect(address).with_context(|| format!("no bare server at {address}"));
    let (cores, daemon) = (cores::allowed()?, daemon.parse()?);
    let (bare, mut apart) = (connect()?, connect()?);
    if let [_, other, ..] = cores[..] {
        apart.serve_on(other)?;
    }
    let buffer = Buffer::filled(BATCH as usize * REQUEST, 0);
    let mut client = Client { session, workspace, collection: None, transport, bare, apart, daemon, cores, buffer };
    workers::serve(|step| match step.split(' ').collect::<Vec<_>>()[..] {
        [what, round, tag] => {
            let (round, tag) = (round.parse()?, tag.parse()?);
            match what {
                "fill" => {
                    client.collection = Some(client.workspace.create(&NOW, NAME, None, None)?);
                    client.write(round, tag)
                }
                "write" => client.write(round, tag),
                "read" => client.read(round, tag),
                "latency" => client.latency(round, tag),
                "submit" | "overlap" => client.beside(what, round, tag),
                other => bail!("no step {other}"),
            }
        }
        _ => bail!("no step {step:?}"),
    })?;
    client.session.close()
}
