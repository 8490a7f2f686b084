//! Locks against a model that keeps every byte by itself.

use std::collections::{BTreeMap, BTreeSet};

use iov_types::Kind;
use proptest::prelude::*;

use super::*;

const A: Uuid = Uuid([1; 16]);
const B: Uuid = Uuid([2; 16]);
const C: Uuid = Uuid([3; 16]);

fn spec(exclusive: bool, offset: u64, len: u64) -> LockSpec {
    LockSpec { exclusive, try_only: false, range: Range { offset, len }, owner: 0, lease_ns: 0 }
}

fn shared(offset: u64, len: u64) -> LockSpec {
    spec(false, offset, len)
}

fn exclusive(offset: u64, len: u64) -> LockSpec {
    spec(true, offset, len)
}

fn granted() -> Locked {
    Locked::Granted(Vec::new())
}

#[test]
fn o11_shared_and_exclusive() {
    let mut locks = Locks::new();
    assert_eq!(locks.lock(A, &shared(0, 10), 1).unwrap(), granted());
    assert_eq!(locks.lock(B, &shared(5, 10), 2).unwrap(), granted());
    let e = locks.try_lock(C, &exclusive(8, 100)).unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Busy, Some(Clause::O11)));
    assert!(e.detail().starts_with("byte 0 to 9 is locked shared by session uuid:01010101"), "{e}");
    assert_eq!(locks.try_lock(C, &exclusive(15, 0)).unwrap(), []);
    let tail = LockSpec { try_only: true, ..shared(1 << 60, 1) };
    assert_eq!(locks.lock(A, &tail, 3).unwrap_err().kind(), Kind::Busy, "to the end, wherever that moves");
    assert_eq!(locks.query(A, &shared(100, 0)).unwrap().unwrap().range, Range { offset: 15, len: 0 });
    assert_eq!(locks.query(C, &shared(0, 0)).unwrap(), None);
}

#[test]
fn o11_owners_of_one_session_are_apart() {
    let mut locks = Locks::new();
    locks.try_lock(A, &exclusive(0, 10)).unwrap();
    let other = LockSpec { owner: 1, ..exclusive(5, 1) };
    assert_eq!(locks.try_lock(A, &other).unwrap_err().kind(), Kind::Busy);
    let held = locks.query(A, &other).unwrap().unwrap();
    assert_eq!(
        (held.owner, held.exclusive, held.range),
        (Owner { session: A, id: 0 }, true, Range { offset: 0, len: 10 })
    );
}

#[test]
fn o11_upgrade_downgrade_and_partial_unlock() {
    let mut locks = Locks::new();
    locks.try_lock(A, &shared(0, 30)).unwrap();
    locks.try_lock(A, &exclusive(10, 10)).unwrap();
    let found = |locks: &Locks, at| {
        locks.query(B, &exclusive(at, 1)).unwrap().map(|h| (h.exclusive, h.range.offset, h.range.len))
    };
    assert_eq!(found(&locks, 5), Some((false, 0, 10)));
    assert_eq!(found(&locks, 15), Some((true, 10, 10)));
    assert_eq!(found(&locks, 25), Some((false, 20, 10)));
    locks.try_lock(A, &shared(5, 20)).unwrap();
    assert_eq!(found(&locks, 15), Some((false, 0, 30)), "merged again");
    locks.unlock(A, &shared(10, 5)).unwrap();
    assert_eq!(found(&locks, 12), None);
    assert_eq!(found(&locks, 20), Some((false, 15, 15)));
    locks.unlock(A, &shared(0, 0)).unwrap();
    assert!(locks.is_empty());
    // What others share cuts a lock into stretches, but it is one lock.
    locks.try_lock(A, &shared(0, 30)).unwrap();
    locks.try_lock(B, &shared(10, 5)).unwrap();
    assert_eq!(locks.query(C, &exclusive(12, 1)).unwrap().unwrap().range, Range { offset: 0, len: 30 });
}

