//! The other way round: a [`Backend`] of this project as a table of C functions, for programs that load it at run time.

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    panic::{AssertUnwindSafe, catch_unwind},
    ptr,
    sync::Arc,
};

use iov_store::{Backend, Memory, OpCx, Sink, run_one};
use iov_types::{
    Caller, Capability, Demand, Error, Evidence, Kind, ObjectId, ObjectOp, ObjectVerb, Outcome, Persistence, Priority,
    Range, Result, Uuid,
};

use crate::{
    abi::{self, Ops},
    table::{level, number},
};

/// What [`table`] makes a table of.
pub trait Exported {
    /// The name that it tells.
    const NAME: &'static CStr;

    /// Opens a target with a configuration of its own.
    fn open(config: &str) -> Result<Arc<dyn Backend>>;
}

/// A table, for [`export_backend!`](crate::export_backend) or a static.
pub const fn table<E: Exported>() -> Ops {
    Ops {
        size: size_of::<Ops>() as u32,
        reserved0: 0,
        name: E::NAME.as_ptr(),
        init: Some(init::<E>),
        destroy: Some(destroy),
        capability: Some(capability),
        allocate: None,
        free: None,
        submit: Some(submit),
        grant: None,
        release: None,
    }
}

/// Exports a table from a shared object, under the name that programs look for.
#[macro_export]
macro_rules! export_backend {
    ($exported:ty) => {
        static TABLE: $crate::abi::Ops = $crate::export::table::<$exported>();

        /// The entry of this shared object (`ioverbs.h`).
        // SAFETY: no other symbol of the shared object has this name.
        #[unsafe(no_mangle)]
        pub extern "C" fn iov_backend_ops_v1() -> *const $crate::abi::Ops {
            &raw const TABLE
        }
    };
}

/// The state behind a table.
struct State(Arc<dyn Backend>);

unsafe extern "C" fn init<E: Exported>(config: *const c_char, _: *const abi::Host, state: *mut *mut c_void) -> c_int {
    if config.is_null() || state.is_null() {
        return -Kind::Invalid.code();
    }
    // SAFETY: a string, by `ioverbs.h`.
    let config = unsafe { CStr::from_ptr(config) };
    let opened = catch_unwind(|| {
        let config = config.to_str().map_err(|_| Error::invalid("the configuration is not UTF-8"))?;
        E::open(config)
    });
    match opened {
        Ok(Ok(backend)) => {
            // SAFETY: not null, and for this to write to.
            unsafe { *state = Box::into_raw(Box::new(State(backend))).cast() };
            0
        }
        Ok(Err(e)) => -e.code(),
        Err(_) => -Kind::Internal.code(),
    }
}

unsafe extern "C" fn destroy(state: *mut c_void) {
    if !state.is_null() {
        // SAFETY: from `init`, and nobody uses it any more.
        drop(unsafe { Box::from_raw(state.cast::<State>()) });
    }
}

unsafe extern "C" fn capability(state: *mut c_void, out: *mut abi::Capability) -> c_int {
    if state.is_null() || out.is_null() {
        return -Kind::Invalid.code();
    }
    // SAFETY: from `init`.
    let can = unsafe { &*state.cast::<State>() }.0.capability();
    let mut told = abi::capability();
    told.kinds = kinds(can);
    told.unit = can.max_unit;
    told.incarnation = can.incarnation;
    told.durability = number(Some(can.durability));
    // SAFETY: the caller says how much there is; no more is written.
    unsafe {
        let size = (*out).size.min(told.size);
        told.size = size;
        ptr::copy_nonoverlapping((&raw const told).cast::<u8>(), out.cast::<u8>(), size as usize);
    }
    0
}

fn kinds(can: &Capability) -> u64 {
    let stages = [abi::STAGE, abi::PUBLISH, abi::DISCARD];
    (abi::CREATE..=abi::LIST).filter(|kind| can.staging || !stages.contains(kind)).map(|kind| 1 << kind).sum()
}

fn id(object: &abi::Object) -> ObjectId {
    ObjectId { collection: Uuid(object.collection), slot: object.slot }
}

