//! The records of a session against a catalog that answers as it is told, on a clock that is set by hand.

use std::{
    cell::Cell,
    sync::atomic::{AtomicU64, Ordering},
};

use iov_store::{Answer, Catalog, CatalogCapability, OnAnswer, OpCx};
use iov_types::{
    Caller, Error, Layout, Name, Stat,
    catalog::{Published, RenameMode, Submission},
};

use super::*;

mod renewal;

thread_local! {
    static NOW: Cell<i64> = const { Cell::new(0) };
}

const LEASE: i64 = 30_000;
const WS: Uuid = Uuid([0xee; 16]);

fn uuid(n: u16) -> Uuid {
    let mut bytes = [7; 16];
    bytes[..2].copy_from_slice(&n.to_be_bytes());
    Uuid(bytes)
}

fn effective() -> iov_types::Effective {
    iov_semantics::resolve::create(&Controls::default(), &Controls::default(), &iov_semantics::stores::file(1)).unwrap()
}

/// A small sealed collection.
fn sealed(n: u16) -> Opened {
    Opened {
        ws: WS,
        uuid: uuid(n),
        kind: EntryKind::Collection,
        state: State::Sealed,
        effective: effective(),
        layout: Layout::default(),
        epoch: 0,
        writable: false,
        inline: true,
        size: Some(100),
        told: None,
    }
}

fn open_with(n: u16, controls: Controls) -> CatalogOp {
    let (kind, parent) = (EntryKind::Collection, Uuid::NIL);
    CatalogOp::Open { ws: WS, parent, which: Which::Uuid(uuid(n)), kind, controls, tell: None }
}

fn open(n: u16) -> CatalogOp {
    open_with(n, Controls::default())
}

fn delete(n: u16) -> CatalogOp {
    CatalogOp::Delete { ws: WS, parent: Uuid::NIL, which: Which::Uuid(uuid(n)) }
}

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

/// Answers later, or as it usually does.
#[derive(Default)]
struct Inner {
    asked: Mutex<Vec<(Vec<CatalogOp>, Submission, Uuid)>>,
    gone: Mutex<Vec<Uuid>>,
    /// Held exclusively by somebody else.
    held: Mutex<Vec<Uuid>>,
    waiting: Mutex<Vec<(OnAnswer, Answer)>>,
    connection: AtomicU64,
}

struct Fake {
    inner: Arc<Inner>,
    capability: CatalogCapability,
    later: bool,
    extra: Option<CatalogReply>,
}

impl Inner {
    fn answer(&self, op: &CatalogOp) -> Result<CatalogReply> {
        let gone = |uuid: &Uuid| lock(&self.gone).contains(uuid);
        match op {
            CatalogOp::Open { which: Which::Uuid(uuid), .. } if gone(uuid) => Err(Error::not_found("gone")),
            CatalogOp::Open { which: Which::Uuid(uuid), .. } if lock(&self.held).contains(uuid) => {
                Err(Error::busy("held"))
            }
            CatalogOp::Open { which: Which::Uuid(uuid), .. } => {
                Ok(CatalogReply::Opened(Box::new(Opened { uuid: *uuid, ..sealed(0) })))
            }
            CatalogOp::Stat { uuid, .. } if gone(uuid) => Err(Error::not_found("gone")),
            CatalogOp::Stat { uuid, .. } => {
                let mut stat = Stat::new(EntryKind::Collection, *uuid);
                stat.state = Some(State::Sealed);
                Ok(CatalogReply::Stat(Box::new(stat)))
            }
            CatalogOp::Delete { which: Which::Uuid(uuid), .. } => {
                lock(&self.gone).push(*uuid);
                Ok(CatalogReply::Done)
            }
            _ => Ok(CatalogReply::Done),
        }
    }

    fn answer_all(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        waiting.into_iter().for_each(|(done, answer)| done(answer));
    }
}

impl Catalog for Fake {
    fn capability(&self) -> &CatalogCapability {
        &self.capability
    }

    fn submit(&self, cx: &OpCx, ops: Vec<CatalogOp>, how: Submission, done: OnAnswer) {
        let mut replies = Vec::new();
        for op in &ops {
            replies.push(self.inner.answer(op));
            if how == Submission::DryRun && replies.last().is_some_and(Result::is_err) {
                break;
            }
        }
        replies.extend(self.extra.clone().map(Ok));
        lock(&self.inner.asked).push((ops, how, cx.batch));
        lock(&self.inner.waiting).push((done, Ok(replies)));
        if !self.later {
            self.inner.answer_all();
        }
    }

