//! What a daemon is killed at, and what must be there afterwards.

use iov_media::Files;
use iov_store::Backend;
use iov_types::{Demand, Kind, ObjectVerb, Persistence, Range, Uuid};

use crate::kit::{all, bytes, call, object, send, staged, write};

/// An operation, what stands before it, and what may stand afterwards.
pub(super) struct Scenario {
    pub(super) name: &'static str,
    /// The beginnings of the fail points that it passes.
    pub(super) points: &'static [&'static str],
    pub(super) before: fn(&Files),
    pub(super) act: fn(&Files),
    /// Looks at the target that was opened again; `done` if the operation is known to have taken effect, or not.
    pub(super) after: fn(&Files, Expect),
}

/// What must be there.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Expect {
    Old,
    New,
    Either,
}

impl Expect {
    /// Whether it is new, and may be.
    fn check(self, old: bool, new: bool) -> bool {
        let fits = match self {
            Expect::Old => old,
            Expect::New => new,
            Expect::Either => old || new,
        };
        assert!(fits, "{self:?} is expected: old {old}, new {new}");
        new && self != Expect::Old
    }
}

const STAGE: Uuid = Uuid([0x11; 16]);
const RECORD: usize = 100_000;
const UNIT: u64 = 47_008;

fn keyed(n: u64) -> Demand {
    Demand { batch: Some((Uuid([0x77; 16]), n)), ..Demand::default() }
}

fn append(files: &Files, demand: Demand, data: &[u8]) -> u64 {
    send(files, object(1), ObjectVerb::Append, demand, data).expect("an append").offset
}

/// As strong as the medium can.
fn durable(files: &Files, demand: Demand) -> Demand {
    Demand { durability: Some(files.capability().durability.min(Persistence::Durable)), ..demand }
}

fn units() -> Demand {
    Demand { unit: UNIT, ..Demand::default() }
}

fn new_record() -> Vec<u8> {
    bytes(9, RECORD)
}

fn appended(files: &Files, base: &[u8], expect: Expect) {
    let found = all(files, object(1));
    let whole = [base, &new_record()].concat();
    expect.check(found == base, found == whole);
    // The client hears nothing and tries again.
    assert_eq!(append(files, keyed(0), &new_record()), base.len() as u64);
    assert!(all(files, object(1)) == whole, "M4: exactly once");
}

fn unit_range() -> (u64, Vec<u8>) {
    // The end of one unit, a whole one, the beginning of a third.
    (UNIT - 1000, bytes(2, 2000 + UNIT as usize))
}

fn units_are_whole(files: &Files, expect: Expect) {
    let found = all(files, object(1));
    let old = bytes(1, 4 * UNIT as usize);
    let (at, data) = unit_range();
    let mut new = old.clone();
    new[at as usize..at as usize + data.len()].copy_from_slice(&data);
    for n in 0..4 {
        let unit = |b: &[u8]| b[n * UNIT as usize..(n + 1) * UNIT as usize].to_vec();
        let (is, old, new) = (unit(&found), unit(&old), unit(&new));
        expect.check(is == old, is == new);
    }
}

/// Fills the stage of object 1, whose base is `base`.
fn stage_changes(files: &Files) {
    let stage = |verb, data: &[u8]| send(files, object(1), verb, staged(STAGE), data).expect("a staged change");
    stage(ObjectVerb::Write { offset: 10 }, &bytes(3, 100));
    stage(ObjectVerb::Write { offset: 5000 }, &bytes(4, 60_000));
    stage(ObjectVerb::Punch(Range { offset: 6000, len: 100 }), &[]);
    let keyed = Demand { stage: Some(STAGE), ..keyed(0) };
    send(files, object(1), ObjectVerb::Append, keyed, &bytes(5, 3000)).expect("a staged append");
}