/// What an operation asks for; `None`: there is no such kind.
fn verb(op: &abi::Op) -> Option<ObjectVerb> {
    let range = Range { offset: op.offset, len: op.len };
    let stage = Uuid(op.batch);
    Some(match op.kind {
        abi::CREATE => ObjectVerb::Create,
        abi::WRITE => ObjectVerb::Write { offset: op.offset },
        abi::READ => ObjectVerb::Read { offset: op.offset },
        abi::APPEND => ObjectVerb::Append,
        abi::TRUNCATE => ObjectVerb::Truncate { size: op.len },
        abi::PUNCH => ObjectVerb::Punch(range),
        abi::COPY => {
            let source = id(&op.source);
            ObjectVerb::Copy { source, source_offset: op.source_offset, offset: op.offset, len: op.len }
        }
        abi::SYNC => ObjectVerb::Sync,
        abi::SEAL => ObjectVerb::Seal,
        abi::FENCE => ObjectVerb::Fence { epoch: op.expect_epoch },
        abi::STAGE if op.buf.is_null() => ObjectVerb::Truncate { size: op.len },
        abi::STAGE => ObjectVerb::Write { offset: op.offset },
        abi::PUBLISH => ObjectVerb::Publish { stage },
        abi::DISCARD => ObjectVerb::Discard { stage },
        abi::REMOVE => ObjectVerb::Remove,
        abi::STAT => ObjectVerb::Stat,
        abi::LIST => {
            let max = op.len as usize / size_of::<abi::Object>();
            let after = (op.object != abi::Object::default()).then(|| id(&op.object));
            ObjectVerb::List { after, max }
        }
        _ => return None,
    })
}

/// The memory that goes with an operation.
fn memory(op: &abi::Op) -> Memory {
    let len = op.len as usize;
    match op.kind {
        // SAFETY: `ioverbs.h` lends `buf` until the evidence, for writing where the operation fills it.
        abi::READ if !op.buf.is_null() => unsafe { Memory::writable(op.buf.cast(), len) },
        // SAFETY: as above.
        abi::WRITE | abi::APPEND | abi::STAGE if !op.buf.is_null() => unsafe { Memory::readable(op.buf.cast(), len) },
        _ => Memory::default(),
    }
}

/// Where evidence goes.
struct Back {
    done: unsafe extern "C" fn(*mut c_void, *const abi::Evidence),
    sink: *mut c_void,
    op: abi::Op,
}

// SAFETY: by `ioverbs.h` evidence may be given from any thread, and the operation's memory is lent until then.
unsafe impl Send for Back {}
// SAFETY: as above.
unsafe impl Sync for Back {}

impl Sink for Back {
    fn complete(&self, _: usize, result: Result<Evidence>) {
        let mut told = abi::evidence();
        told.tag = self.op.tag;
        let detail;
        match result {
            Ok(e) => {
                told.outcome = Outcome::Applied as u8;
                told.bytes = match self.op.kind {
                    abi::STAT => e.size,
                    abi::LIST => self.list(&e.objects),
                    _ => e.bytes,
                };
                (told.offset, told.version, told.epoch) = (e.offset, e.version, e.epoch);
                // 0 would say that it is not told.
                (told.allocated, told.mtime_ns) = (e.allocated.max(1), e.mtime_ns);
                told.durability = number(e.durability.or(Some(Persistence::Volatile)));
            }
            Err(e) => {
                (told.code, told.outcome) = (-e.code(), e.outcome() as u8);
                detail = CString::new(e.detail().replace('\0', " ")).unwrap_or_default();
                told.detail = detail.as_ptr();
                // SAFETY: both live until this returns.
                unsafe { (self.done)(self.sink, &raw const told) };
                return;
            }
        }
        // SAFETY: the evidence lives until this returns.
        unsafe { (self.done)(self.sink, &raw const told) };
    }
}

