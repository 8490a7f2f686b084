//! Direct access (SEMANTICS §2.6): this process moves the bytes itself, through a descriptor that the daemon has passed, for
//! as long as the grant's slot in the session's lease page says so. Everything else goes over the socket.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use iov_store::{
    Backend, ClientPage, Memory, OpCx, Sink, Submitted,
    block_sums::{BLOCKS, BlockSum},
    seam,
};
use iov_types::{
    Capability, Clause, Counters, Error, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Outcome, Range, Result,
};
use iov_wire::{
    Body,
    messages::{Access, GiveBack, GrantRequest, SumsAnswer, SumsRequest},
};
use rustix::fs::Advice;

use crate::{
    conn::Reply,
    grant::{Grant, read_all, slot_of},
    kept::SumCache,
    link::{ATTEMPTS, Link, Up},
    remote::RemoteBackend,
    socket,
};

/// Least and most grants that may be held, each with a descriptor.
const GRANTS: (usize, usize) = (2, 256);
/// The program has other plans with its descriptors too: at most one in so many is a grant's. Sites allow 1,024.
const DESCRIPTORS_PER_GRANT: u64 = 4;
/// A first operation up to this size goes over the socket: a grant costs as much, and there may be no second one.
const FIRST_BY_SOCKET: u64 = 16 << 10;
/// Writes smaller than this to an object that is kept by checksums go over the socket: for those the daemon knows which
/// bytes they change, and need not read all that it has lent.
const KEPT_BY_SOCKET: u64 = 256 << 10;
/// How long an object that the daemon does not grant is not asked for again.
const NOT_GRANTED_NS: i64 = 1_000_000_000;

#[derive(Default)]
struct Entry {
    grant: Option<Arc<Grant>>,
    uses: u64,
    not_before_ns: i64,
    /// The object is kept by checksums, as far as we know.
    kept: bool,
}

/// A `file:` target seen from a client on the same host.
pub struct DirectBackend {
    link: Arc<Link>,
    socket: RemoteBackend,
    entries: Mutex<HashMap<ObjectId, Entry>>,
    page: Mutex<Option<(Weak<Up>, Arc<ClientPage>)>>,
    clock: AtomicU64,
    kept: SumCache,
    /// Most grants held.
    room: usize,
    direct: bool,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether a process may carry it out itself: no unit, stage or sync is wanted, which need the daemon.
fn by_itself(op: &ObjectOp) -> bool {
    let d = &op.demand;
    matches!(op.verb, ObjectVerb::Write { .. } | ObjectVerb::Read { .. })
        && d.stage.is_none()
        && d.unit == 0
        && d.durability.is_none()
}

/// How many grants to hold under this process's limit of descriptors.
fn room() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    usize::try_from(limit / DESCRIPTORS_PER_GRANT).unwrap_or(GRANTS.1).clamp(GRANTS.0, GRANTS.1)
}

/// How an attempt at direct access ended.
enum Direct {
    Done(Result<Evidence>),
    /// Go by way of the daemon.
    Socket,
}

impl DirectBackend {
    /// The target behind a link; without `direct`, all bytes go over the socket.
    pub fn new(link: Arc<Link>, direct: bool) -> DirectBackend {
        DirectBackend {
            socket: RemoteBackend(link.clone()),
            link,
            entries: Mutex::default(),
            page: Mutex::default(),
            clock: AtomicU64::new(0),
            kept: SumCache::default(),
            room: room(),
            direct,
        }
    }

    fn page(&self, up: &Arc<Up>) -> Result<Arc<ClientPage>> {
        let mut page = lock(&self.page);
        if let Some((of, page)) = &*page
            && of.upgrade().is_some_and(|of| Arc::ptr_eq(&of, up))
        {
            return Ok(page.clone());
        }
        let new = ClientPage::map(&up.page)?;
        *page = Some((Arc::downgrade(up), new.clone()));
        Ok(new)
    }