fn changed(base: &[u8]) -> Vec<u8> {
    let mut out = base.to_vec();
    out.resize(base.len().max(65_000), 0);
    out[10..110].copy_from_slice(&bytes(3, 100));
    out[5000..65_000].copy_from_slice(&bytes(4, 60_000));
    out[6000..6100].fill(0);
    out.extend(bytes(5, 3000));
    out
}

fn publish(files: &Files) {
    let stage = STAGE;
    call(files, object(1), ObjectVerb::Freeze { stage }).expect("a freeze");
    call(files, object(1), ObjectVerb::Publish { stage }).expect("a publication");
}

/// Publishes what is left, as recovery does when the catalog says that point P was reached.
fn published(files: &Files, base: &[u8], expect: Expect) {
    let stage = STAGE;
    if expect == Expect::New {
        // Publishing had begun, so it was finished before anybody could look.
        assert!(files.stages().is_empty());
        assert!(all(files, object(1)) == changed(base));
    }
    call(files, object(1), ObjectVerb::Publish { stage }).expect("a publication, again");
    assert!(all(files, object(1)) == changed(base), "B3: all of it");
    let stat = call(files, object(1), ObjectVerb::Stat).expect("stat");
    assert_eq!(stat.version, 1, "published once");
    let offset = append(files, keyed(0), &bytes(5, 3000));
    assert_eq!((offset, all(files, object(1)).len() as u64), (stat.size - 3000, stat.size), "M4: exactly once");
}

fn dropped(files: &Files, base: &[u8], expect: Expect) {
    files.drop_stages(&[]).expect("dropping what reached no point P");
    let found = all(files, object(1));
    if !expect.check(found == base, found == changed(base)) {
        assert_eq!(append(files, keyed(0), b"x"), base.len() as u64, "a retry of a batch that had no effect has one");
    }
}