#[test]
fn o11_waiting_is_in_order_of_arrival() {
    let mut locks = Locks::new();
    locks.try_lock(A, &exclusive(0, 10)).unwrap();
    assert_eq!(locks.lock(B, &exclusive(0, 5), 1).unwrap(), Locked::Waiting);
    assert_eq!(locks.lock(C, &shared(0, 10), 2).unwrap(), Locked::Waiting);
    assert_eq!(locks.lock(C, &shared(20, 10), 3).unwrap(), granted(), "nobody is in the way there");
    assert_eq!(locks.unlock(A, &shared(5, 5)).unwrap(), []);
    assert_eq!(locks.unlock(A, &shared(0, 0)).unwrap(), [1]);
    assert_eq!(locks.unlock(B, &shared(0, 0)).unwrap(), [2]);
}

#[test]
fn o11_readers_do_not_starve_a_writer() {
    let mut locks = Locks::new();
    locks.try_lock(A, &shared(0, 10)).unwrap();
    assert_eq!(locks.lock(B, &exclusive(5, 10), 1).unwrap(), Locked::Waiting);
    assert_eq!(locks.lock(C, &shared(0, 10), 2).unwrap(), Locked::Waiting, "behind the writer");
    let e = locks.try_lock(C, &shared(8, 1)).unwrap_err();
    assert!(e.kind() == Kind::Busy && e.detail().starts_with("others wait for a part of byte 8 to 8"), "{e}");
    assert_eq!(locks.lock(C, &shared(0, 5), 3).unwrap(), granted(), "beside the writer");
    assert_eq!(locks.cancel(1), [2], "nobody waits in vain for one that gave up");
    assert_eq!(locks.cancel(2), [], "granted already");
    assert!(locks.query(B, &exclusive(9, 1)).unwrap().is_some());
}

#[test]
fn o11_holder_does_not_wait_for_those_that_wait_for_it() {
    let mut locks = Locks::new();
    locks.try_lock(A, &shared(0, 10)).unwrap();
    assert_eq!(locks.lock(B, &exclusive(0, 20), 1).unwrap(), Locked::Waiting);
    assert_eq!(locks.lock(A, &exclusive(0, 10), 2).unwrap(), granted(), "an upgrade");
    assert_eq!(locks.lock(A, &exclusive(10, 5), 3).unwrap(), granted(), "an extension");
    assert_eq!(locks.lock(C, &shared(0, 5), 4).unwrap(), Locked::Waiting);
    // A downgrade lets no reader past the writer that came first.
    assert_eq!(locks.lock(A, &shared(0, 15), 5).unwrap(), granted());
    assert_eq!(locks.cancel(1), [4]);
}

#[test]
fn o11_downgrade_wakes_readers() {
    let mut locks = Locks::new();
    locks.try_lock(A, &exclusive(0, 10)).unwrap();
    locks.lock(B, &shared(0, 5), 1).unwrap();
    locks.lock(C, &shared(5, 5), 2).unwrap();
    assert_eq!(locks.lock(A, &shared(0, 10), 3).unwrap(), Locked::Granted(vec![1, 2]));
}

#[test]
fn o11_locks_end_with_their_session() {
    let mut locks = Locks::new();
    locks.try_lock(A, &exclusive(0, 10)).unwrap();
    locks.try_lock(A, &LockSpec { owner: 7, ..exclusive(20, 10) }).unwrap();
    locks.lock(B, &exclusive(0, 0), 1).unwrap();
    locks.lock(C, &exclusive(5, 1), 2).unwrap();
    assert_eq!(locks.drop_session(A), [1]);
    assert_eq!(locks.drop_session(C), [], "its request is gone");
    assert_eq!(locks.drop_session(B), []);
    assert!(locks.is_empty());
}