    fn connection(&self) -> u64 {
        self.inner.connection.load(Ordering::Relaxed)
    }
}

struct Rig {
    inner: Arc<Inner>,
    records: Arc<Records>,
    watched: Watched,
    counters: Arc<Counters>,
}

impl Rig {
    fn with(cache_bytes: u64, later: bool, extra: Option<CatalogReply>) -> Rig {
        NOW.set(1_000_000);
        let inner = Arc::<Inner>::default();
        let capability = CatalogCapability {
            targets: iov_semantics::stores::file(1),
            max_ops: 1 << 20,
            single_user: true,
            inline_bytes: 8192,
            lease_ns: LEASE,
        };
        let counters = Arc::<Counters>::default();
        let records = Arc::new(Records::new(cache_bytes, LEASE, counters.clone(), || NOW.get()));
        let fake = Fake { inner: inner.clone(), capability, later, extra };
        let watched = Watched::new(Arc::new(fake), records.clone());
        Rig { inner, records, watched, counters }
    }

    fn new() -> Rig {
        Rig::with(0, false, None)
    }

    fn submit(&self, ops: Vec<CatalogOp>, how: Submission) -> Arc<Mutex<Option<Answer>>> {
        let caller = Caller { uid: 0, gid: 0, groups: Vec::new(), session: uuid(1), holder: uuid(1) };
        let got = Arc::new(Mutex::new(None));
        let to = got.clone();
        let done = Box::new(move |answer| *lock(&to) = Some(answer));
        let cx = OpCx { batch: uuid(99), ..OpCx::new(caller, i64::MAX / 2) };
        self.watched.submit(&cx, ops, how, done);
        got
    }

    fn ask(&self, op: CatalogOp) -> usize {
        let got = self.submit(vec![op], Submission::Each);
        let answer = lock(&got).take().expect("an answer").unwrap();
        answer.len()
    }

    fn open_all(&self, range: impl Iterator<Item = u16>) {
        for n in range {
            self.ask(open(n));
        }
    }

    fn knows(&self, n: u16) -> bool {
        self.find(&open(n)).is_some()
    }

    fn find(&self, op: &CatalogOp) -> Option<(Opened, Option<Arc<[u8]>>)> {
        self.records.find(op, || self.watched.connection())
    }

    /// What was renewed along with the last submission.
    fn along(&self) -> Vec<Uuid> {
        let uuid = |op: &CatalogOp| match op {
            CatalogOp::Open { which: Which::Uuid(uuid), .. } => *uuid,
            op => panic!("{op:?} to renew a record"),
        };
        let asked = lock(&self.inner.asked);
        let before = asked.len().checked_sub(2).map(|n| &asked[n]).filter(|(_, how, _)| *how == Submission::DryRun);
        before.map_or(Vec::new(), |(ops, _, batch)| {
            assert!(batch.is_nil(), "the answer is the batch's, from another time");
            ops.iter().map(uuid).collect()
        })
    }

    fn renewals(&self) -> u64 {
        self.counters.snapshot()[Counters::NAMES.iter().position(|n| *n == "lease_renewals").unwrap()]
    }
}

fn later(ns: i64) {
    NOW.set(NOW.get() + ns);
}

#[test]
fn m3_a_record_is_good_for_its_lease_counted_from_before_it_was_asked_for() {
    let rig = Rig::with(0, true, None);
    rig.submit(vec![open(1)], Submission::Each);
    later(LEASE / 2);
    assert!(!rig.knows(1));
    rig.inner.answer_all();
    assert!(rig.knows(1));
    later(LEASE / 2 - 1);
    assert!(rig.knows(1));
    later(1);
    assert!(!rig.knows(1));
}

#[test]
fn m3_a_lease_is_never_longer_than_the_clause_says() {
    let counters = Arc::<Counters>::default();
    for (told, held) in [(i64::MAX, limits::LEASE_NS), (700, 700), (-1, 0)] {
        assert_eq!(Records::new(0, told, counters.clone(), || 0).lease_ns, held);
    }
}

