//! Backends that do not do what they say: what they do wrong is told, and nobody is damaged by it.

use std::{
    ffi::{c_char, c_int, c_void},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU32, Ordering},
    },
};

use iov_store::{Backend, conformance::Probe, seam};
use iov_types::{Clause, Kind, ObjectVerb, Outcome, Persistence};

use super::setup;
use crate::{
    Source,
    abi::{self, Ops},
    open,
};

/// How the backend of this file misbehaves: one at a time.
static HOW: AtomicU32 = AtomicU32::new(0);
static TURN: Mutex<()> = Mutex::new(());

const SHORT_READ: u32 = 1;
const WRONG_SUM: u32 = 2;
const TWICE: u32 = 3;
const NO_LEVEL: u32 = 4;
const ENDLESS_LIST: u32 = 5;
const STRANGE_ERROR: u32 = 6;
const TINY_EVIDENCE: u32 = 7;
const TAKES_NOTHING: u32 = 8;
const LATE_ANSWER: u32 = 9;
const SHORT_WRITE: u32 = 10;
const LONG_LIST: u32 = 11;
const NO_PUBLISH: u32 = 12;
const NO_SYNC: u32 = 13;
const SAYS_NO_OUTCOME: u32 = 14;
/// The levels that STAGE, PUBLISH and DISCARD were to reach.
static LEVELS: Mutex<Vec<(u32, u8)>> = Mutex::new(Vec::new());

unsafe extern "C" fn init(_: *const c_char, _: *const abi::Host, _: *mut *mut c_void) -> c_int {
    0
}

unsafe extern "C" fn destroy(_: *mut c_void) {}

unsafe extern "C" fn capability(_: *mut c_void, out: *mut abi::Capability) -> c_int {
    // SAFETY: the loader passes its own.
    unsafe {
        (*out).kinds = 0x1_fffe;
        (*out).durability = 3;
    }
    0
}

unsafe extern "C" fn submit(
    _: *mut c_void,
    ops: *const abi::Op,
    _: usize,
    done: abi::Done,
    sink: *mut c_void,
) -> c_int {
    // SAFETY: the loader passes one operation.
    let (op, done) = (unsafe { *ops }, done.unwrap());
    let how = HOW.load(Ordering::Relaxed);
    let mut e = abi::evidence();
    (e.tag, e.bytes, e.outcome, e.durability) = (op.tag, op.len, 1, op.durability);
    if op.kind == abi::STAT {
        e.bytes = 100;
    }
    if matches!(op.kind, abi::STAGE | abi::PUBLISH | abi::DISCARD) {
        LEVELS.lock().unwrap().push((op.kind, op.durability));
    }
    match (how, op.kind) {
        (NO_PUBLISH, abi::PUBLISH) | (NO_SYNC, abi::SYNC) => (e.code, e.outcome) = (-Kind::Unavailable.code(), 3),
        (SHORT_READ, abi::READ) => e.bytes = 3,
        (WRONG_SUM, abi::READ) => (e.checksum_kind, e.checksum) = (abi::CHECKSUM_CRC32C, 0xdead_beef),
        (NO_LEVEL, abi::WRITE | abi::SYNC) => e.durability = 1,
        // The one that was listed last, again and again.
        (ENDLESS_LIST, abi::LIST) => {
            // SAFETY: there is room for more than one.
            unsafe { op.buf.cast::<abi::Object>().write(op.object) };
            e.bytes = 24;
        }
        (LONG_LIST, abi::LIST) => e.bytes = op.len + 24,
        (STRANGE_ERROR, abi::WRITE) => e.code = -4711,
        (TINY_EVIDENCE, abi::WRITE) => e.size = 3,
        (SAYS_NO_OUTCOME, abi::WRITE) => (e.code, e.outcome) = (-Kind::Unavailable.code(), 0),
        (SHORT_WRITE, abi::WRITE) => e.bytes = 3,
        (TAKES_NOTHING, abi::WRITE) => return -Kind::Busy.code(),
        (LATE_ANSWER, abi::WRITE) => {
            let (sink, op) = (sink as usize, op.tag as usize);
            let answer = move || {
                seam::sleep(20_000_000);
                let mut e = abi::evidence();
                (e.tag, e.bytes, e.outcome) = (op as *mut c_void, 1, 1);
                // SAFETY: as below, from another thread.
                unsafe { done(sink as *mut c_void, &raw const e) };
            };
            seam::spawn("late", answer).unwrap();
            return 0;
        }
        _ => {}
    }
    // SAFETY: the evidence lives until it returns.
    unsafe {
        done(sink, &raw const e);
        if how == TWICE {
            done(sink, &raw const e);
        }
    }
    0
}

