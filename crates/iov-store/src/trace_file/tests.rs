use std::{os::unix::fs::FileExt, sync::Arc};

use iov_types::ObjectVerb;

use super::*;
use crate::{Backend, Trace, conformance::Probe};

fn all(path: &Path) -> Vec<TraceEntry> {
    TraceReader::open(path).unwrap().map(Result::unwrap).collect()
}

fn calls(path: &Path) -> Vec<TraceEvent> {
    let call = |entry| match entry {
        TraceEntry::Call(event) => Some(event),
        _ => None,
    };
    all(path).into_iter().filter_map(call).collect()
}

/// A traced heap.
fn traced(path: &Path) -> Arc<dyn Backend> {
    let writer = TraceWriter::open(path).unwrap();
    Arc::new(Trace::new(crate::tests::heap(), move |event| writer.record(&event)))
}

#[test]
fn every_call_is_told_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let object = Probe::new(&traced(&path), 7);
    let before = seam::now_ns();
    object.write(100, &[1; 50]).unwrap();
    object.staged(1).append(&[2; 5]).unwrap();
    object.read(140, 30).unwrap();
    object.call(ObjectVerb::Seal).unwrap();
    object.write(0, b"late").unwrap_err();
    object.with(|d| d.durability = Some(Persistence::Durable)).write(0, b"x").unwrap_err();
    let told = calls(&path);
    let of = |e: &TraceEvent| (e.verb, e.offset, e.len, e.bytes, e.error, e.staged, e.durability);
    assert_eq!(
        told.iter().map(of).collect::<Vec<_>>(),
        [
            (VerbKind::Write, 100, 50, 50, None, false, None),
            (VerbKind::Append, 150, 5, 5, None, true, None),
            (VerbKind::Read, 140, 30, 10, None, false, None),
            (VerbKind::Seal, 0, 0, 0, None, false, None),
            (VerbKind::Write, 0, 4, 0, Some(Kind::Immutable), false, None),
            (VerbKind::Write, 0, 1, 0, Some(Kind::Refused), false, Some(Persistence::Durable)),
        ]
    );
    assert!(told.iter().all(|e| e.object == object.id && !e.session.is_nil()));
    let now = seam::now_ns();
    assert!(told.iter().all(|e| e.duration_ns >= 0 && (before - 1_000_000..=now).contains(&e.started_ns)), "{told:?}");
    assert_eq!(TraceWriter::open(&path).err().unwrap().kind(), Kind::Busy, "one writer at a time");
    // Another process goes on with it.
    drop(object);
    Probe::new(&traced(&path), 8).write(0, b"more").unwrap();
    assert_eq!(calls(&path).len(), 7);
    assert_eq!(all(&path).iter().filter(|e| matches!(e, TraceEntry::Begin(_))).count(), 2);
}

#[test]
fn what_is_damaged_missing_or_cut_short_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("t");
    let object = Probe::new(&traced(&path), 1);
    for n in 0..10 {
        object.write(n, &[1]).unwrap();
    }
    drop(object);
    let file = File::options().read(true).write(true).open(&path).unwrap();
    file.write_all_at(b"?", (HEAD + 3 * RECORD + 40) as u64).unwrap();
    let entries = all(&path);
    assert_eq!((entries.len(), &entries[3]), (11, &TraceEntry::Damaged));
    assert_eq!(calls(&path).len(), 9);
    // As if two could not be written: what follows tells of it.
    let whole = std::fs::read(&path).unwrap();
    let without = [&whole[..HEAD + 5 * RECORD], &whole[HEAD + 7 * RECORD..]].concat();
    std::fs::write(&path, without).unwrap();
    assert!(all(&path).contains(&TraceEntry::Missing(2)), "{:?}", all(&path));
    // A last record that is only begun is not there yet, and the next writer begins in its place.
    std::fs::write(&path, &whole[..HEAD + 5 * RECORD + 17]).unwrap();
    assert_eq!(all(&path).len(), 5);
    Probe::new(&traced(&path), 1).write(0, b"x").unwrap();
    assert_eq!(all(&path).len(), 7);
    assert!(matches!(all(&path)[6], TraceEntry::Call(_)));
}

#[test]
fn what_is_no_trace_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("thesis");
    for text in ["mine", "a longer text, which is not a trace either, and that stays as it is"] {
        std::fs::write(&path, text).unwrap();
        let e = TraceWriter::open(&path).err().unwrap();
        assert!(e.kind() == Kind::Invalid && e.detail().contains("not a trace"), "{e}");
        assert!(TraceReader::open(&path).is_err());
        assert_eq!(std::fs::read_to_string(&path).unwrap(), text);
    }
    let mut newer = head();
    newer[8] = 2;
    std::fs::write(&path, newer).unwrap();
    assert_eq!(TraceWriter::open(&path).err().unwrap().kind(), Kind::Version);
    assert_eq!(TraceReader::open(&path).err().unwrap().kind(), Kind::Version);
}