#[test]
fn m3_only_what_is_sealed_and_only_read_is_known() {
    let reads = Controls::default();
    assert!(is_known_by(&reads, &sealed(1)));
    let exclusive = Controls { concurrency: Some(Concurrency::Exclusive), ..Controls::default() };
    let durable = Controls { persistence: Some(iov_types::Persistence::Durable), ..Controls::default() };
    for more in [exclusive, durable] {
        assert!(!is_known_by(&more, &sealed(1)));
    }
    let once = iov_types::Effective { temporality: Temporality::Once, ..effective() };
    let published = iov_types::Effective { atomicity: Atomicity::Publication, ..effective() };
    for other in [
        Opened { state: State::Staging, ..sealed(1) },
        Opened { state: State::Open, ..sealed(1) },
        Opened { kind: EntryKind::Group, ..sealed(1) },
        Opened { size: None, ..sealed(1) },
        Opened { epoch: 2, ..sealed(1) },
        Opened { effective: once, ..sealed(1) },
        Opened { effective: published.clone(), ..sealed(1) },
    ] {
        assert!(!is_known_by(&reads, &other), "{other:?}");
    }
    assert!(is_known_by(&reads, &Opened { effective: published, inline: false, ..sealed(1) }));
}

#[test]
fn m3_only_the_same_question_has_the_same_answer() {
    let rig = Rig::new();
    rig.ask(open(1));
    assert!(rig.knows(1) && !rig.knows(2));
    let session = Controls { consistency: Some(iov_types::Consistency::Session), ..Controls::default() };
    assert!(rig.find(&open_with(1, session)).is_none());
    let CatalogOp::Open { which, kind, controls, parent, .. } = open(1) else { unreachable!() };
    let elsewhere = CatalogOp::Open { ws: uuid(9), parent, which, kind, controls: controls.clone(), tell: None };
    assert!(rig.find(&elsewhere).is_none());
    let group =
        CatalogOp::Open { ws: WS, parent, which: Which::Uuid(uuid(1)), kind: EntryKind::Group, controls, tell: None };
    assert!(rig.find(&group).is_none());
    // What was only tried, or is remembered from another time, is not known.
    rig.submit(vec![open(3)], Submission::DryRun);
    rig.submit(vec![open(4)], Submission::All { batch: uuid(5), remember: true, staged: Vec::new() });
    assert!(!rig.knows(3) && !rig.knows(4));
}

#[test]
fn m3_own_changes_are_heard_at_once() {
    let (ws, one) = (WS, uuid(1));
    let rename = |mode| CatalogOp::Rename {
        ws,
        from_parent: Uuid::NIL,
        from: name("a"),
        to_parent: Uuid::NIL,
        to: name("b"),
        mode,
    };
    let by_name = |ws| CatalogOp::Delete { ws, parent: Uuid::NIL, which: Which::Name(name("a")) };
    for (op, one_is_known, two_is_known) in [
        (delete(1), false, true),
        (by_name(ws), false, false),
        (by_name(uuid(9)), true, true),
        (rename(RenameMode::Replace), false, false),
        (CatalogOp::SetAttr { ws, uuid: one, attr: Default::default() }, false, true),
        (CatalogOp::Set { ws, uuid: one, controls: None, layout: None }, false, true),
        (CatalogOp::MetaPut { ws, uuid: one, pairs: Default::default() }, false, true),
        (CatalogOp::MetaRemove { ws, uuid: one, key: "k".into() }, false, true),
        (CatalogOp::Link { ws, uuid: one, parent: Uuid::NIL, name: name("a") }, false, true),
        (CatalogOp::WorkspaceSet { ws, attr: Default::default() }, false, false),
        (CatalogOp::WorkspaceDelete { which: Which::Uuid(ws) }, false, false),
        (CatalogOp::TokenJoin { token: Vec::new() }, false, false),
        (CatalogOp::Publish { ws, uuid: one, published: Published::default() }, true, true),
        (CatalogOp::WorkspaceStat { ws }, true, true),
    ] {
        let rig = Rig::new();
        rig.ask(open(1));
        rig.ask(open(2));
        rig.ask(op.clone());
        assert_eq!((rig.knows(1), rig.knows(2)), (one_is_known, two_is_known), "{op:?}");
    }
}