impl Back {
    /// Fills the memory of a `LIST`; how many bytes of it.
    fn list(&self, objects: &[ObjectId]) -> u64 {
        let room = self.op.len as usize / size_of::<abi::Object>();
        for (at, object) in objects.iter().take(room).enumerate() {
            let object = abi::Object { collection: object.collection.0, slot: object.slot };
            // SAFETY: inside the memory that is lent, whatever its alignment.
            unsafe { self.op.buf.cast::<abi::Object>().add(at).write_unaligned(object) };
        }
        (objects.len().min(room) * size_of::<abi::Object>()) as u64
    }
}

unsafe extern "C" fn submit(
    state: *mut c_void,
    ops: *const abi::Op,
    n: usize,
    done: abi::Done,
    sink: *mut c_void,
) -> c_int {
    let Some(done) = done.filter(|_| !state.is_null() && !ops.is_null()) else { return -Kind::Invalid.code() };
    // SAFETY: from `init`.
    let backend = unsafe { &*state.cast::<State>() }.0.clone();
    let mut at = ops.cast::<u8>();
    for _ in 0..n {
        let mut op = abi::op(0);
        // SAFETY: `n` operations, each as long as it says; no more is read than both sides know.
        unsafe {
            let size = at.cast::<u32>().read_unaligned();
            ptr::copy_nonoverlapping(at, (&raw mut op).cast::<u8>(), (size as usize).min(size_of::<abi::Op>()));
            at = at.add(size as usize);
        }
        let back = Arc::new(Back { done, sink, op });
        let run = AssertUnwindSafe(|| start(&*backend, &op, back.clone()));
        if catch_unwind(run).is_err() {
            back.complete(0, Err(Error::internal("the backend panicked").with_outcome(Outcome::Unknown)));
        }
    }
    0
}

fn start(backend: &dyn Backend, op: &abi::Op, back: Arc<Back>) {
    let Some(verb) = verb(op) else {
        return back.complete(0, Err(Error::unsupported(format!("operation {}", op.kind))));
    };
    let caller = Caller { uid: 0, gid: 0, groups: Vec::new(), session: Uuid::NIL, holder: Uuid::NIL };
    let deadline_ns = if op.deadline_ns == 0 { i64::MAX } else { op.deadline_ns };
    let priority = if op.priority == 0 { Priority::Foreground } else { Priority::Background };
    let cx = OpCx { caller, deadline_ns, batch: Uuid::NIL, priority, unheard: false };
    let object = id(&op.object);
    let stat = || {
        let op = ObjectOp { object, verb: ObjectVerb::Stat, demand: Demand::default() };
        run_one(backend, &cx, op, Memory::default())
    };
    if op.kind == abi::STAT {
        // An object that was never made is empty here, and not there for who asks.
        let list = ObjectVerb::List { after: before(object), max: 1 };
        let list = ObjectOp { object, verb: list, demand: Demand::default() };
        let there = run_one(backend, &cx, list, Memory::default());
        if there.is_ok_and(|found| found.objects.first() != Some(&object)) {
            return back.complete(0, Err(Error::not_found("there is no such object")));
        }
    }
    if op.expect_version != 0 && stat().is_ok_and(|found| found.version != op.expect_version) {
        return back.complete(0, Err(Error::conflict("the object has another version")));
    }
    let mut demand = Demand { durability: level(op.durability), ..Demand::default() };
    match op.kind {
        abi::FENCE => {}
        _ => demand.epoch = op.expect_epoch,
    }
    match op.kind {
        abi::STAGE => demand.stage = Some(Uuid(op.batch)),
        abi::APPEND if op.batch != [0; 16] => demand.batch = Some((Uuid(op.batch), 0)),
        _ => {}
    }
    backend.submit(&cx, vec![(ObjectOp { object, verb, demand }, memory(op))], back);
}

/// The object just before another one, to list from; `None`: from the first on.
fn before(object: ObjectId) -> Option<ObjectId> {
    if object.slot > 0 {
        return Some(ObjectId { slot: object.slot - 1, ..object });
    }
    let number = u128::from_be_bytes(object.collection.0).checked_sub(1)?;
    Some(ObjectId { collection: Uuid(number.to_be_bytes()), slot: u64::MAX })
}
