//! A fuzzer of the C ABI that knows its structure: functions in random order, with handles open, stale and wrong, structs
//! of wrong sizes, texts of any kind. Nothing crashes, hangs, or is "a defect of the library".
//!
//! `IOV_FUZZ_SEED` and `IOV_FUZZ_CALLS` repeat or extend a run; `IOV_FUZZ_TRACE=1` names each call before it is made.

mod arguments;
mod ffi;
mod rng;
mod structs;

use std::collections::BTreeMap;

use arguments::{Arguments, Kind, World};
use ffi::{FUNCTIONS, Function};
use rng::Rng;

fn setting(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

fn function(name: &str) -> &'static Function {
    FUNCTIONS.iter().find(|f| f.name == name).expect("the table has every function")
}

/// What was called how often, and how often with success.
type Tally = BTreeMap<&'static str, (u64, u64, String)>;

fn step(f: &'static Function, rng: &mut Rng, world: &mut World, tally: &mut Tally) {
    let result = (f.call)(&mut Arguments { rng, world });
    assert!((f.check)(result), "{} returned {result}: {}", f.name, detail());
    let (calls, good, why) = tally.entry(f.name).or_default();
    *calls += 1;
    *good += u64::from(result >= 0);
    if result < 0 && *good == 0 {
        *why = detail();
    }
    world.harvest();
}

fn detail() -> String {
    let p = ioverbs_capi::library::iov_error_detail();
    // SAFETY: the library promises a text, until this thread's next failure.
    unsafe { std::ffi::CStr::from_ptr(p) }.to_string_lossy().into_owned()
}

/// What makes things comes more often than what ends them: the rest needs things to work on.
const MAKES: &[&str] = &[
    "iov_workspace_create",
    "iov_collection_create",
    "iov_collection_create",
    "iov_group_create",
    "iov_collection_lookup",
    "iov_batch_create",
    "iov_batch_start",
    "iov_wait",
    "iov_metadata_new",
    "iov_metadata_set_i64",
];
const ENDS: &[&str] = &["iov_open", "iov_close", "iov_workspace_close", "iov_collection_close", "iov_metadata_free"];

fn choose(rng: &mut Rng) -> &'static Function {
    if rng.percent(30) {
        return function(rng.of::<&str>(MAKES));
    }
    let f = rng.of(FUNCTIONS);
    if ENDS.contains(&f.name) && rng.percent(85) { choose(rng) } else { f }
}

/// Ends all that was ever opened, in the order in which a program would; most of it is closed already.
fn close_everything(world: &World) {
    use ioverbs_capi::{batch, collection, cursor, metadata, object::Handle, request, session, workspace};
    let of = |kind: Kind| world.all.iter().filter(move |(k, _)| *k == kind).map(|(_, h)| *h as u64);
    let fine = |code: i32| assert!((-1089..=0).contains(&code), "{code}: {}", detail());
    of(Kind::Request).for_each(|h| {
        fine(request::iov_wait(Handle::from_bits(h), -1));
        fine(request::iov_request_free(Handle::from_bits(h)));
    });
    of(Kind::Batch).for_each(|h| fine(batch::iov_batch_free(Handle::from_bits(h))));
    of(Kind::Cursor).for_each(|h| fine(cursor::iov_cursor_close(Handle::from_bits(h))));
    of(Kind::Metadata).for_each(|h| metadata::iov_metadata_free(Handle::from_bits(h)));
    for kind in [Kind::Collection, Kind::Group] {
        of(kind).for_each(|h| fine(collection::iov_collection_close(Handle::from_bits(0), Handle::from_bits(h))));
    }
    of(Kind::Workspace).for_each(|h| fine(workspace::iov_workspace_close(Handle::from_bits(h))));
    of(Kind::Session).for_each(|h| fine(session::iov_close(Handle::from_bits(h))));
}

#[test]
fn random_calls_never_crash_or_hang() {
    let seed = setting("IOV_FUZZ_SEED").unwrap_or(0x5eed);
    let long = std::env::var_os("IOV_TEST_LONG").is_some();
    let calls = setting("IOV_FUZZ_CALLS").unwrap_or(if long { 1_000_000 } else { 100_000 });
    let trace = setting("IOV_FUZZ_TRACE").is_some();
    println!("IOV_FUZZ_SEED={seed} IOV_FUZZ_CALLS={calls}");
    let (mut rng, mut world, mut tally) = (Rng::new(seed), World::new(), Tally::new());
    for _ in 0..20 {
        step(function("iov_open"), &mut rng, &mut world, &mut tally);
    }
    for i in 0..calls {
        let f = choose(&mut rng);
        if trace {
            eprintln!("{i} {}", f.name);
        }
        step(f, &mut rng, &mut world, &mut tally);
    }
    let never: Vec<_> =
        FUNCTIONS.iter().filter(|f| tally.get(f.name).is_none_or(|t| t.1 == 0)).map(|f| f.name).collect();
    never.iter().for_each(|name| println!("{name}: {:?}", tally.get(name)));
    let good: u64 = tally.values().map(|t| t.1).sum();
    println!("{} calls, {good} of them good; never good: {never:?}", tally.values().map(|t| t.0).sum::<u64>());
    // A fuzzer that is always refused tests nothing.
    assert!(calls < 50_000 || never.len() <= 4, "never good: {never:?}");
    close_everything(&world);
}
