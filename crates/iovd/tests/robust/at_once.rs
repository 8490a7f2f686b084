//! A single write or read goes the short way where it may; what comes of it is what comes of a batch.

use ioverbs::{Batch, BatchAttr, Collection, Error, Kind, Op};

use crate::kit::{Store, batch, create, lookup, read};

/// How an operation ended: bytes, or kind and clause of the error.
type End = Result<u64, (Kind, Option<ioverbs::Clause>)>;

fn end(result: Result<u64, Error>) -> End {
    result.map_err(|e| (e.kind(), e.clause()))
}

/// In a batch of its own, which goes the long way.
fn long(c: &Collection, op: Op) -> End {
    let mut batch = Batch::new(c.session(), BatchAttr::default()).unwrap();
    batch.push(op).unwrap();
    let _ = batch.start().unwrap().wait(-1);
    let status = batch.status(0).unwrap();
    end(status.result().map(|()| status.bytes))
}

fn write(c: &Collection, offset: u64, data: &[u8], short: bool) -> End {
    if short {
        return end(ioverbs::write_at(c, offset, data).map(|()| data.len() as u64));
    }
    // SAFETY: the batch has completed before this returns.
    let memory = unsafe { ioverbs::Memory::readable(data.as_ptr(), data.len()) };
    long(c, Op::Write { c: c.clone(), chunks: vec![(offset, memory)] })
}

fn read_at(c: &Collection, offset: u64, into: &mut [u8], short: bool) -> End {
    if short {
        return end(ioverbs::read_at(c, offset, into).map(|n| n as u64));
    }
    // SAFETY: as above.
    let memory = unsafe { ioverbs::Memory::writable(into.as_mut_ptr(), into.len()) };
    long(c, Op::Read { c: c.clone(), chunks: vec![(offset, memory)] })
}

#[test]
fn b1_what_goes_the_short_way_ends_like_a_batch() {
    let store = Store::new();
    let ws = store.in_workspace();
    for controls in [
        "",
        "mutability=append",
        "mutability=immutable",
        "atomicity=unit(4096)",
        "atomicity=publication",
        "persistence=durable",
        "persistence=durable@batch",
        "collection_size=..1MiB",
        "concurrency=exclusive",
        "concurrency=exclusive,consistency=session",
        "consistency=sequential",
        "temporality=once",
        "spatiality=random",
    ] {
        let story = |short: bool| {
            let c = create(&ws, &format!("{controls} {short}"), controls);
            let mut ends = Vec::new();
            let mut into = vec![0; 64 << 10];
            for offset in [0u64, 40 << 10, 100, 1 << 20, 60 << 10, 40 << 10, u64::MAX - 10] {
                ends.push(write(&c, offset, &vec![offset as u8 + 1; 32 << 10], short));
                for from in [0, 100, 50 << 10, 2 << 20, u64::MAX - 10] {
                    ends.push(read_at(&c, from, &mut into, short));
                }
            }
            ends.push(write(&c, 5, &[], short));
            ends.push(read_at(&c, 5, &mut [], short));
            let others = store.again();
            let theirs = ioverbs::lookup(&others, None, &format!("{controls} {short}"), Default::default());
            if let Ok(theirs) = theirs {
                ends.push(read_at(&theirs, 0, &mut into, short));
            }
            let size = |c: &Collection| ioverbs::stat(c).map(|stat| stat.bytes).map_err(|e| e.kind());
            let before = size(&c);
            ends.push(end(ioverbs::run(&ws.session().clone(), Op::Seal { c: c.clone() }).map(|_| 0)));
            ends.push(write(&c, 0, &[9; 10_000], short));
            ends.push(read_at(&c, 0, &mut into, short));
            ends.push(end(ioverbs::close(&c).map(|()| 0)));
            ends.push(write(&c, 0, &[9; 10_000], short));
            ends.push(read_at(&c, 0, &mut into, short));
            let again = lookup(&ws, &format!("{controls} {short}"));
            (ends, before, size(&again), read(&again))
        };
        assert_eq!(story(true), story(false), "{controls}");
    }
}

#[test]
fn a1_who_may_only_read_does_not_write_the_short_way() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &[1; 1 << 20]).unwrap();
    ioverbs::write_at(&c, 0, &[2; 1 << 20]).unwrap();
    let attr = ioverbs::SessionAttr { readonly: true, ..Default::default() };
    let session = ioverbs::open(Some(&store.url()), attr).unwrap();
    let theirs = lookup(&session.load_workspace(ioverbs::Which::parse("w").unwrap()).unwrap(), "c");
    for _ in 0..3 {
        assert_eq!(ioverbs::write_at(&theirs, 0, &[3; 20_000]).unwrap_err().kind(), Kind::Denied);
        assert_eq!(read(&theirs), vec![2; 1 << 20]);
    }
    ioverbs::close(&c).unwrap();
    let what = ioverbs::Lent::Write { c: c.clone(), offset: 0, data: &[3; 20_000] };
    assert_eq!(
        batch(ws.session(), BatchAttr::default(), vec![what]).unwrap_err().kind(),
        Kind::Invalid,
        "it is closed"
    );
}

#[test]
fn g1_the_short_way_is_counted_and_ends_with_its_grant() {
    let store = Store::new();
    let ws = store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &[1; 1 << 20]).unwrap();
    // The handle hears that its bytes have left their record.
    ioverbs::write_at(&c, 0, &[1; 10]).unwrap();
    let now = |name: &str| {
        let at = ioverbs::Counters::NAMES.iter().position(|n| *n == name).unwrap();
        ws.session().counters().snapshot()[at]
    };
    let names = ["batches", "operations", "data_requests", "bytes_written", "bytes_direct", "round_trips", "grants"];
    let before = names.map(now);
    for i in 0..100 {
        ioverbs::write_at(&c, i * 5000, &[2; 5000]).unwrap();
    }
    let after = names.map(now);
    let more: Vec<u64> = after.iter().zip(before).map(|(now, before)| now - before).collect();
    assert_eq!(more, [100, 100, 100, 500_000, 500_000, 0, 0]);
    // Another session seals, which takes the grant back.
    let others = lookup(&store.again(), "c");
    ioverbs::run(others.session(), Op::Seal { c: others.clone() }).unwrap();
    let refused = ioverbs::write_at(&c, 20, &[3; 20_000]).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Immutable, Some(ioverbs::Clause::M2)), "{refused}");
    assert_eq!(read(&others), [vec![2; 500_000], vec![1; (1 << 20) - 500_000]].concat());
}
