//! One example of every verb: what the golden bytes hold. Together they hold every field, variant and tag.

mod facts;

use iov_types::catalog::{CatalogReply, Presented, PresentedLock, Staged, Submission};
use iov_types::*;
use iov_wire::messages::*;
use iov_wire::{Body, Header, Verb, frame};

const WS: Uuid = Uuid([0x11; 16]);
const COLLECTION: Uuid = Uuid([0x22; 16]);
const BATCH: Uuid = Uuid([0x33; 16]);
const SESSION: Uuid = Uuid([0x44; 16]);
const OBJECT: ObjectId = ObjectId { collection: COLLECTION, slot: 1 };
const CONTEXT: Context = Context { holder: SESSION, batch: BATCH };

pub(crate) fn hello() -> Hello {
    Hello {
        min_version: 1,
        max_version: 1,
        library: "0.1.0".into(),
        session: SESSION,
        program: "solver".into(),
        pid: 4711,
        channel: 2,
        challenge: vec![0x66; 32],
        target: 3,
        of: WS,
        rings: true,
    }
}

pub(crate) fn welcome() -> Welcome {
    let targets = TargetCapability {
        medium: "files".into(),
        durability: Persistence::Durable,
        max_unit: 1 << 20,
        staging: true,
        stage_bytes: 1 << 30,
        once: true,
        bursty: true,
        targets: 1,
        incarnation: 3,
    };
    Welcome {
        version: 1,
        store: Uuid([0x55; 16]),
        incarnation: 3,
        capability: StoreCapability { targets, max_ops: 1 << 20, single_user: true, inline_bytes: 8192 },
        daemon: "0.1.0".into(),
        pid: 815,
        lease_ns: 20_000_000_000,
        proof: vec![0x77; 32],
        addresses: vec!["node7-ib:4867".into(), "10.0.0.7:4867".into()],
        target: 3,
        priorities: true,
        rings: true,
    }
}

pub(crate) fn challenge() -> Challenge {
    Challenge { challenge: vec![0x88; 32] }
}

pub(crate) fn proof() -> Proof {
    Proof { proof: vec![0x99; 32] }
}

pub(crate) fn join() -> Join {
    Join {
        daemon: Uuid([0xaa; 16]),
        incarnation: 9,
        targets: vec![facts::target()],
        leaves: true,
        ready: true,
        catalog: Uuid([0xbb; 16]),
        store: Uuid([0x55; 16]),
    }
}

pub(crate) fn join_answer() -> JoinAnswer {
    JoinAnswer {
        store: Uuid([0x55; 16]),
        numbers: vec![1, 300],
        catalog: Uuid([0xbb; 16]),
        key: vec![0xcc; 32],
        nonce: vec![0xdd; 32],
        now_ns: 1_790_000_000_000_000_000,
        lease_ns: 30_000_000_000,
        beat_ns: 1_000_000_000,
        unfinished: vec![Uuid([0xee; 16])],
    }
}

fn metadata() -> Metadata {
    let mut metadata = Metadata::new();
    for (key, value) in [
        ("experiment", Value::Str("isothermal-0042".into())),
        ("step", Value::I64(-7)),
        ("temperature", Value::F64(293.15)),
        ("valid", Value::Bool(true)),
        ("sensor", Value::Bytes(vec![0, 255])),
        ("sampled", Value::Time(1_790_000_000_000_000_000)),
    ] {
        metadata.set(key, value).expect("a good key");
    }
    metadata
}

pub(crate) fn effective() -> Effective {
    Effective {
        consistency: Consistency::Eventual,
        eventual_ns: 5_000_000_000,
        concurrency: Concurrency::Exclusive,
        mutability: Mutability::Append,
        atomicity: Atomicity::Unit,
        atomic_unit: 4096,
        persistence: Persistence::Durable,
        point: Point::Batch,
        temporality: Temporality::Bursty,
        drain_ns: 60_000_000_000,
        spatiality: Spatiality::Strided,
        stride: 512,
        block: 128,
        request_size: Limits { min: 1, max: 47_008 },
        collection_size: Limits { min: 2, max: 1 << 40 },
        on_error: OnError::Rollback,
    }
}

fn controls() -> Controls {
    Controls::from(&effective())
}

fn place() -> Place {
    Place::new(7, 47_008).expect("a place")
}

