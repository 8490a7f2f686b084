//! One table that is in use: its functions are called here and nowhere else.

use std::{
    collections::HashMap,
    ffi::{CStr, CString, c_char, c_void},
    mem::offset_of,
    sync::{
        Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use iov_types::{Error, Kind, Outcome, Persistence, Result};

use crate::abi::{self, Ops};

/// Where the lines go that a backend logs: a level (`IOV_LOG_*`) and a text.
pub type Log = Box<dyn Fn(u32, &str) + Send + Sync>;

/// A table with its state.
pub(crate) struct Table {
    ops: &'static Ops,
    state: *mut c_void,
    name: String,
    capability: abi::Capability,
    // What the backend has pointers to. They go after its state.
    _host: Box<abi::Host>,
    _lines: Box<Lines>,
}

/// What a backend logs.
struct Lines {
    to: Log,
    /// The last line: what it says when it cannot begin.
    last: Mutex<String>,
}

// SAFETY: several threads may call the functions of a table at once (`ioverbs.h`); nothing else here changes.
unsafe impl Send for Table {}
// SAFETY: as above.
unsafe impl Sync for Table {}

/// What an operation came to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Answer {
    pub(crate) bytes: u64,
    pub(crate) offset: u64,
    pub(crate) version: u64,
    pub(crate) epoch: u64,
    pub(crate) allocated: u64,
    pub(crate) mtime_ns: i64,
    pub(crate) crc32c: Option<u32>,
    pub(crate) durability: Option<Persistence>,
}

/// Operations in flight, by number: a backend that answers twice, or late, meets nobody.
#[derive(Default)]
struct Waiting {
    slot: Mutex<Option<Result<Answer>>>,
    arrived: Condvar,
}

static FLIGHT: LazyLock<Mutex<HashMap<u64, Arc<Waiting>>>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The levels in the order of their numbers, from 1 on.
const LEVELS: [Persistence; 4] =
    [Persistence::Volatile, Persistence::Process, Persistence::Durable, Persistence::Replicated];

pub(crate) fn level(number: u8) -> Option<Persistence> {
    LEVELS.get(usize::from(number).checked_sub(1)?).copied()
}

pub(crate) fn number(level: Option<Persistence>) -> u8 {
    let at = level.and_then(|level| LEVELS.iter().position(|l| *l == level));
    at.map_or(0, |at| at as u8 + 1)
}

/// The longest text that is taken from a backend.
const MOST_TEXT: usize = 4096;

/// # Safety
/// `text` is null or points to a string that ends.
unsafe fn text(text: *const c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: promised by the caller.
    let bytes = unsafe { CStr::from_ptr(text) }.to_bytes();
    String::from_utf8_lossy(&bytes[..bytes.len().min(MOST_TEXT)]).into_owned()
}

/// What a negative number of a backend means.
fn failure(code: i32, outcome: u8, detail: &str) -> Error {
    let kind = code.checked_neg().and_then(Kind::from_code).unwrap_or(Kind::Internal);
    let why = match (detail.is_empty(), kind) {
        (false, _) => detail.to_owned(),
        (true, Kind::Internal) => format!("it failed with {code}, which is no error that ioverbs.h knows"),
        (true, kind) => kind.text().to_owned(),
    };
    let outcome = match outcome {
        NOT_APPLIED => Outcome::NotApplied,
        1 => Outcome::Applied,
        // Also who does not say: what may have been written, and cannot be synced, must not pass for safe (P8).
        _ => Outcome::Unknown,
    };
    Error::new(kind, why).with_outcome(outcome)
}

/// `IOV_OUTCOME_NOT_APPLIED`.
const NOT_APPLIED: u8 = 2;

unsafe extern "C" fn log(ctx: *mut c_void, level: u32, line: *const c_char) {
    // SAFETY: `ctx` is the log of a table that lives, `line` a string, both by `ioverbs.h`.
    let (lines, line) = unsafe { (&*ctx.cast::<Lines>(), text(line)) };
    (lines.to)(level, &line);
    *lock(&lines.last) = line;
}

unsafe extern "C" fn recall(_: *mut c_void, _: *mut c_void) {
    // No grants are asked for.
}

unsafe extern "C" fn done(sink: *mut c_void, evidence: *const abi::Evidence) {
    let waiting = lock(&FLIGHT).remove(&(sink as u64));
    let Some(waiting) = waiting else { return };
    // SAFETY: by `ioverbs.h` evidence is readable during the callback.
    let answer = unsafe { read(evidence) };
    *lock(&waiting.slot) = Some(answer);
    waiting.arrived.notify_all();
}

/// # Safety
/// `evidence` is null, or readable for as many bytes as its first field says.
unsafe fn read(evidence: *const abi::Evidence) -> Result<Answer> {
    let mut e = abi::evidence();
    if evidence.is_null() {
        return Err(Error::internal("a backend gave no evidence").with_outcome(Outcome::Unknown));
    }
    // SAFETY: the first field is there.
    let size = unsafe { evidence.cast::<u32>().read_unaligned() } as usize;
    if size < offset_of!(abi::Evidence, bytes) {
        let why = format!("a backend gave evidence of {size} bytes: use IOV_EVIDENCE_INIT");
        return Err(Error::internal(why).with_outcome(Outcome::Unknown));
    }
    let len = size.min(size_of::<abi::Evidence>());
    // SAFETY: as many bytes as both have.
    unsafe { std::ptr::copy_nonoverlapping(evidence.cast::<u8>(), (&raw mut e).cast::<u8>(), len) };
    if e.code != 0 {
        // SAFETY: a string or null, during the callback.
        let detail = unsafe { text(e.detail) };
        return Err(failure(e.code, e.outcome, &detail));
    }
    Ok(Answer {
        bytes: e.bytes,
        offset: e.offset,
        version: e.version,
        epoch: e.epoch,
        allocated: e.allocated,
        mtime_ns: e.mtime_ns,
        crc32c: (e.checksum_kind == abi::CHECKSUM_CRC32C).then_some(e.checksum as u32),
        durability: level(e.durability),
    })
}

impl Table {
    /// Brings a table to life.
    ///
    /// # Safety
    /// `ops` points to a table as `ioverbs.h` describes it, which stays for ever.
    pub(crate) unsafe fn open(ops: *const Ops, config: &str, log_to: Log) -> Result<Arc<Table>> {
        if ops.is_null() {
            return Err(Error::invalid("the backend has no table"));
        }
        // SAFETY: promised by the caller; the size is there in every version.
        let size = unsafe { ops.cast::<u32>().read() } as usize;
        if size < offset_of!(Ops, grant) {
            return Err(Error::version(format!(
                "the backend's table has {size} bytes: set its size, and fill it up to submit"
            )));
        }
        // SAFETY: promised by the caller. Fields behind those that are used are not looked at.
        let ops = unsafe { &*ops };
        // SAFETY: a string or null, by `ioverbs.h`.
        let name = unsafe { text(ops.name) };
        let name = if name.is_empty() { "without a name".to_owned() } else { name };
        let (Some(init), Some(_), Some(capability), Some(_)) = (ops.init, ops.destroy, ops.capability, ops.submit)
        else {
            return Err(Error::invalid(format!("backend {name} lacks init, destroy, capability or submit")));
        };
        let config = CString::new(config).map_err(|_| Error::invalid("a configuration with a zero byte"))?;
        let lines = Box::new(Lines { to: log_to, last: Mutex::default() });
        let host = Box::new(abi::Host {
            size: size_of::<abi::Host>() as u32,
            reserved0: 0,
            ctx: (&raw const *lines).cast_mut().cast(),
            log: Some(log),
            recall: Some(recall),
        });
        let mut state = std::ptr::null_mut();
        // SAFETY: the arguments live during the call, the host until after `destroy`.
        let code = unsafe { init(config.as_ptr(), &raw const *host, &raw mut state) };
        if code != 0 {
            let why = failure(code, NOT_APPLIED, &lock(&lines.last));
            return Err(why.context(format!("backend {name} cannot be used with this configuration")));
        }
        let mut table = Table { ops, state, name, capability: abi::capability(), _host: host, _lines: lines };
        // SAFETY: the state is alive; the size says how much may be written.
        let code = unsafe { capability(state, &raw mut table.capability) };
        if code != 0 {
            let why = format!("backend {} does not tell its capability", table.name);
            return Err(failure(code, NOT_APPLIED, "").context(why));
        }
        table.check()?;
        Ok(Arc::new(table))
    }

    /// Whether it can do what every target must.
    fn check(&self) -> Result<()> {
        let must = [
            (abi::CREATE, "CREATE"),
            (abi::WRITE, "WRITE"),
            (abi::READ, "READ"),
            (abi::TRUNCATE, "TRUNCATE"),
            (abi::SYNC, "SYNC"),
            (abi::SEAL, "SEAL"),
            (abi::FENCE, "FENCE"),
            (abi::REMOVE, "REMOVE"),
            (abi::STAT, "STAT"),
            (abi::LIST, "LIST"),
        ];
        let missing: Vec<&str> = must.into_iter().filter(|(kind, _)| !self.can(*kind)).map(|(_, name)| name).collect();
        if !missing.is_empty() {
            return Err(Error::unsupported(format!(
                "backend {} does not say that it can {}, which every target must",
                self.name,
                missing.join(", ")
            )));
        }
        if self.capability.alignment > 1 {
            return Err(Error::unsupported(format!(
                "backend {} wants buffers, offsets and lengths in multiples of {}: this release has targets that take any",
                self.name, self.capability.alignment
            )));
        }
        Ok(())
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn capability(&self) -> &abi::Capability {
        &self.capability
    }

    /// All of its space, and what of it is free now; `None`: it has no bounds.
    pub(crate) fn space(&self) -> Option<(u64, u64)> {
        let mut now = abi::capability();
        // SAFETY: as in `open`.
        let code = unsafe { self.ops.capability?(self.state, &raw mut now) };
        (code == 0 && now.space > 0).then_some((now.space, now.space_free))
    }

    pub(crate) fn can(&self, kind: u32) -> bool {
        self.capability.kinds & (1 << kind) != 0
    }

    /// Most bytes of one operation.
    pub(crate) fn most(&self) -> u64 {
        if self.capability.max_len == 0 { u64::MAX } else { self.capability.max_len }
    }

    /// Carries out one operation, and waits for its evidence.
    ///
    /// # Safety
    /// `op.buf` is valid for `op.len` bytes until this returns: for writing if the operation fills it, else for reading.
    pub(crate) unsafe fn call(&self, mut op: abi::Op) -> Result<Answer> {
        let submit = self.ops.submit.ok_or_else(|| Error::internal("a backend without submit"))?;
        let id = NEXT.fetch_add(1, Ordering::Relaxed);
        let waiting = Arc::<Waiting>::default();
        lock(&FLIGHT).insert(id, waiting.clone());
        op.tag = id as *mut c_void;
        // SAFETY: one operation, which lives until its evidence has come; the caller answers for its memory.
        let code = unsafe { submit(self.state, &raw const op, 1, Some(done), id as *mut c_void) };
        if code != 0 {
            lock(&FLIGHT).remove(&id);
            return Err(failure(code, NOT_APPLIED, "").context(format!("backend {} took no operation", self.name)));
        }
        let looks = matches!(op.kind, abi::READ | abi::STAT | abi::LIST);
        let told = |e: Error| {
            let e = if looks { e.with_outcome(Outcome::NotApplied) } else { e };
            e.context(format!("backend {}", self.name))
        };
        let mut slot = lock(&waiting.slot);
        loop {
            // There is no giving up: the memory is lent until the evidence, and backends keep deadlines.
            match slot.take() {
                Some(answer) => return answer.map_err(told),
                None => slot = waiting.arrived.wait(slot).unwrap_or_else(PoisonError::into_inner),
            }
        }
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        if let Some(destroy) = self.ops.destroy {
            // SAFETY: all evidence has come, since every call waits for its own; nobody uses the state any more.
            unsafe { destroy(self.state) };
        }
    }
}