#[test]
fn o11_locks_of_a_dead_session_end_with_their_lease() {
    let mut locks = Locks::new();
    locks.try_lock(A, &LockSpec { lease_ns: 100, ..exclusive(0, 10) }).unwrap();
    locks.try_lock(A, &LockSpec { lease_ns: 50, ..exclusive(20, 10) }).unwrap();
    locks.try_lock(B, &exclusive(40, 10)).unwrap();
    locks.lock(C, &shared(0, 0), 1).unwrap();
    locks.lock(A, &shared(40, 1), 2).unwrap();
    assert_eq!(locks.expire(i64::MAX), [], "nobody is dead");
    assert_eq!(locks.report_dead(A, 1000), []);
    assert_eq!(locks.report_dead(A, 1090), [], "the first report counts");
    assert_eq!(locks.next_expiry_ns(), Some(1100));
    assert_eq!(locks.expire(1099), []);
    locks.report_alive(A);
    assert_eq!((locks.next_expiry_ns(), locks.expire(2000)), (None, vec![]));
    locks.report_dead(A, 3000);
    assert_eq!(locks.expire(3100), [], "B is in the way still");
    assert_eq!(locks.unlock(B, &shared(0, 0)).unwrap(), [1]);
    locks.report_dead(C, 0);
    assert_eq!(locks.next_expiry_ns(), Some(limits::LEASE_NS), "the default lease");
}

#[test]
fn o11_bad_requests() {
    let mut locks = Locks::new();
    for bad in [exclusive(u64::MAX, 0), exclusive(1, u64::MAX), LockSpec { lease_ns: -1, ..shared(0, 1) }] {
        for e in [
            locks.lock(A, &bad, 1).unwrap_err(),
            locks.unlock(A, &bad).unwrap_err(),
            locks.query(A, &bad).map(|_| ()).unwrap_err(),
        ] {
            assert_eq!((e.kind(), e.clause()), (Kind::Invalid, Some(Clause::O11)), "{bad:?}");
        }
    }
    assert!(locks.is_empty());
}

#[test]
fn o11_owners_without_locks_are_forgotten() {
    let mut locks = Locks::new();
    locks.try_lock(B, &exclusive(1000, 1)).unwrap();
    for owner in 0..100_000 {
        let lock = LockSpec { owner, ..exclusive(0, 10) };
        locks.try_lock(A, &lock).unwrap();
        locks.unlock(A, &lock).unwrap();
    }
    assert!(locks.owners.len() < 200, "{}", locks.owners.len());
    locks.report_dead(B, 0);
    locks.expire(limits::LEASE_NS);
    assert!(locks.is_empty(), "one that holds something is kept in mind");
}

#[test]
fn o11_tables_are_bounded() {
    let mut locks = Locks::new();
    for i in 0..limits::COLLECTION_LOCKS as u64 {
        locks.try_lock(A, &exclusive(2 * i, 1)).unwrap();
    }
    let e = locks.lock(A, &exclusive(1, 1), 0).unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Exhausted, Some(Clause::O11)));
    assert_eq!(locks.unlock(A, &shared(0, 0)).unwrap(), []);
    locks.try_lock(A, &exclusive(0, 1)).unwrap();
    for i in 0..limits::LOCK_WAITERS as u64 {
        assert_eq!(locks.lock(B, &exclusive(0, 1), i).unwrap(), Locked::Waiting);
    }
    assert_eq!(locks.lock(B, &exclusive(0, 1), 1 << 40).unwrap_err().kind(), Kind::Exhausted);
    assert_eq!(locks.drop_session(A).len(), limits::LOCK_WAITERS, "all of one owner");
}

/// Bytes 0 to 15, and one that stands for all behind them.
const BYTES: usize = 17;

/// Every byte by itself: for each owner whether it holds it exclusively, if at all.
#[derive(Default)]
struct Model {
    bytes: [BTreeMap<Owner, bool>; BYTES],
    waiting: Vec<(Ticket, Owner, bool, BTreeSet<usize>)>,
}

fn bytes(range: Range) -> BTreeSet<usize> {
    let end = if range.len == 0 { BYTES as u64 } else { range.offset + range.len };
    (range.offset as usize..end as usize).collect()
}

