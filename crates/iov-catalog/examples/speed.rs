//! How fast the catalog alone is, on the memory engine: `cargo run --release -p iov-catalog --example speed [COLLECTIONS]`.
//!
//! One thread, one group, 24-byte names, two user keys of which one is indexed; 1,000 operations in a request.

use std::{sync::Arc, time::Instant};

use iov_catalog::{Options, Service};
use iov_store::{Heap, MemoryStore, OpCx, ask, seam};
use iov_types::{
    Caller, Controls, EntryKind, Metadata, Name, Result, Uuid, Value, Which, WorkspaceAttr,
    catalog::{CatalogOp, Submission},
};

const BATCH: usize = 1000;

fn main() -> Result<()> {
    let n: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    let targets = Arc::new(Heap::new(iov_semantics::stores::mem(1)));
    let options = Options { single_user: true, uid: 1, lease_ns: i64::MAX, inline_bytes: 0, store_uuid: Uuid::NIL };
    let service = Service::open(Arc::new(MemoryStore::new()), targets, options)?;
    let session = seam::new_uuid();
    let caller = Caller { uid: 1, gid: 1, groups: Vec::new(), session, holder: session };
    let cx = OpCx::new(caller, i64::MAX);
    let ws = seam::new_uuid();
    let attr = WorkspaceAttr { indexes: vec!["step".into()], ..WorkspaceAttr::default() };
    run(&service, &cx, vec![CatalogOp::WorkspaceCreate { uuid: ws, name: Name::new("speed")?, attr }])?;

    let uuids: Vec<Uuid> = (0..n).map(|_| seam::new_uuid()).collect();
    let creates = batches(n, |i| create(ws, uuids[i], i));
    timed("create", n, || creates.into_iter().try_for_each(|ops| run(&service, &cx, ops)))?;
    let closes = batches(n, |i| CatalogOp::Close { ws, uuid: uuids[i], published: None });
    timed("close", n, || closes.into_iter().try_for_each(|ops| run(&service, &cx, ops)))?;
    // In no order: neighbours in time are not neighbours in a program's mind.
    let stats = batches(n, |i| CatalogOp::Stat { ws, uuid: uuids[i.wrapping_mul(7919) % n] });
    timed("stat", n, || stats.into_iter().try_for_each(|ops| run(&service, &cx, ops)))?;
    let opens = batches(n, |i| {
        let which = Which::Name(name(i));
        CatalogOp::Open { ws, parent: Uuid::NIL, which, kind: EntryKind::Collection, controls: Controls::default() }
    });
    timed("open by name", n, || opens.into_iter().try_for_each(|ops| run(&service, &cx, ops)))?;
    let closes = batches(n, |i| CatalogOp::Close { ws, uuid: uuids[i], published: None });
    timed("close", n, || closes.into_iter().try_for_each(|ops| run(&service, &cx, ops)))?;
    let deletes = batches(n, |i| CatalogOp::Delete { ws, parent: Uuid::NIL, which: Which::Name(name(i)) });
    timed("delete", n, || deletes.into_iter().try_for_each(|ops| run(&service, &cx, ops)))?;
    println!("{:?}", service.stats());
    Ok(())
}

fn name(i: usize) -> Name {
    Name::new(format!("run-{:020}", i.wrapping_mul(2_654_435_761) % 1_000_000_007)).expect("24 plain characters")
}

fn create(ws: Uuid, uuid: Uuid, i: usize) -> CatalogOp {
    let mut metadata = Metadata::new();
    metadata.set("step", Value::I64(i as i64)).expect("a user key");
    metadata.set("experiment", Value::Str("nacelle".into())).expect("a user key");
    CatalogOp::Create {
        ws,
        uuid,
        kind: EntryKind::Collection,
        parent: Uuid::NIL,
        name: Some(name(i)),
        metadata,
        controls: Controls::default(),
        layout: None,
        attr: Default::default(),
    }
}

fn batches(n: usize, op: impl Fn(usize) -> CatalogOp) -> Vec<Vec<CatalogOp>> {
    (0..n).step_by(BATCH).map(|from| (from..n.min(from + BATCH)).map(&op).collect()).collect()
}

fn run(service: &Service, cx: &OpCx, ops: Vec<CatalogOp>) -> Result<()> {
    for reply in ask(service, cx, ops, Submission::Each)? {
        reply?;
    }
    Ok(())
}

fn timed(what: &str, n: usize, work: impl FnOnce() -> Result<()>) -> Result<()> {
    let start = Instant::now();
    work()?;
    let seconds = start.elapsed().as_secs_f64();
    println!("{what:>12}: {:>9.0}/s", n as f64 / seconds);
    Ok(())
}