fn layout() -> Layout {
    Layout {
        targets: 4,
        chunk_size: 1 << 20,
        redundancy: Some(Redundancy::Erasure),
        k: 6,
        m: 2,
        revision: 3,
        backend: Some("files".into()),
        policy: Some("spread".into()),
        place: place(),
    }
}

fn range() -> Range {
    Range { offset: 512, len: 1024 }
}

pub(crate) fn catalog_request() -> CatalogRequest {
    let staged = vec![Staged { workspace: WS, collection: COLLECTION, epoch: 2, place: place() }];
    CatalogRequest {
        context: CONTEXT,
        how: Submission::All { batch: BATCH, remember: true, staged },
        ops: facts::operations().into_iter().map(Ok).collect(),
    }
}

pub(crate) fn catalog_answer() -> CatalogAnswer {
    let taken = Error::exists("the name \"run-1.dat\" is taken").with_clause(Clause::O3);
    CatalogAnswer { failed: None, replies: facts::replies().into_iter().map(Ok).chain([Err(taken)]).collect() }
}

/// What goes with [`object_request`] as its payload.
const WRITTEN: &[u8] = b"some bytes";

fn verbs() -> Vec<ObjectVerb> {
    use ObjectVerb::*;
    vec![
        Create,
        Write { offset: 512 },
        Read { offset: 1 },
        Append,
        Truncate { size: 2 },
        Punch(range()),
        Copy { source: OBJECT, source_offset: 3, offset: 4, len: 5 },
        Sync,
        Seal,
        Fence { epoch: 6 },
        Freeze { stage: BATCH },
        Publish { stage: BATCH },
        Discard { stage: BATCH },
        Remove,
        Stat,
        List { after: Some(OBJECT), max: 7 },
        Allocate { range: range(), keep_size: true },
        Extents { range: range(), max: 8 },
        Thaw { stage: BATCH },
    ]
}

pub(crate) fn object_request() -> ObjectRequest {
    let demand = Demand {
        stage: Some(Uuid([0x88; 16])),
        batch: Some((BATCH, 5)),
        epoch: 2,
        durability: Some(Persistence::Process),
        unit: 4096,
        max_size: 1 << 40,
        once: true,
        pattern: None,
        domain: None,
    };
    let call = |verb: ObjectVerb| {
        let (len, checksum) = match verb {
            ObjectVerb::Write { .. } => (WRITTEN.len() as u64, Some(frame::checksum(WRITTEN))),
            ObjectVerb::Read { .. } => (4096, None),
            _ => (0, None),
        };
        ObjectCall { op: Ok(ObjectOp { object: OBJECT, verb, demand: demand.clone() }), len, checksum }
    };
    ObjectRequest {
        context: CONTEXT,
        calls: verbs().into_iter().map(call).collect(),
        tickets: vec![vec![5; 40], vec![6]],
    }
}

pub(crate) fn object_answer() -> ObjectAnswer {
    let kinds = [ExtentKind::Data, ExtentKind::Hole, ExtentKind::Allocated, ExtentKind::Abandoned];
    let evidence = Evidence {
        bytes: 1,
        offset: 2,
        size: 3,
        allocated: 4,
        version: 5,
        epoch: 6,
        mtime_ns: 7,
        durability: Some(Persistence::Replicated),
        extents: kinds.map(|kind| Extent { range: range(), kind, target: 9 }).to_vec(),
        objects: vec![OBJECT],
    };
    let late = Error::new(Kind::Timeout, "time is up").with_outcome(Outcome::Unknown);
    ObjectAnswer {
        failed: Some(Error::unavailable("the target is gone")),
        completions: vec![
            ObjectCompletion { index: 1, result: Ok(evidence), len: 2, checksum: Some(3) },
            ObjectCompletion { index: 0, result: Err(late), len: 0, checksum: None },
        ],
    }
}

pub(crate) fn grant_request() -> GrantRequest {
    let range = Range { offset: 0, len: 1 << 20 };
    GrantRequest {
        context: CONTEXT,
        object: OBJECT,
        range,
        access: Access::Write,
        epoch: 2,
        memory: true,
        anew: true,
        tickets: vec![vec![7, 8]],
    }
}

