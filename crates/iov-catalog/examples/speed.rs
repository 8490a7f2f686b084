//! How fast the catalog is in one thread: `cargo run --release -p iov-catalog --example speed [COLLECTIONS]`.
//!
//! One group, 24-byte names, two user keys of which one is indexed; 1,000 operations in a request. First over a store
//! that forgets every record, which leaves the work of the catalog itself; then over the memory engine.

use std::sync::Arc;

use bytes::Bytes;
use iov_catalog::{Options, Service};
use iov_store::{Commit, Heap, KeyRange, MemoryStore, MetadataStore, OpCx, Record, Snapshot, Txn, ask, seam};
use iov_types::{
    Caller, Controls, EntryKind, Metadata, Name, Result, Uuid, Value, Which, WorkspaceAttr,
    catalog::{CatalogOp, Submission},
};

const BATCH: usize = 1000;

/// Keeps workspaces and forgets everything in them.
struct Forgetful(MemoryStore);

impl MetadataStore for Forgetful {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        keys.iter()
            .map(|key| if b"RNI".contains(&key[0]) { Ok(None) } else { Ok(self.0.get(&[key])?.remove(0)) })
            .collect()
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        self.0.scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.0.snapshot()
    }

    fn commit(&self, mut txns: Vec<Txn>) -> Result<Vec<Commit>> {
        txns.iter_mut().for_each(|txn| txn.writes.retain(|(key, _)| !b"RNI".contains(&key[0])));
        self.0.commit(txns)
    }

    fn persist(&self) -> Result<()> {
        Ok(())
    }

    fn bytes(&self) -> u64 {
        0
    }
}

fn main() -> Result<()> {
    let n: usize = std::env::args().nth(1).and_then(|n| n.parse().ok()).unwrap_or(1_000_000);
    println!("the catalog alone");
    let bench = Bench::new(Arc::new(Forgetful(MemoryStore::new())), n)?;
    bench.timed("create", |i| bench.create(i))?;
    bench.timed("close", |i| bench.close(i))?;
    println!("over the memory engine");
    let bench = Bench::new(Arc::new(MemoryStore::new()), n)?;
    bench.timed("create", |i| bench.create(i))?;
    bench.timed("close", |i| bench.close(i))?;
    // In no order: neighbours in time are not neighbours in a program's mind.
    bench.timed("stat, cold", |i| bench.stat(i.wrapping_mul(7919) % n))?;
    bench.timed("stat, hot", |i| bench.stat(i.wrapping_mul(7919) % n))?;
    bench.timed("open by name", |i| bench.open(i))?;
    bench.timed("close", |i| bench.close(i))?;
    bench.timed("delete", |i| CatalogOp::Delete { ws: bench.ws, parent: Uuid::NIL, which: Which::Name(name(i)) })?;
    println!("{:?}", bench.service.stats());
    Ok(())
}

struct Bench {
    service: Service,
    cx: OpCx,
    ws: Uuid,
    uuids: Vec<Uuid>,
}

impl Bench {
    fn new(store: Arc<dyn MetadataStore>, n: usize) -> Result<Bench> {
        let targets = Arc::new(Heap::new(iov_semantics::stores::mem(1)));
        let options = Options { single_user: true, uid: 1, lease_ns: i64::MAX, inline_bytes: 0, store_uuid: Uuid::NIL };
        let service = Service::open(store, targets, options)?;
        let session = seam::new_uuid();
        let caller = Caller { uid: 1, gid: 1, groups: Vec::new(), session, holder: session };
        let uuids = (0..n).map(|_| seam::new_uuid()).collect();
        let bench = Bench { service, cx: OpCx::new(caller, i64::MAX), ws: seam::new_uuid(), uuids };
        let attr = WorkspaceAttr { indexes: vec!["step".into()], ..WorkspaceAttr::default() };
        bench.run(vec![CatalogOp::WorkspaceCreate { uuid: bench.ws, name: Name::new("speed")?, attr }])?;
        Ok(bench)
    }

    fn create(&self, i: usize) -> CatalogOp {
        let mut metadata = Metadata::new();
        metadata.set("step", Value::I64(i as i64)).expect("a user key");
        metadata.set("experiment", Value::Str("nacelle".into())).expect("a user key");
        CatalogOp::Create {
            ws: self.ws,
            uuid: self.uuids[i],
            kind: EntryKind::Collection,
            parent: Uuid::NIL,
            name: Some(name(i)),
            metadata,
            controls: Controls::default(),
            layout: None,
            attr: Default::default(),
            tell: false,
        }
    }

    fn close(&self, i: usize) -> CatalogOp {
        CatalogOp::Close { ws: self.ws, uuid: self.uuids[i], published: None }
    }

    fn stat(&self, i: usize) -> CatalogOp {
        CatalogOp::Stat { ws: self.ws, uuid: self.uuids[i] }
    }

    fn open(&self, i: usize) -> CatalogOp {
        let (which, kind) = (Which::Name(name(i)), EntryKind::Collection);
        CatalogOp::Open { ws: self.ws, parent: Uuid::NIL, which, kind, controls: Controls::default(), tell: None }
    }

    fn run(&self, ops: Vec<CatalogOp>) -> Result<()> {
        for reply in ask(&self.service, &self.cx, ops, Submission::Each)? {
            reply?;
        }
        Ok(())
    }

    fn timed(&self, what: &str, op: impl Fn(usize) -> CatalogOp) -> Result<()> {
        let n = self.uuids.len();
        let batches: Vec<Vec<CatalogOp>> =
            (0..n).step_by(BATCH).map(|from| (from..n.min(from + BATCH)).map(&op).collect()).collect();
        let start = seam::monotonic_ns();
        batches.into_iter().try_for_each(|ops| self.run(ops))?;
        println!("{what:>16}: {:>9.0}/s", n as f64 * 1e9 / (seam::monotonic_ns() - start) as f64);
        Ok(())
    }
}

fn name(i: usize) -> Name {
    Name::new(format!("run-{:020}", i.wrapping_mul(2_654_435_761) % 1_000_000_007)).expect("24 plain characters")
}