#[test]
fn m3_an_answer_from_before_a_change_is_not_believed_after_it() {
    // Sent before the change and answered after it, or the other way round.
    for deleted_first in [false, true] {
        let rig = Rig::with(0, true, None);
        let order = if deleted_first { [delete(1), open(1)] } else { [open(1), delete(1)] };
        for op in order {
            rig.submit(vec![op], Submission::Each);
        }
        // The fake catalog has answered in that order; what it said of the open is as if that had come first.
        let mut waiting = std::mem::take(&mut *lock(&rig.inner.waiting));
        let at = usize::from(deleted_first);
        waiting[at].1 = Ok(vec![Ok(CatalogReply::Opened(Box::new(sealed(1))))]);
        // The open's answer is heard first, and the delete's takes it back; or the delete's is, and the open's is older.
        waiting.reverse();
        waiting.into_iter().for_each(|(done, answer)| done(answer));
        assert!(!rig.knows(1), "{deleted_first}");
        // With nothing under way anything can be learned again.
        lock(&rig.inner.gone).clear();
        rig.submit(vec![open(1)], Submission::Each);
        rig.inner.answer_all();
        assert!(rig.knows(1));
    }
}

#[test]
fn m3_many_changes_while_an_open_is_under_way_are_too_many_to_believe_it() {
    let rig = Rig::with(0, true, None);
    rig.submit(vec![open(1)], Submission::Each);
    for n in 0..CHANGES as u16 + 1 {
        rig.records.forget(Change::One(uuid(n + 2)));
    }
    rig.inner.answer_all();
    assert!(!rig.knows(1));
}

#[test]
fn m3_who_hears_that_it_is_gone_forgets_it() {
    for op in [open(1), CatalogOp::Stat { ws: WS, uuid: uuid(1) }] {
        let rig = Rig::new();
        rig.ask(open(1));
        lock(&rig.inner.gone).push(uuid(1));
        assert!(rig.knows(1));
        rig.ask(op);
        assert!(!rig.knows(1));
    }
}

#[test]
fn m3_another_connection_knows_nothing() {
    let rig = Rig::new();
    rig.ask(open(1));
    assert!(rig.knows(1));
    rig.inner.connection.store(1, Ordering::Relaxed);
    assert!(!rig.knows(1));
    rig.ask(open(1));
    assert!(rig.knows(1));
}

#[test]
fn b3_an_answer_keeps_what_it_has_beyond_what_was_asked() {
    let rig = Rig::with(0, false, Some(CatalogReply::Moved));
    let how = Submission::All { batch: uuid(5), remember: false, staged: Vec::new() };
    let got = rig.submit(vec![delete(1)], how);
    let answer = lock(&got).take().unwrap().unwrap();
    assert_eq!(answer, [Ok(CatalogReply::Done), Ok(CatalogReply::Moved)]);
}

#[test]
fn m3_what_is_kept_is_bounded_and_counted() {
    let rig = Rig::with(250, false, None);
    let cached = || rig.counters.snapshot()[Counters::NAMES.iter().position(|n| *n == "cache_bytes").unwrap()];
    let bytes: Arc<[u8]> = vec![1; 100].into();
    rig.open_all(1..=3);
    rig.records.keep_bytes(uuid(1), &bytes);
    rig.records.keep_bytes(uuid(1), &bytes);
    rig.records.keep_bytes(uuid(2), &bytes);
    assert_eq!(cached(), 200);
    // Not as long as the record says, or of no record.
    rig.records.keep_bytes(uuid(3), &vec![1; 99].into());
    rig.records.keep_bytes(uuid(4), &bytes);
    assert_eq!((cached(), rig.find(&open(3)).unwrap().1), (200, None));
    // The oldest makes room.
    rig.records.keep_bytes(uuid(3), &bytes);
    assert_eq!(cached(), 200);
    assert!(!rig.knows(1) && rig.find(&open(2)).unwrap().1.is_some() && rig.find(&open(3)).unwrap().1.is_some());
    // Asked again, the bytes are still the sealed ones.
    rig.ask(open(2));
    assert_eq!(rig.find(&open(2)).unwrap().1, Some(bytes));
    rig.ask(CatalogOp::WorkspaceDelete { which: Which::Uuid(WS) });
    assert_eq!(cached(), 0);

    let rig = Rig::new();
    rig.open_all(0..RECORDS as u16 + 2);
    assert!(!rig.knows(0) && !rig.knows(1) && rig.knows(2) && rig.knows(RECORDS as u16 + 1));
    assert_eq!(lock(&rig.records.inner).known.len(), RECORDS);
    assert_eq!(lock(&rig.records.inner).by_age.len(), RECORDS);
}
