//! Mutants of a metadata engine: each check of its suite must catch one.

use std::{
    panic::{AssertUnwindSafe, catch_unwind},
    sync::Arc,
};

use bytes::Bytes;
use iov_store::{
    Commit, Guard, KeyRange, MemoryStore, MetadataStore, Record, Snapshot, Txn,
    conformance::{metadata_check, metadata_checks},
    seam,
};
use iov_types::{Error, Result};

#[derive(Clone, Copy, PartialEq, Debug)]
enum Flaw {
    FindsWhatIsNotThere,
    LosesTheLastWrite,
    IgnoresGuards,
    StopsAtAConflict,
    GuardsSeeTheStateBefore,
    FirstWriteWins,
    RevisionsStandStill,
    GuardsAreCheckedEarly,
    RangesIncludeTheirEnd,
    RangesHaveNoEnd,
    PagesBeginWithTheLast,
    ViewsMove,
    WritesApplyOneByOne,
    CutsLargeValues,
    DropsLastBytesOfKeys,
    CannotPersist,
    DeletesNothing,
}

const MUTANTS: &[(&str, Flaw)] = &[
    ("b3_an_empty_store_has_nothing", Flaw::FindsWhatIsNotThere),
    ("b3_a_transaction_applies_whole", Flaw::LosesTheLastWrite),
    ("b3_a_transaction_applies_whole", Flaw::DeletesNothing),
    ("b3_guards_hold_or_nothing_applies", Flaw::IgnoresGuards),
    ("b3_a_conflict_does_not_stop_others", Flaw::StopsAtAConflict),
    ("b3_transactions_of_one_call_see_each_other", Flaw::GuardsSeeTheStateBefore),
    ("b3_a_later_write_of_a_key_wins", Flaw::FirstWriteWins),
    ("b3_revisions_grow", Flaw::RevisionsStandStill),
    ("b3_racing_guards_have_one_winner", Flaw::GuardsAreCheckedEarly),
    ("o5_a_scan_is_in_order_and_exact", Flaw::RangesIncludeTheirEnd),
    ("o5_a_prefix_ends_where_it_should", Flaw::RangesHaveNoEnd),
    ("o5_pages_are_complete", Flaw::PagesBeginWithTheLast),
    ("o5_a_view_does_not_change", Flaw::ViewsMove),
    ("o5_readers_see_whole_transactions", Flaw::WritesApplyOneByOne),
    ("p7_large_values_come_back", Flaw::CutsLargeValues),
    ("p7_odd_keys_come_back", Flaw::DropsLastBytesOfKeys),
    ("p3_persist_can_be_called_any_time", Flaw::CannotPersist),
    ("b3_random_transactions_as_a_map_has_them", Flaw::RangesIncludeTheirEnd),
    ("b3_random_transactions_as_a_map_has_them", Flaw::ViewsMove),
    ("b3_random_transactions_as_a_map_has_them", Flaw::GuardsSeeTheStateBefore),
];

#[derive(Clone)]
struct Broken {
    inner: Arc<MemoryStore>,
    flaw: Flaw,
}

impl Broken {
    fn holds(&self, guard: &Guard) -> bool {
        let revision = |k: &[u8]| self.inner.get(&[k]).unwrap()[0].as_ref().map(|r| r.revision);
        match guard {
            Guard::Absent(k) => revision(k).is_none(),
            Guard::Present(k) => revision(k).is_some(),
            Guard::Revision(k, r) => revision(k) == Some(*r),
        }
    }

    /// Changes the writes as the flaw has it.
    fn twist(&self, txn: &mut Txn) {
        match self.flaw {
            Flaw::LosesTheLastWrite => drop(txn.writes.pop().filter(|_| !txn.writes.is_empty())),
            Flaw::FirstWriteWins => txn.writes.reverse(),
            Flaw::DeletesNothing => txn.writes.retain(|(_, value)| value.is_some()),
            Flaw::IgnoresGuards => txn.guards.clear(),
            Flaw::CutsLargeValues => {
                for value in txn.writes.iter_mut().filter_map(|(_, v)| v.as_mut()) {
                    value.truncate(1 << 20);
                }
            }
            Flaw::DropsLastBytesOfKeys => txn.writes.iter_mut().for_each(|(key, _)| key.truncate(255)),
            _ => {}
        }
    }
}