    /// A cached grant that still holds, or a new one; `None`: the daemon grants none.
    fn grant(&self, cx: &OpCx, op: &ObjectOp, access: Access, range: Range, first: bool) -> Result<Option<Arc<Grant>>> {
        let mut entries = lock(&self.entries);
        let entry = entries.entry(op.object).or_default();
        entry.uses += 1;
        if let Some(grant) = &entry.grant {
            let enough = grant.access == Access::Write || access == Access::Read;
            // Of an object that is kept by checksums only a part is lent to a writer.
            let start = Range { len: range.len.min(1), ..range };
            let enough = enough && (access == Access::Read || !grant.kept || grant.covers(start));
            if enough && grant.slot.holds() && op.demand.epoch <= grant.epoch {
                grant.used.store(self.clock.fetch_add(1, Ordering::Relaxed), Ordering::Relaxed);
                return Ok(Some(grant.clone()));
            }
        }
        // The daemon's descriptors serve everybody, so that only a grant's can be read in a pattern.
        let small = entry.uses == 1 && range.len <= FIRST_BY_SOCKET && op.demand.pattern.is_none()
            || first && entry.kept && access == Access::Write && range.len < KEPT_BY_SOCKET;
        if seam::monotonic_ns() < entry.not_before_ns || small {
            return Ok(None);
        }
        drop(entries);
        let new = self.ask(cx, op, access, range);
        let mut entries = lock(&self.entries);
        let entry = entries.entry(op.object).or_default();
        match new {
            Ok(grant) => {
                entry.kept = grant.kept;
                let old = entry.grant.replace(grant.clone());
                drop(entries);
                old.into_iter().for_each(|old| old.give_back());
                self.evict(self.room);
                Ok(Some(grant))
            }
            Err(e) if matches!(e.kind(), Kind::Unsupported | Kind::Exhausted) => {
                entry.not_before_ns = seam::monotonic_ns() + NOT_GRANTED_NS;
                drop(entries);
                if e.kind() == Kind::Exhausted {
                    // The program needs its descriptors more than we do: bytes also move without.
                    self.evict(0);
                }
                Ok(None)
            }
            Err(e) => Err(e),
        }
    }

    /// Asks for a grant, again where the connection broke: that has no effect but the grant.
    fn ask(&self, cx: &OpCx, op: &ObjectOp, access: Access, range: Range) -> Result<Arc<Grant>> {
        for _ in 1..ATTEMPTS {
            let up = self.link.up(cx)?;
            self.link.book().check(op.object.collection, op.demand.stage)?;
            match self.ask_over(&up, cx, op, access, range) {
                Err(e) if e.kind() == Kind::Unavailable && up.connection.is_broken() && cx.left_ns() > 0 => {}
                done => return done,
            }
        }
        self.ask_over(&self.link.up(cx)?, cx, op, access, range)
    }

    fn ask_over(&self, up: &Arc<Up>, cx: &OpCx, op: &ObjectOp, access: Access, range: Range) -> Result<Arc<Grant>> {
        // A daemon whose disk is full sends something else in its place.
        let page = self.page(up).map_err(|e| Error::unsupported(format!("no direct access: {e}")))?;
        let request =
            GrantRequest { context: Link::context(cx), object: op.object, range, access, epoch: op.demand.epoch };
        match self.exchange(up, cx, &request)? {
            Reply::Granted(granted, None) => {
                up.connection.tell(&GiveBack { grant: granted.grant });
                Err(socket::no_descriptor("direct access to a collection"))
            }
            Reply::Granted(granted, Some(fd)) => {
                Counters::add(&self.link.counters().grants, 1);
                Ok(Arc::new(Grant {
                    fd,
                    number: granted.grant,
                    slot: {
                        let (slot, generation) = slot_of(granted.grant);
                        page.slot(slot, generation)?
                    },
                    access: granted.access,
                    epoch: granted.epoch.max(op.demand.epoch),
                    range: granted.range,
                    kept: granted.kept,
                    up: Arc::downgrade(up),
                    used: AtomicU64::new(self.clock.fetch_add(1, Ordering::Relaxed)),
                    advised: Mutex::default(),
                }))
            }
            Reply::Frame(_) => Err(Error::corrupt("the daemon answered a grant request with something else")),
        }
    }

