//! Flipped bits in the log and the small files: never silently wrong. The store is refused, or it has everything.

use std::path::Path;

use iov_types::Kind;

use super::{
    kit::{Place, all, apply, open, put, tiny, try_open},
    torn::{as_killed, copy, newest_segment},
};
use crate::Options;

/// Flips bits of a file one by one, and tells how often the store was refused.
fn flip(
    store: &Path,
    file: &Path,
    options: &Options,
    every: usize,
    expected: &[(bytes::Bytes, iov_store::Record)],
) -> usize {
    let whole = std::fs::read(file).expect("the file");
    let saved = Place::new("flip-saved");
    copy(store, saved.path());
    let mut refused = 0;
    for at in (0..whole.len()).step_by(every) {
        let mut bytes = whole.clone();
        bytes[at] ^= 1 << (at % 8);
        std::fs::write(file, bytes).expect("a damaged file");
        match try_open(store, options) {
            Ok(store) => assert!(all(&store) == expected, "a bit at {at} of {} changed what is there", file.display()),
            Err(e) => {
                let shown = file.file_name().expect("a name").to_string_lossy().into_owned();
                assert!(matches!(e.kind(), Kind::Corrupt | Kind::Version), "{at} of {shown}: {e:?}");
                assert!(e.detail().contains("restore") || e.kind() == Kind::Version, "it says what to do: {e}");
                refused += 1;
            }
        }
        copy(saved.path(), store);
    }
    refused
}

#[test]
fn i1_a_flipped_bit_anywhere_in_the_log_is_noticed() {
    let (place, copied) = (Place::new("flip"), Place::new("flip-copy"));
    let store = open(place.path(), &Options::default());
    for i in 0..12 {
        apply(&store, vec![put(format!("R{i}"), format!("value {i}")), put(format!("N{i}"), "")]);
    }
    let expected = all(&store);
    as_killed(&store, place.path(), copied.path());
    drop(store);
    let log = newest_segment(copied.path());
    let bytes = std::fs::metadata(&log).expect("the log").len() as usize;
    // The last frame too: a killed process leaves it short, but not wrong.
    assert_eq!(flip(copied.path(), &log, &Options::default(), 1, &expected), bytes, "every byte counts");
}

#[test]
fn i1_a_flipped_bit_in_any_segment_is_noticed() {
    let (place, copied) = (Place::new("flip-many"), Place::new("flip-many-copy"));
    let options = Options { write_buffer: 2 << 10, ..tiny() };
    let store = open(place.path(), &options);
    store.engine().hooks.fail(crate::hooks::Point::Ingest, 5);
    let mut n = 0;
    while store.engine().parts().sealed.len() < 2 {
        apply(&store, vec![put(format!("R{n}"), [n; 100])]);
        n += 1;
    }
    apply(&store, vec![put("R", "in the third")]);
    let expected = all(&store);
    copy(place.path(), copied.path());
    drop(store);
    let mut logs: Vec<_> =
        std::fs::read_dir(copied.path().join("log")).expect("a log").map(|e| e.expect("a file").path()).collect();
    logs.sort();
    assert_eq!(logs.len(), 3);
    for log in logs {
        let bytes = std::fs::metadata(&log).expect("the log").len() as usize;
        assert_eq!(flip(copied.path(), &log, &tiny(), 7, &expected), bytes.div_ceil(7), "{}", log.display());
    }
}

#[test]
fn i1_the_error_names_file_offset_and_what_to_do() {
    let place = Place::new("flip-text");
    let store = open(place.path(), &Options::default());
    for i in 0..3 {
        apply(&store, vec![put(format!("R{i}"), "v")]);
    }
    let (log, copied) = (newest_segment(place.path()), Place::new("flip-text-copy"));
    as_killed(&store, place.path(), copied.path());
    drop(store);
    let log = copied.path().join("log").join(log.file_name().expect("a name"));
    let mut bytes = std::fs::read(&log).expect("the log");
    let at = crate::log::EMPTY_SEGMENT as usize + 10;
    // Behind the mark of the first opening there is that of the commit.
    bytes[at + 72] ^= 4;
    std::fs::write(&log, bytes).expect("a damaged log");
    let e = try_open(copied.path(), &Options::default()).err().expect("it is refused");
    assert_eq!(e.kind(), Kind::Corrupt);
    let text = e.detail();
    assert!(
        text.contains(&log.display().to_string()) && text.contains("offset ") && text.contains("good frames follow"),
        "{text}"
    );
    // What it says works.
    let offset = text.split("offset ").nth(1).and_then(|t| t.split(':').next()).expect("an offset");
    let file = std::fs::File::options().write(true).open(&log).expect("the log");
    file.set_len(offset.parse().expect("a number")).expect("cut");
    assert!(all(&open(copied.path(), &Options::default())).len() < 3);
}

#[test]
fn i1_a_flipped_bit_in_a_small_file_is_noticed() {
    let place = Place::new("flip-small");
    let store = open(place.path(), &tiny());
    for i in 0..100 {
        apply(&store, vec![put(format!("R{i}"), [7; 300])]);
    }
    let expected = all(&store);
    drop(store);
    for file in ["applied", "format"] {
        let path = place.path().join(file);
        let bytes = std::fs::metadata(&path).expect("the file").len() as usize;
        let refused = flip(place.path(), &path, &tiny(), 1, &expected);
        // The end of the line of `format` may be anything that counts as space.
        assert!(refused >= bytes - 1, "{file}: {refused} of {bytes}");
    }
}

#[test]
fn i1_a_missing_segment_is_noticed() {
    let place = Place::new("missing");
    let options = Options { write_buffer: 2 << 10, ..tiny() };
    let store = open(place.path(), &options);
    store.engine().hooks.fail(crate::hooks::Point::Ingest, 5);
    let mut n = 0;
    while store.engine().parts().sealed.len() < 2 {
        apply(&store, vec![put(format!("R{n}"), [n; 100])]);
        n += 1;
    }
    let copied = Place::new("missing-copy");
    let mut logs: Vec<_> =
        std::fs::read_dir(place.path().join("log")).expect("a log").map(|e| e.expect("a file").file_name()).collect();
    logs.sort();
    assert_eq!(logs.len(), 3);
    for log in &logs[..2] {
        copy(place.path(), copied.path());
        std::fs::remove_file(copied.path().join("log").join(log)).expect("a segment");
        let e = try_open(copied.path(), &tiny()).err().expect("it is refused");
        assert!(e.kind() == Kind::Corrupt && e.detail().contains(&*log.to_string_lossy()), "{e:?}");
    }
    copy(place.path(), copied.path());
    std::fs::remove_file(copied.path().join("applied")).expect("the mark");
    let e = try_open(copied.path(), &tiny()).err().expect("it is refused");
    assert!(e.kind() == Kind::Corrupt && e.detail().contains("applied"), "{e:?}");
}
