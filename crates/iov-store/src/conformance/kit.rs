//! What the checks are made with: safe calls, threads that are always joined, numbers that look random.

use std::{
    sync::{
        Arc, Barrier, Condvar, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    thread::JoinHandle,
};

use iov_types::{Caller, Demand, Evidence, Extent, Kind, ObjectId, ObjectOp, ObjectVerb, Range, Result, Uuid};

use crate::{Backend, Memory, OpCx, Sink, backend::Submitted, run_one, seam};

/// More than any check needs; whoever waits this long hangs.
const PATIENCE_NS: i64 = 20_000_000_000;

/// The context of the checks: one user, one session.
fn cx(timeout_ns: i64) -> OpCx {
    let caller = Caller { uid: 1000, gid: 1000, groups: Vec::new(), session: uuid(1), holder: uuid(1) };
    OpCx::new(caller, timeout_ns)
}

/// A UUID for a number; it has no version, hence no age.
pub(super) fn uuid(n: u64) -> Uuid {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    Uuid(bytes)
}

/// One object of a target, the demands that go with each call, and how long a call may take.
#[derive(Clone)]
pub struct Probe {
    backend: Arc<dyn Backend>,
    /// Which object.
    pub id: ObjectId,
    /// What each call demands.
    pub demand: Demand,
    timeout_ns: i64,
}

impl Probe {
    /// Object number `n` of a target.
    pub fn new(backend: &Arc<dyn Backend>, n: u64) -> Probe {
        let id = ObjectId { collection: uuid(0x0b7ec7), slot: n };
        Probe { backend: backend.clone(), id, demand: Demand::default(), timeout_ns: PATIENCE_NS }
    }

    /// The same object with other demands.
    pub fn with(&self, change: impl FnOnce(&mut Demand)) -> Probe {
        let mut other = self.clone();
        change(&mut other.demand);
        other
    }

    /// The same object through stage number `n`.
    pub fn staged(&self, n: u64) -> Probe {
        self.with(|d| d.stage = Some(uuid(n)))
    }

    /// The same object, giving up after so many nanoseconds.
    pub fn patient(&self, timeout_ns: i64) -> Probe {
        Probe { timeout_ns, ..self.clone() }
    }

    /// The operation as data.
    pub fn op(&self, verb: ObjectVerb) -> ObjectOp {
        ObjectOp { object: self.id, verb, demand: self.demand.clone() }
    }

    /// An operation without memory.
    pub fn call(&self, verb: ObjectVerb) -> Result<Evidence> {
        self.send(verb, &[])
    }

    /// An operation that takes bytes.
    pub fn send(&self, verb: ObjectVerb, data: &[u8]) -> Result<Evidence> {
        // SAFETY: `run_one` waits for the evidence, and `data` lives longer than this call.
        let memory = unsafe { Memory::readable(data.as_ptr(), data.len()) };
        run_one(&*self.backend, &cx(self.timeout_ns), self.op(verb), memory)
    }

    /// Reads `len` bytes; the vector is as long as the read was.
    pub fn read(&self, offset: u64, len: usize) -> Result<Vec<u8>> {
        let mut out = vec![0xa5; len]; // not zeros: a hole must be filled by the target
        // SAFETY: `run_one` waits for the evidence, and `out` lives longer than this call.
        let memory = unsafe { Memory::writable(out.as_mut_ptr(), len) };
        let evidence = run_one(&*self.backend, &cx(self.timeout_ns), self.op(ObjectVerb::Read { offset }), memory)?;
        assert!(evidence.bytes <= len as u64, "{} bytes read into {len}", evidence.bytes);
        out.truncate(evidence.bytes as usize);
        Ok(out)
    }

    /// Everything.
    pub fn all(&self) -> Vec<u8> {
        let size = self.stat().size;
        self.read(0, size as usize + 16).unwrap_or_else(|e| panic!("reading {size} bytes: {e:?}"))
    }

    /// Writes.
    pub fn write(&self, offset: u64, data: &[u8]) -> Result<Evidence> {
        self.send(ObjectVerb::Write { offset }, data)
    }

    /// Appends.
    pub fn append(&self, data: &[u8]) -> Result<Evidence> {
        self.send(ObjectVerb::Append, data)
    }

    /// Sets the length.
    pub fn truncate(&self, size: u64) -> Result<Evidence> {
        self.call(ObjectVerb::Truncate { size })
    }

    /// Punches a hole.
    pub fn punch(&self, offset: u64, len: u64) -> Result<Evidence> {
        self.call(ObjectVerb::Punch(Range { offset, len }))
    }

    /// Reserves space.
    pub fn allocate(&self, offset: u64, len: u64, keep_size: bool) -> Result<Evidence> {
        self.call(ObjectVerb::Allocate { range: Range { offset, len }, keep_size })
    }

    /// Copies from another object.
    pub fn copy(&self, source: &Probe, source_offset: u64, offset: u64, len: u64) -> Result<Evidence> {
        self.call(ObjectVerb::Copy { source: source.id, source_offset, offset, len })
    }

    /// Raises the epoch.
    pub fn fence(&self, epoch: u64) -> Result<Evidence> {
        self.call(ObjectVerb::Fence { epoch })
    }

    /// Keeps everybody out but stage `n`.
    pub fn freeze(&self, n: u64) -> Result<Evidence> {
        self.call(ObjectVerb::Freeze { stage: uuid(n) })
    }

    /// Publishes stage `n`.
    pub fn publish(&self, n: u64) -> Result<Evidence> {
        self.call(ObjectVerb::Publish { stage: uuid(n) })
    }

    /// Lets everybody pass whom stage `n` keeps out.
    pub fn thaw(&self, n: u64) -> Result<Evidence> {
        self.call(ObjectVerb::Thaw { stage: uuid(n) })
    }

    /// Drops stage `n`.
    pub fn discard(&self, n: u64) -> Result<Evidence> {
        self.call(ObjectVerb::Discard { stage: uuid(n) })
    }

    /// Length, space and version.
    pub fn stat(&self) -> Evidence {
        self.call(ObjectVerb::Stat).unwrap_or_else(|e| panic!("stat: {e:?}"))
    }

    /// Data and holes.
    pub fn extents(&self, offset: u64, len: u64, max: usize) -> Vec<Extent> {
        let verb = ObjectVerb::Extents { range: Range { offset, len }, max };
        self.call(verb).unwrap_or_else(|e| panic!("extents: {e:?}")).extents
    }
}

/// What a target answered to one operation of a submission.
pub struct Answered {
    /// How often it has answered so far.
    pub times: usize,
    /// The first answer.
    pub evidence: Result<Evidence>,
    /// The memory afterwards.
    pub memory: Vec<u8>,
}

struct Many {
    answers: Mutex<Vec<Vec<Result<Evidence>>>>,
    arrived: Condvar,
}

impl Sink for Many {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)[index].push(evidence);
        self.arrived.notify_all();
    }
}