    /// Sends a request and waits for its answer.
    fn exchange<B: Body>(&self, up: &Up, cx: &OpCx, request: &B) -> Result<Reply> {
        let slot = Arc::new((Mutex::new(None), Condvar::new()));
        let to = slot.clone();
        Counters::add(&self.link.counters().round_trips, 1);
        up.connection.request(
            request,
            &[],
            cx.left_ns(),
            Box::new(move |reply| {
                *lock(&to.0) = Some(reply);
                to.1.notify_all();
            }),
        );
        loop {
            if let Some(reply) = lock(&slot.0).take() {
                return reply;
            }
            let left = cx.left_ns();
            if left == 0 {
                return Err(Error::timeout("the daemon did not grant access in time"));
            }
            up.connection.drive(left.min(100_000_000));
            let waiting = lock(&slot.0);
            if waiting.is_none() {
                let pause = Duration::from_micros(50);
                drop(slot.1.wait_timeout(waiting, pause).unwrap_or_else(PoisonError::into_inner));
            }
        }
    }

    /// What is known of the blocks of some runs of an object that is kept by checksums.
    fn sums(&self, cx: &OpCx, grant: &Grant, object: ObjectId, first: u64, runs: u64) -> Result<Vec<BlockSum>> {
        let up = grant.up.upgrade().ok_or_else(|| Error::unavailable("the daemon of this grant has ended"))?;
        let request = SumsRequest { context: Link::context(cx), object, first, runs };
        let Reply::Frame(frame) = self.exchange(&up, cx, &request)? else {
            return Err(Error::corrupt("the daemon answered a request for checksums with a grant"));
        };
        let answer: SumsAnswer = frame.header.body(&frame.body)?;
        if let Some(e) = answer.failed {
            return Err(e);
        }
        let (words, rest) = frame.payload.as_chunks::<{ BlockSum::BYTES }>();
        if !rest.is_empty() || words.len() as u64 != runs * BLOCKS as u64 {
            return Err(Error::corrupt("the daemon sent another number of checksums than was asked for"));
        }
        words.iter().map(|word| BlockSum::decode(*word)).collect()
    }

    /// Reads and, where the object is kept by checksums, compares; `None`: only the daemon can tell.
    fn read(&self, cx: &OpCx, op: &ObjectOp, grant: &Grant, offset: u64, out: &mut [u8]) -> Option<Result<u64>> {
        grant.advise(op.demand.pattern);
        let got = match read_all(&grant.fd, out, offset) {
            Ok(got) => got,
            Err(e) => return Some(Err(e)),
        };
        if !grant.kept {
            return Some(Ok(got));
        }
        if got < out.len() as u64 {
            // Whether the object ends here, or its file has lost what comes.
            return None;
        }
        let whole = self.kept.compare(op.object, &grant.fd, offset, &out[..got as usize], |first, runs| {
            self.sums(cx, grant, op.object, first, runs)
        });
        // What does not fit may have been changed since: the daemon looks at it while nobody changes it.
        whole.then_some(Ok(got))
    }

    /// Gives back the grants used longest ago if there are more than `room`, and forgets objects without one.
    fn evict(&self, room: usize) {
        let mut entries = lock(&self.entries);
        let mut held: Vec<(u64, ObjectId)> = entries
            .iter()
            .filter_map(|(id, e)| e.grant.as_ref().map(|g| (g.used.load(Ordering::Relaxed), *id)))
            .collect();
        if held.len() <= room {
            return;
        }
        held.sort_unstable();
        let mut old = Vec::new();
        // A quarter at a time, so that a program that walks over many objects does not sort for each.
        for (_, id) in held.iter().take(held.len() - room * 3 / 4) {
            old.extend(entries.remove(id).and_then(|e| e.grant));
        }
        if entries.len() > GRANTS.1 * 64 {
            entries.retain(|_, e| e.grant.is_some());
        }
        drop(entries);
        old.iter().for_each(|grant| grant.give_back());
    }