pub(super) fn base() -> Vec<u8> {
    bytes(1, 80_000)
}

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "an append",
        points: &["append."],
        before: |files| {
            append(files, keyed(7), b"base");
        },
        act: |files| {
            append(files, keyed(0), &new_record());
        },
        after: |files, expect| appended(files, b"base", expect),
    },
    Scenario {
        name: "an append, then another length",
        points: &["append.1", "append.2"],
        before: |files| {
            append(files, keyed(7), b"base");
        },
        act: |files| {
            append(files, keyed(0), &new_record());
        },
        after: |files, _| {
            // What was written of it lies behind the end, and must not come to light.
            call(files, object(1), ObjectVerb::Truncate { size: 1000 }).expect("an extension");
            assert_eq!(all(files, object(1)), [b"base".to_vec(), vec![0; 996]].concat());
        },
    },
    Scenario {
        name: "an append, then a write behind the end",
        points: &["append.1", "append.2"],
        before: |files| {
            append(files, keyed(7), b"base");
        },
        act: |files| {
            append(files, keyed(0), &new_record());
        },
        after: |files, _| {
            write(files, object(1), 2000, b"far").expect("a write");
            assert_eq!(all(files, object(1)), [b"base".to_vec(), vec![0; 1996], b"far".to_vec()].concat());
        },
    },
    Scenario {
        name: "an append, then space",
        points: &["append.1", "append.2"],
        before: |files| {
            append(files, keyed(7), b"base");
        },
        act: |files| {
            append(files, keyed(0), &new_record());
        },
        after: |files, _| {
            let range = Range { offset: 100, len: 400 };
            call(files, object(1), ObjectVerb::Allocate { range, keep_size: false }).expect("space");
            assert_eq!(all(files, object(1)), [b"base".to_vec(), vec![0; 496]].concat());
        },
    },
    Scenario {
        name: "an append, then a seal",
        points: &["append.1", "append.2"],
        before: |files| {
            append(files, keyed(7), b"base");
        },
        act: |files| {
            append(files, keyed(0), &new_record());
        },
        after: |files, _| {
            call(files, object(1), ObjectVerb::Seal).expect("a seal");
            assert_eq!(all(files, object(1)), b"base");
        },
    },
    Scenario {
        name: "an append, then a publication",
        points: &["append.1", "append.2"],
        before: |files| {
            append(files, keyed(7), b"base");
        },
        act: |files| {
            append(files, keyed(0), &new_record());
        },
        after: |files, _| {
            let far = ObjectVerb::Write { offset: 2000 };
            send(files, object(1), far, staged(STAGE), b"far").expect("a staged write");
            call(files, object(1), ObjectVerb::Publish { stage: STAGE }).expect("a publication");
            assert_eq!(all(files, object(1)), [b"base".to_vec(), vec![0; 1996], b"far".to_vec()].concat());
        },
    },
    Scenario {
        name: "the first append to an object of plain bytes",
        points: &["append."],
        before: |files| {
            write(files, object(1), 0, b"plain").expect("a write");
        },
        act: |files| {
            append(files, durable(files, keyed(0)), &new_record());
        },
        after: |files, expect| appended(files, b"plain", expect),
    },
    Scenario {
        name: "the first append of all",
        points: &["append.", "sidecar."],
        before: |_| (),
        act: |files| {
            append(files, keyed(0), &new_record());
        },
        after: |files, expect| appended(files, b"", expect),
    },
    Scenario {
        name: "a change of units",
        points: &["unit."],
        before: |files| {
            write(files, object(1), 0, &bytes(1, 4 * UNIT as usize)).expect("a write");
        },
        act: |files| {
            let (offset, data) = unit_range();
            send(files, object(1), ObjectVerb::Write { offset }, units(), &data).expect("a write of units");
        },
        after: units_are_whole,
    },
    Scenario {
        name: "a durable change of units",
        points: &["unit."],
        before: |files| {
            write(files, object(1), 0, &bytes(1, 4 * UNIT as usize)).expect("a write");
        },
        act: |files| {
            let (offset, data) = unit_range();
            send(files, object(1), ObjectVerb::Write { offset }, durable(files, units()), &data)
                .expect("a write of units");
        },
        after: units_are_whole,
    },
    Scenario {
        name: "a cut through a unit of an object with appends",
        points: &["unit.1", "unit.2", "unit.4", "unit.5"],
        before: |files| {
            append(files, Demand::default(), &bytes(1, 3 * UNIT as usize));
        },
        act: |files| {
            let size = UNIT + 5;
            send(files, object(1), ObjectVerb::Truncate { size }, units(), &[]).expect("a cut");
        },
        after: |files, expect| {
            let (found, old) = (all(files, object(1)), bytes(1, 3 * UNIT as usize));
            // The end is told first: that the bytes behind it go later is nobody's business.
            let expect = if expect == Expect::Old { Expect::Either } else { expect };
            expect.check(found == old, found == old[..UNIT as usize + 5]);
            append(files, Demand::default(), b"behind");
            assert!(all(files, object(1)).ends_with(b"behind"));
        },
    },
    Scenario {
        name: "staging",
        points: &["stage."],
        before: |files| {
            write(files, object(1), 0, &base()).expect("a write");
            send(files, object(1), ObjectVerb::Write { offset: 0 }, staged(STAGE), &bytes(8, 20_000)).expect("a write");
        },
        act: |files| {
            let offset = 30_000;
            send(files, object(1), ObjectVerb::Write { offset }, staged(STAGE), &bytes(9, 20_000)).expect("a write");
        },
        after: |files, _| {
            assert!(all(files, object(1)) == base(), "nothing shows");
            call(files, object(1), ObjectVerb::Publish { stage: STAGE }).expect("a publication");
            let found = all(files, object(1));
            assert!(found[..20_000] == bytes(8, 20_000), "what was acknowledged is there");
            let (is, old, new) = (&found[30_000..50_000], &base()[30_000..50_000], &bytes(9, 20_000)[..]);
            assert!(is == old || is == new, "what was not is there or not");
        },
    },
    Scenario {
        name: "publishing over a base, repeated",
        points: &["freeze.", "publish.", "sidecar."],
        before: |files| {
            write(files, object(1), 0, &base()).expect("a write");
            stage_changes(files);
        },
        act: publish,
        after: |files, expect| published(files, &base(), expect),
    },
    Scenario {
        name: "publishing over a base, dropped",
        points: &["freeze.", "publish."],
        before: |files| {
            write(files, object(1), 0, &base()).expect("a write");
            stage_changes(files);
        },
        act: publish,
        after: |files, expect| dropped(files, &base(), expect),
    },
    Scenario {
        name: "publishing a new object, repeated",
        points: &["freeze.", "publish."],
        before: stage_changes,
        act: publish,
        after: |files, expect| published(files, &[], expect),
    },
    Scenario {
        name: "publishing a new object, dropped",
        points: &["freeze.", "publish."],
        before: stage_changes,
        act: publish,
        after: |files, expect| dropped(files, &[], expect),
    },
    Scenario {
        name: "publishing what was synced",
        points: &["publish."],
        before: |files| {
            write(files, object(1), 0, &base()).expect("a write");
            stage_changes(files);
            send(files, object(1), ObjectVerb::Sync, durable(files, staged(STAGE)), &[]).expect("a sync of the stage");
        },
        act: publish,
        after: |files, expect| published(files, &base(), expect),
    },
    Scenario {
        name: "a seal",
        points: &["seal."],
        before: |files| {
            write(files, object(1), 0, b"sealed?").expect("a write");
        },
        act: |files| {
            call(files, object(1), ObjectVerb::Seal).expect("a seal");
        },
        after: |files, expect| {
            let late = write(files, object(1), 0, b"late").map_err(|e| e.kind());
            expect.check(late.is_ok(), late == Err(Kind::Immutable));
            let bytes: &[u8] = if late.is_ok() { b"lateed?" } else { b"sealed?" };
            assert_eq!(all(files, object(1)), bytes);
        },
    },
    Scenario {
        name: "a fence",
        points: &["fence.", "sidecar."],
        before: |files| {
            write(files, object(1), 0, b"bytes").expect("a write");
        },
        act: |files| {
            call(files, object(1), ObjectVerb::Fence { epoch: 5 }).expect("a fence");
        },
        after: |files, expect| {
            let old = Demand { epoch: 4, ..Demand::default() };
            let late = send(files, object(1), ObjectVerb::Write { offset: 0 }, old, b"B").map_err(|e| e.kind());
            expect.check(late.is_ok(), late == Err(Kind::Fenced));
        },
    },
    Scenario {
        name: "a second fence",
        points: &["sidecar."],
        before: |files| {
            call(files, object(1), ObjectVerb::Fence { epoch: 3 }).expect("a fence");
        },
        act: |files| {
            send(files, object(1), ObjectVerb::Fence { epoch: 5 }, durable(files, Demand::default()), &[])
                .expect("a fence");
        },
        after: |files, expect| {
            let epoch = call(files, object(1), ObjectVerb::Stat).expect("stat").epoch;
            expect.check(epoch == 3, epoch == 5);
        },
    },
    Scenario {
        name: "a remove",
        points: &["remove."],
        before: |files| {
            write(files, object(1), 0, b"bytes").expect("a write");
            call(files, object(1), ObjectVerb::Fence { epoch: 3 }).expect("a fence");
            stage_changes(files);
        },
        act: |files| {
            call(files, object(1), ObjectVerb::Remove).expect("a remove");
        },
        after: |files, expect| {
            let found = all(files, object(1));
            if expect.check(found == b"bytes", found.is_empty()) {
                assert_eq!(files.stages(), [], "nothing is left that could bring it back");
                call(files, object(1), ObjectVerb::Create).expect("a create");
                let stat = call(files, object(1), ObjectVerb::Stat).expect("stat");
                assert_eq!((stat.epoch, stat.version), (0, 0), "T21: nothing of the old one is left");
            }
        },
    },
];