/// Submits operations with their memory at once and waits for all answers.
pub fn run_many(backend: &dyn Backend, timeout_ns: i64, ops: Vec<(ObjectOp, Vec<u8>)>) -> Vec<Answered> {
    let (ops, mut buffers): (Vec<_>, Vec<_>) = ops.into_iter().unzip();
    let sink = Arc::new(Many { answers: Mutex::new(vec![Vec::new(); ops.len()]), arrived: Condvar::new() });
    let submitted: Vec<Submitted> = ops
        .into_iter()
        .zip(&mut buffers)
        // SAFETY: the buffers live until all answers have come, below.
        .map(|(op, buffer)| (op, unsafe { Memory::writable(buffer.as_mut_ptr(), buffer.len()) }))
        .collect();
    backend.submit(&cx(timeout_ns), submitted, sink.clone());
    let mut answers = sink.answers.lock().unwrap_or_else(PoisonError::into_inner);
    while answers.iter().any(Vec::is_empty) {
        answers = sink.arrived.wait(answers).unwrap_or_else(PoisonError::into_inner);
    }
    let answers = std::mem::take(&mut *answers);
    let answered = answers.into_iter().zip(buffers);
    answered.map(|(a, memory)| Answered { times: a.len(), evidence: a[0].clone(), memory }).collect()
}