pub(crate) fn grant_answer() -> GrantAnswer {
    GrantAnswer::Granted(Granted {
        grant: 9,
        range: Range { offset: 0, len: 1 << 20 },
        position: 4096,
        access: Access::Write,
        epoch: 2,
        lease_ns: 30_000_000_000,
        kept: true,
        window: Some(Window {
            head_segment: 1,
            head_at: 4096,
            stretches: vec![Stretch { offset: 0, len: 1 << 20, segment: 2, at: 1 << 30 }],
            passed: vec![1, 2],
        }),
        version: 6,
    })
}

pub(crate) fn sums_request() -> SumsRequest {
    SumsRequest { context: CONTEXT, object: OBJECT, first: 3, runs: 16 }
}

pub(crate) fn sums_answer() -> SumsAnswer {
    SumsAnswer { failed: Some(Error::not_found("the collection was deleted")) }
}

pub(crate) fn take_back() -> TakeBack {
    TakeBack { context: CONTEXT, object: OBJECT }
}

pub(crate) fn take_back_answer() -> TakeBackAnswer {
    TakeBackAnswer { failed: Some(Error::busy("a program has it open")) }
}

pub(crate) fn recall() -> Recall {
    Recall { grant: 9, within_ns: 5_000_000_000 }
}

pub(crate) fn give_back() -> GiveBack {
    GiveBack { grant: 9 }
}

pub(crate) fn renew() -> Renew {
    Renew { lease_ns: 30_000_000_000 }
}

pub(crate) fn fault() -> Fault {
    Fault { error: Error::version("the peer sent verb 99, which this release does not know: update it") }
}

pub(crate) fn status_answer() -> StatusAnswer {
    let counters = vec![Counter { name: "round_trips".into(), value: 12 }];
    StatusAnswer { daemon: "0.1.0".into(), pid: 815, uptime_ns: 1_000_000_000, sessions: 2, connections: 3, counters }
}

pub(crate) fn resume() -> Resume {
    let opens = [EntryKind::Group, EntryKind::Collection].map(|kind| Presented {
        ws: WS,
        uuid: COLLECTION,
        kind,
        handles: 2,
        writers: 1,
        epoch: 3,
    });
    let locks = vec![PresentedLock { ws: WS, uuid: COLLECTION, lock: facts::lock() }];
    Resume { context: CONTEXT, opens: opens.to_vec(), stages: vec![BATCH], locks }
}

pub(crate) fn resume_answer() -> ResumeAnswer {
    let fenced = Error::fenced("the exclusive hold has passed on").with_clause(Clause::X1);
    let ended = Error::fenced("the lock has ended").with_clause(Clause::O11);
    let opens = vec![Ok(CatalogReply::Done), Err(fenced)];
    ResumeAnswer { opens, lost: vec![BATCH], locks: vec![Ok(CatalogReply::Done), Err(ended)] }
}

fn frame<B: Body>(body: &B, request: u64, payload_len: u64) -> (Verb, Vec<u8>) {
    let mut out = Vec::new();
    let header = Header { version: 1, deadline_left_ns: 60_000_000_000, payload_len, ..Header::new(B::VERB, request) };
    frame::append(header, body, &mut out).expect("a small frame");
    (B::VERB, out)
}

/// A frame of every verb, without payload.
pub(crate) fn frames() -> Vec<(Verb, Vec<u8>)> {
    vec![
        frame(&hello(), 1, 0),
        frame(&welcome(), 1, 0),
        frame(&catalog_request(), 2, 0),
        frame(&catalog_answer(), 2, 0),
        frame(&object_request(), 3, WRITTEN.len() as u64),
        frame(&object_answer(), 3, 0),
        frame(&grant_request(), 4, 0),
        frame(&grant_answer(), 4, 0),
        frame(&recall(), 0, 0),
        frame(&give_back(), 5, 0),
        frame(&renew(), 6, 0),
        frame(&Goodbye, 7, 0),
        frame(&fault(), 8, 0),
        frame(&StatusRequest, 9, 0),
        frame(&status_answer(), 9, 0),
        frame(&Shutdown, 10, 0),
        frame(&resume(), 11, 0),
        frame(&resume_answer(), 11, 0),
        frame(&sums_request(), 12, 0),
        frame(&sums_answer(), 12, 0),
        frame(&challenge(), 0, 0),
        frame(&proof(), 0, 0),
        frame(&join(), 13, 0),
        frame(&join_answer(), 13, 0),
        frame(&take_back(), 14, 0),
        frame(&take_back_answer(), 14, 0),
        frame(&Wake, 0, 0),
    ]
}