static BAD: Ops = Ops {
    size: size_of::<Ops>() as u32,
    reserved0: 0,
    name: c"bad".as_ptr(),
    init: Some(init),
    destroy: Some(destroy),
    capability: Some(capability),
    allocate: None,
    free: None,
    submit: Some(submit),
    grant: None,
    release: None,
};

/// With an object of 100 bytes on a backend that misbehaves.
fn with<T>(how: u32, body: impl FnOnce(Probe) -> T) -> T {
    let _turn = TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    HOW.store(how, Ordering::Relaxed);
    let target: Arc<dyn Backend> = Arc::new(open(&Source::Linked(&BAD), setup("")).unwrap());
    body(Probe::new(&target, 1))
}

#[test]
fn i1_bytes_that_are_not_all_or_not_right_are_an_error() {
    for how in [SHORT_READ, WRONG_SUM] {
        let e = with(how, |object| object.read(0, 50).unwrap_err());
        assert!(e.kind() == Kind::Corrupt && e.detail().contains("backend bad"), "{e}");
    }
    let e = with(SHORT_WRITE, |object| object.write(0, b"bytes").unwrap_err());
    assert_eq!((e.kind(), e.outcome()), (Kind::Unavailable, Outcome::Unknown), "{e}");
}

#[test]
fn p5_a_level_that_was_not_reached_is_not_acknowledged() {
    let durable = |object: Probe| object.with(|d| d.durability = Some(Persistence::Durable));
    let e = with(NO_LEVEL, |object| durable(object).write(0, b"bytes").unwrap_err());
    assert!(e.kind() == Kind::Internal && e.detail().contains("persistence=durable"), "{e}");
    let e = with(NO_LEVEL, |object| durable(object).call(ObjectVerb::Sync).unwrap_err());
    assert_eq!(e.kind(), Kind::Internal);
}

#[test]
fn answers_that_make_no_sense_are_told_and_harm_nobody() {
    with(TWICE, |object| {
        for _ in 0..100 {
            object.write(0, b"bytes").unwrap();
        }
    });
    with(LATE_ANSWER, |object| object.write(0, b"x").unwrap());
    for how in [ENDLESS_LIST, LONG_LIST] {
        let e = with(how, |object| object.call(ObjectVerb::List { after: None, max: 5000 }).unwrap_err());
        assert_eq!(e.kind(), Kind::Internal, "{e}");
    }
    for (how, words) in [(STRANGE_ERROR, "-4711"), (TINY_EVIDENCE, "IOV_EVIDENCE_INIT")] {
        let e = with(how, |object| object.write(0, b"x").unwrap_err());
        assert!(e.kind() == Kind::Internal && e.detail().contains(words), "{e}");
    }
    let e = with(TAKES_NOTHING, |object| object.write(0, b"x").unwrap_err());
    assert_eq!((e.kind(), e.outcome()), (Kind::Busy, Outcome::NotApplied), "{e}");
}

/// What a backend has refused was not written: nothing is in doubt, and it may be written again (O7, P8).
#[test]
fn p8_a_durable_write_that_was_refused_condemns_nothing() {
    with(TAKES_NOTHING, |object| {
        let durable = object.with(|d| d.durability = Some(Persistence::Durable));
        let e = durable.write(0, b"x").unwrap_err();
        assert_eq!(
            (e.kind(), e.outcome(), e.clause() == Some(Clause::P8)),
            (Kind::Busy, Outcome::NotApplied, false),
            "{e}"
        );
        HOW.store(0, Ordering::Relaxed);
        durable.write(0, b"x").unwrap();
    });
}

/// What may have been written, and was not synced, is not safe later either, where the backend does not say what it has done (P8).
#[test]
fn p8_a_durable_write_of_which_nothing_is_told_is_in_doubt() {
    for how in [SAYS_NO_OUTCOME, TINY_EVIDENCE] {
        with(how, |object| {
            let durable = object.with(|d| d.durability = Some(Persistence::Durable));
            let e = durable.write(0, b"x").unwrap_err();
            assert_eq!(e.outcome(), Outcome::Unknown, "{e}");
            HOW.store(0, Ordering::Relaxed);
            let e = durable.call(ObjectVerb::Sync).unwrap_err();
            assert_eq!(e.clause(), Some(Clause::P8), "{e}");
        });
    }
}