impl Model {
    fn free(&self, owner: Owner, exclusive: bool, wanted: &BTreeSet<usize>, earlier: usize) -> bool {
        let against = |who: &dyn Fn(Owner) -> bool, exclusive: bool, wanted: &BTreeSet<usize>| {
            wanted.iter().any(|b| self.bytes[*b].iter().any(|(holder, x)| who(*holder) && (exclusive || *x)))
        };
        !against(&|holder| holder != owner, exclusive, wanted)
            && self.waiting[..earlier].iter().all(|(_, other, x, theirs)| {
                let conflict = *other != owner && (exclusive || *x) && !theirs.is_disjoint(wanted);
                !conflict || against(&|holder| holder == owner, *x, theirs)
            })
    }

    fn hold(&mut self, owner: Owner, exclusive: bool, wanted: &BTreeSet<usize>) {
        for b in wanted {
            self.bytes[*b].insert(owner, exclusive);
        }
    }

    fn release(&mut self, owner: impl Fn(Owner) -> bool, wanted: &BTreeSet<usize>) {
        wanted.iter().for_each(|b| self.bytes[*b].retain(|o, _| !owner(*o)));
    }

    fn pump(&mut self) -> Vec<Ticket> {
        let mut granted = Vec::new();
        // One pass after another, as long as a pass grants something.
        loop {
            let before = granted.len();
            let mut at = 0;
            while at < self.waiting.len() {
                let (ticket, owner, exclusive, wanted) = self.waiting[at].clone();
                if self.free(owner, exclusive, &wanted, at) {
                    self.waiting.remove(at);
                    self.hold(owner, exclusive, &wanted);
                    granted.push(ticket);
                } else {
                    at += 1;
                }
            }
            if granted.len() == before {
                return granted;
            }
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    Lock { who: u8, spec: LockSpec },
    Unlock { who: u8, spec: LockSpec },
    Cancel { which: usize },
    Drop { session: u8 },
    Dead { session: u8 },
}

fn session(n: u8) -> Uuid {
    Uuid([n; 16])
}

fn step() -> impl Strategy<Value = Step> {
    let spec = (any::<bool>(), any::<bool>(), 0u64..16, 0u64..8, 0u64..2).prop_map(
        |(exclusive, try_only, offset, len, owner)| {
            let len = if len == 7 { 0 } else { len.clamp(1, 16 - offset) };
            LockSpec { exclusive, try_only, range: Range { offset, len }, owner, lease_ns: 10 }
        },
    );
    prop_oneof![
        8 => (0u8..3, spec.clone()).prop_map(|(who, spec)| Step::Lock { who, spec }),
        6 => (0u8..3, spec).prop_map(|(who, spec)| Step::Unlock { who, spec }),
        1 => (0usize..8).prop_map(|which| Step::Cancel { which }),
        1 => (0u8..3).prop_map(|session| Step::Drop { session }),
        1 => (0u8..3).prop_map(|session| Step::Dead { session }),
    ]
}

fn compare(locks: &Locks, model: &Model) -> std::result::Result<(), TestCaseError> {
    // An owner that holds nothing sees every lock; what it finds first is what the model has first.
    for at in 0..BYTES as u64 {
        let one = if at == BYTES as u64 - 1 { exclusive(at, 0) } else { exclusive(at, 1) };
        let probe = locks.query(Uuid([99; 16]), &one).unwrap();
        let holders = &model.bytes[at as usize];
        prop_assert_eq!(probe.map(|h| h.owner), holders.keys().next().copied(), "byte {}", at);
        let Some(held) = probe else { continue };
        prop_assert_eq!(held.exclusive, holders[&held.owner]);
        prop_assert!(!held.exclusive || holders.len() == 1, "exclusive is alone");
        let covered = bytes(held.range);
        prop_assert!(covered.contains(&(at as usize)));
        let same = |b: usize| model.bytes[b].get(&held.owner) == Some(&held.exclusive);
        prop_assert!(covered.iter().all(|b| same(*b)));
        let (first, last) = (*covered.first().unwrap(), *covered.last().unwrap());
        prop_assert!((first == 0 || !same(first - 1)) && (last == BYTES - 1 || !same(last + 1)), "the whole piece");
        for (owner, x) in holders {
            prop_assert_eq!(locks.held.holds_against(*owner, true, Span { from: at, to: at + 1 }), true);
            prop_assert_eq!(locks.held.holds_against(*owner, false, Span { from: at, to: at + 1 }), *x);
        }
    }
    let waiting: Vec<Ticket> = locks.waiting.iter().map(|(t, _)| *t).collect();
    prop_assert_eq!(waiting, model.waiting.iter().map(|w| w.0).collect::<Vec<_>>());
    // As few stretches as possible: none that touches one with the same holders.
    let stretches: Vec<_> = locks.held.within(Span { from: 0, to: NO_END }).collect();
    prop_assert!(stretches.windows(2).all(|w| w[0].0.to < w[1].0.from || w[0].0.to == w[1].0.from && w[0].1 != w[1].1));
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn o11_table_does_what_a_model_of_bytes_does(steps in proptest::collection::vec(step(), 1..40)) {
        let (mut locks, mut model) = (Locks::new(), Model::default());
        let all: BTreeSet<usize> = (0..BYTES).collect();
        for (ticket, step) in steps.into_iter().enumerate() {
            let ticket = ticket as Ticket;
            let (now, expected) = match step {
                Step::Lock { who, spec } => {
                    let owner = Owner { session: session(who), id: spec.owner };
                    let wanted = bytes(spec.range);
                    let answer = locks.lock(session(who), &spec, ticket);
                    if model.free(owner, spec.exclusive, &wanted, model.waiting.len()) {
                        model.hold(owner, spec.exclusive, &wanted);
                        let expected = model.pump();
                        let Ok(Locked::Granted(now)) = answer else { return Err(TestCaseError::fail("not granted")) };
                        (now, expected)
                    } else if spec.try_only {
                        prop_assert_eq!(answer.unwrap_err().kind(), Kind::Busy);
                        continue;
                    } else {
                        model.waiting.push((ticket, owner, spec.exclusive, wanted));
                        prop_assert_eq!(answer.unwrap(), Locked::Waiting);
                        continue;
                    }
                }
                Step::Unlock { who, spec } => {
                    let owner = Owner { session: session(who), id: spec.owner };
                    model.release(|o| o == owner, &bytes(spec.range));
                    (locks.unlock(session(who), &spec).unwrap(), model.pump())
                }
                Step::Cancel { which } => {
                    let Some(ticket) = model.waiting.get(which).map(|w| w.0) else { continue };
                    model.waiting.remove(which);
                    (locks.cancel(ticket), model.pump())
                }
                Step::Drop { session: n } => {
                    model.waiting.retain(|w| w.1.session != session(n));
                    model.release(|o| o.session == session(n), &all);
                    (locks.drop_session(session(n)), model.pump())
                }
                Step::Dead { session: n } => {
                    model.waiting.retain(|w| w.1.session != session(n));
                    prop_assert_eq!(locks.report_dead(session(n), ticket as i64), model.pump());
                    compare(&locks, &model)?;
                    model.release(|o| o.session == session(n), &all);
                    (locks.expire(ticket as i64 + 10), model.pump())
                }
            };
            prop_assert_eq!(now, expected);
            compare(&locks, &model)?;
        }
        // Nobody waits for ever: once every holder gives back what it holds, all requests are granted.
        let mut left: BTreeSet<Ticket> = locks.waiting.iter().map(|(t, _)| *t).collect();
        for _ in 0..=left.len() {
            for n in 0..3 {
                for owner in 0..2 {
                    let everything = LockSpec { owner, ..shared(0, 0) };
                    for ticket in locks.unlock(session(n), &everything).unwrap() {
                        prop_assert!(left.remove(&ticket));
                    }
                }
            }
        }
        prop_assert!(left.is_empty() && locks.waiting.is_empty());
    }
}