/// Panics unless it failed so.
pub(super) fn fails<T>(what: &str, kind: Kind, result: Result<T>) -> iov_types::Error {
    match result {
        Err(e) if e.kind() == kind => e,
        Err(e) => panic!("{what}: failed with {e:?}, not with {}", kind.c_name()),
        Ok(_) => panic!("{what}: succeeded, but had to fail with {}", kind.c_name()),
    }
}

/// A thread that is told to stop and joined when this is dropped, also by a panic.
pub(super) struct Thread<T> {
    stop: Arc<AtomicBool>,
    result: Arc<Mutex<Option<T>>>,
    handle: Option<JoinHandle<()>>,
}

impl<T: Send + 'static> Thread<T> {
    /// Starts it; the body looks at the flag now and then.
    pub(super) fn start(body: impl FnOnce(&AtomicBool) -> T + Send + 'static) -> Thread<T> {
        let (stop, result) = (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(None)));
        let (flag, slot) = (stop.clone(), result.clone());
        let body = move || {
            let value = body(&flag);
            *slot.lock().unwrap_or_else(PoisonError::into_inner) = Some(value);
        };
        let handle = seam::spawn("conformance", body).unwrap_or_else(|e| panic!("no thread: {e}"));
        Thread { stop, result, handle: Some(handle) }
    }

    /// Whether it has come to its end by itself.
    pub(super) fn is_done(&self) -> bool {
        self.handle.as_ref().is_none_or(JoinHandle::is_finished)
    }

    /// Tells it to stop, and takes its result; its panic becomes ours.
    pub(super) fn stop(self) -> T {
        self.stop.store(true, Ordering::SeqCst);
        self.join()
    }

    /// Waits for its end, and takes its result; its panic becomes ours.
    pub(super) fn join(mut self) -> T {
        if let Some(Err(panic)) = self.handle.take().map(JoinHandle::join) {
            std::panic::resume_unwind(panic);
        }
        let value = self.result.lock().unwrap_or_else(PoisonError::into_inner).take();
        value.unwrap_or_else(|| panic!("a thread of the check ended without a result"))
    }
}

impl<T> Drop for Thread<T> {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
        if let Some(handle) = self.handle.take() {
            drop(handle.join()); // the check has failed already
        }
    }
}

/// Runs `body(0..n)` in threads that start together; their results in order.
pub(super) fn together<T: Send + 'static>(n: usize, body: impl Fn(usize) -> T + Send + Sync + 'static) -> Vec<T> {
    let (body, barrier) = (Arc::new(body), Arc::new(Barrier::new(n)));
    let threads: Vec<_> = (0..n)
        .map(|i| {
            let (body, barrier) = (body.clone(), barrier.clone());
            Thread::start(move |_| {
                barrier.wait();
                body(i)
            })
        })
        .collect();
    threads.into_iter().map(Thread::join).collect()
}

/// Waits until something holds, for at most two seconds.
pub(super) fn soon(holds: impl Fn() -> bool) -> bool {
    let end = seam::monotonic_ns() + 2_000_000_000;
    while !holds() {
        if seam::monotonic_ns() > end {
            return false;
        }
        seam::sleep(200_000);
    }
    true
}

/// Bytes that tell who wrote them: none is zero.
pub(super) fn pattern(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = Rng::new(seed);
    (0..len).map(|_| rng.next() as u8 | 1).collect()
}

/// A small generator of numbers (splitmix64) that always gives the same ones for a seed.
pub struct Rng(u64);

impl Rng {
    /// Begins at a seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next number.
    #[allow(clippy::should_implement_trait)] // it never ends
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n.max(1)
    }
}