/// What was staged under a sync reaches the backend with the level of that (P3, P5).
#[test]
fn p3_a_stage_is_handed_over_with_what_it_must_survive() {
    with(0, |object| {
        LEVELS.lock().unwrap().clear();
        let staged = object.staged(1);
        staged.write(0, b"bytes").unwrap();
        staged.with(|d| d.durability = Some(Persistence::Durable)).call(ObjectVerb::Sync).unwrap();
        object.freeze(1).unwrap();
        object.publish(1).unwrap();
        assert_eq!(*LEVELS.lock().unwrap(), [(abi::STAGE, 3), (abi::PUBLISH, 3)]);
    });
}

/// Behind point P nobody sees the old bytes, nor writes to them, before the publication has come through (B3).
#[test]
fn b3_an_object_whose_publication_failed_stays_frozen() {
    with(NO_PUBLISH, |object| {
        object.staged(1).write(0, b"new").unwrap();
        object.freeze(1).unwrap();
        let e = object.publish(1).unwrap_err();
        assert_eq!((e.kind(), e.outcome()), (Kind::Unavailable, Outcome::Unknown), "{e}");
        let soon = object.patient(20_000_000);
        assert_eq!(soon.read(0, 3).unwrap_err().kind(), Kind::Timeout);
        assert_eq!(soon.write(0, b"x").unwrap_err().kind(), Kind::Timeout);
        HOW.store(0, Ordering::Relaxed);
        object.publish(1).unwrap();
        object.read(0, 3).unwrap();
    });
}

/// What was handed over for a publication that failed is dropped there too, and handed over anew if more was staged.
#[test]
fn b3_nothing_of_a_stage_is_left_at_the_backend() {
    let kinds = || LEVELS.lock().unwrap().drain(..).map(|(kind, _)| kind).collect::<Vec<_>>();
    with(NO_PUBLISH, |object| {
        kinds();
        object.staged(1).write(0, b"new").unwrap();
        object.publish(1).unwrap_err();
        object.discard(1).unwrap();
        assert_eq!(kinds(), [abi::STAGE, abi::PUBLISH, abi::DISCARD]);
        object.discard(1).unwrap();
        assert_eq!(kinds(), [], "and that is all");
        HOW.store(0, Ordering::Relaxed);
        object.staged(2).write(0, b"new").unwrap();
        object.freeze(2).unwrap();
        object.freeze(2).unwrap();
        object.staged(2).write(500, b"more").unwrap();
        object.publish(2).unwrap();
        let twice = [abi::STAGE, abi::DISCARD, abi::STAGE, abi::STAGE, abi::PUBLISH];
        assert_eq!(kinds(), twice, "once for both freezes, and once more with what came behind them");
    });
}

#[test]
fn p8_what_a_sync_has_failed_for_is_not_taken_for_safe_later() {
    with(NO_SYNC, |object| {
        let durable = object.with(|d| d.durability = Some(Persistence::Durable));
        object.write(0, b"bytes").unwrap();
        assert_eq!(durable.call(ObjectVerb::Sync).unwrap_err().clause(), Some(iov_types::Clause::P8));
        HOW.store(0, Ordering::Relaxed);
        for e in [durable.call(ObjectVerb::Sync).unwrap_err(), durable.write(0, b"more").unwrap_err()] {
            assert_eq!((e.kind(), e.clause()), (Kind::Corrupt, Some(iov_types::Clause::P8)), "{e}");
        }
        object.write(0, b"not durable").unwrap();
    });
}

#[test]
fn tables_that_lack_something_are_not_taken() {
    let fails = |table: Ops| match open(&Source::Linked(Box::leak(Box::new(table))), setup("")) {
        Err(e) => (e.kind(), e.detail().to_owned()),
        Ok(_) => panic!("it was taken"),
    };
    let table = || Ops { ..BAD };
    let (kind, words) = fails(Ops { size: 40, ..table() });
    assert!(kind == Kind::Version && words.contains("40 bytes"), "{words}");
    let (kind, words) = fails(Ops { submit: None, ..table() });
    assert!(kind == Kind::Invalid && words.contains("submit"), "{words}");
    unsafe extern "C" fn poor(_: *mut c_void, out: *mut abi::Capability) -> c_int {
        // SAFETY: the loader passes its own.
        unsafe { (*out).kinds = 1 << abi::READ | 1 << abi::STAT };
        0
    }
    let (kind, words) = fails(Ops { capability: Some(poor), ..table() });
    assert!(kind == Kind::Unsupported && words.contains("CREATE, WRITE, TRUNCATE"), "{words}");
    unsafe extern "C" fn aligned(state: *mut c_void, out: *mut abi::Capability) -> c_int {
        // SAFETY: as above.
        unsafe {
            capability(state, out);
            (*out).alignment = 4096;
        }
        0
    }
    let (kind, words) = fails(Ops { capability: Some(aligned), ..table() });
    assert!(kind == Kind::Unsupported && words.contains("4096"), "{words}");
}