    fn attempt(&self, cx: &OpCx, op: &ObjectOp, memory: &mut Memory) -> Direct {
        let (access, offset) = match op.verb {
            ObjectVerb::Write { offset } => (Access::Write, offset),
            ObjectVerb::Read { offset } => (Access::Read, offset),
            _ => return Direct::Socket,
        };
        let len = memory.len() as u64;
        let range = match Range::new(offset, len) {
            Ok(range) => range,
            Err(e) => return Direct::Done(Err(e)),
        };
        if access == Access::Write && op.demand.max_size != 0 && len > 0 && range.end() > op.demand.max_size {
            // The target checks it again where it counts: this saves a grant.
            return Direct::Socket;
        }
        let mut written = 0;
        loop {
            // Of an object that is kept by checksums a writer gets one part after the other.
            let left = Range { offset: range.offset + written, len: range.len - written };
            let grant = match self.grant(cx, op, access, left, written == 0) {
                Ok(Some(grant)) => grant,
                // From the beginning: the same bytes once more.
                Ok(None) => return Direct::Socket,
                Err(e) => return Direct::Done(Err(if written > 0 { e.with_outcome(Outcome::Unknown) } else { e })),
            };
            // What is lent to a writer in parts may be read as a whole.
            let lent = grant.kept && grant.access == Access::Write;
            if !lent && !grant.covers(left) {
                // Beyond what is granted, such as what an appender has not finished yet.
                return Direct::Socket;
            }
            let done = match access {
                Access::Write => {
                    let end = grant.range.end().min(left.end());
                    let bytes = &memory.bytes()[written as usize..(end - offset) as usize];
                    let (more, outcome) = grant.write(bytes, left.offset);
                    written += more as u64;
                    match outcome {
                        Err(e) if written > more as u64 => Some(Err(e.with_outcome(Outcome::Unknown))),
                        Err(e) => Some(Err(e)),
                        Ok(()) if written == range.len => Some(Ok(written)),
                        // The next part.
                        Ok(()) if more == bytes.len() && more > 0 => continue,
                        Ok(()) => None,
                    }
                }
                Access::Read => {
                    let got = self.read(cx, op, &grant, offset, memory.bytes_mut());
                    // What was read while the grant was taken back is void (G3).
                    match (grant.slot.read_is_valid(), got) {
                        (true, None) => return Direct::Socket,
                        (true, Some(got)) => Some(got),
                        (false, _) => None,
                    }
                }
            };
            match done {
                Some(result) => {
                    if op.demand.once {
                        let len = std::num::NonZero::new(range.end());
                        // A hint: what the kernel keeps all the same costs memory, not correctness.
                        let _ = rustix::fs::fadvise(&grant.fd, 0, len, Advice::DontNeed);
                    }
                    return Direct::Done(result.map(|bytes| {
                        Counters::add(&self.link.counters().bytes_direct, bytes);
                        Evidence { bytes, offset, epoch: grant.epoch, ..Evidence::default() }
                    }));
                }
                None => {
                    // Taken back: ask again, which waits until whatever it was taken for is over.
                    Counters::add(&self.link.counters().recalls, 1);
                    let mut entries = lock(&self.entries);
                    if let Some(entry) = entries.get_mut(&op.object)
                        && entry.grant.as_ref().is_some_and(|g| Arc::ptr_eq(g, &grant))
                    {
                        entry.grant = None;
                        entry.uses = entry.uses.max(1);
                    }
                    drop(entries);
                    grant.give_back();
                    if cx.left_ns() == 0 {
                        return Direct::Done(Err(
                            Error::timeout("access was taken back again and again").with_clause(Clause::G1)
                        ));
                    }
                }
            }
        }
    }
}

impl Backend for DirectBackend {
    fn capability(&self) -> &Capability {
        self.link.targets()
    }

    fn may_wait(&self) -> bool {
        true
    }

    fn submit(&self, cx: &OpCx, ops: Vec<Submitted>, sink: Arc<dyn Sink>) {
        if !self.direct || self.link.in_child() {
            return self.socket.submit(cx, ops, sink);
        }
        // Operations on one object keep their order, so that all of them go one way.
        let mut by_socket: HashSet<ObjectId> =
            ops.iter().filter(|(op, _)| !by_itself(op)).map(|(op, _)| op.object).collect();
        for (op, _) in &ops {
            if let ObjectVerb::Copy { source, .. } = op.verb {
                by_socket.insert(source);
            }
        }
        let mut rest = Vec::new();
        for (index, (op, mut memory)) in ops.into_iter().enumerate() {
            if by_socket.contains(&op.object) {
                rest.push((index, (op, memory)));
                continue;
            }
            match self.attempt(cx, &op, &mut memory) {
                Direct::Done(evidence) => sink.complete(index, evidence),
                Direct::Socket => {
                    by_socket.insert(op.object);
                    rest.push((index, (op, memory)));
                }
            }
        }
        self.socket.send(cx, rest, sink);
    }
}