impl Snapshot for Broken {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        let mut found = self.inner.get(keys)?;
        if self.flaw == Flaw::FindsWhatIsNotThere {
            let nothing = Record { value: Bytes::new(), revision: 1 };
            found.iter_mut().for_each(|r| *r = r.take().or(Some(nothing.clone())));
        }
        Ok(found)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        let mut range = range.clone();
        let mut before = None;
        match self.flaw {
            Flaw::RangesIncludeTheirEnd => range.to.iter_mut().for_each(|to| to.push(0)),
            Flaw::RangesHaveNoEnd => range.to = None,
            Flaw::PagesBeginWithTheLast => {
                before = after.and_then(|a| a.split_last()).map(|(last, rest)| {
                    let mut key = rest.to_vec();
                    key.extend(last.checked_sub(1));
                    key.push(0xff);
                    key
                });
            }
            _ => {}
        }
        self.inner.scan(&range, before.as_deref().or(after), limit)
    }
}

impl MetadataStore for Broken {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        Snapshot::get(self, keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(Bytes, Record)>> {
        Snapshot::scan(self, range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        if self.flaw == Flaw::ViewsMove {
            return Ok(Box::new(self.clone()));
        }
        self.inner.snapshot()
    }

    fn commit(&self, mut txns: Vec<Txn>) -> Result<Vec<Commit>> {
        txns.iter_mut().for_each(|txn| self.twist(txn));
        let conflict = || Error::conflict("a guard does not hold");
        match self.flaw {
            Flaw::StopsAtAConflict => {
                let mut stopped = false;
                let one = |txn| {
                    let result =
                        if stopped { Err(conflict()) } else { self.inner.commit(vec![txn]).unwrap().remove(0) };
                    stopped |= result.is_err();
                    result
                };
                Ok(txns.into_iter().map(one).collect())
            }
            Flaw::GuardsSeeTheStateBefore | Flaw::GuardsAreCheckedEarly => {
                let hold: Vec<_> = txns.iter().map(|t| t.guards.iter().all(|g| self.holds(g))).collect();
                if self.flaw == Flaw::GuardsAreCheckedEarly {
                    seam::sleep(100_000);
                }
                let one = |(hold, txn): (bool, Txn)| {
                    if !hold {
                        return Err(conflict());
                    }
                    self.inner.commit(vec![Txn { guards: vec![], ..txn }]).unwrap().remove(0)
                };
                Ok(hold.into_iter().zip(txns).map(one).collect())
            }
            Flaw::RevisionsStandStill => {
                Ok(self.inner.commit(txns)?.into_iter().map(|r| r.map(|n| n.div_ceil(2))).collect())
            }
            Flaw::WritesApplyOneByOne => {
                let one = |txn: Txn| {
                    let mut result = Ok(0);
                    for (n, write) in txn.writes.into_iter().enumerate() {
                        if n == 1 {
                            seam::sleep(10_000);
                        }
                        result =
                            self.inner.commit(vec![Txn { guards: vec![], writes: vec![write] }]).unwrap().remove(0);
                    }
                    result
                };
                Ok(txns.into_iter().map(one).collect())
            }
            _ => self.inner.commit(txns),
        }
    }

    fn persist(&self) -> Result<()> {
        if self.flaw == Flaw::CannotPersist {
            return Err(Error::unsupported("no log"));
        }
        self.inner.persist()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}

#[test]
fn every_mutant_is_caught() {
    let loud = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {})); // panics are the point of this test
    let caught = |(check, flaw): &(&str, Flaw)| {
        let make = || Arc::new(Broken { inner: Arc::new(MemoryStore::new()), flaw: *flaw }) as Arc<dyn MetadataStore>;
        // A race may be missed once, but not again and again.
        (0..5).any(|_| catch_unwind(AssertUnwindSafe(|| metadata_check(check, &make))).is_err())
    };
    let survivors: Vec<_> = MUTANTS.iter().filter(|m| !caught(m)).collect();
    std::panic::set_hook(loud);
    assert!(survivors.is_empty(), "not caught: {survivors:?}");
}

#[test]
fn every_check_catches_a_mutant() {
    let caught: Vec<_> = MUTANTS.iter().map(|(check, _)| *check).collect();
    let idle: Vec<_> = metadata_checks().iter().map(|c| c.name).filter(|n| !caught.contains(n)).collect();
    assert!(idle.is_empty(), "checks that were never seen to fail: {idle:?}");
}
