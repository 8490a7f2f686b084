//! The example backend in C, loaded at run time.

use std::{
    path::{Path, PathBuf},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use iov_store::{Backend, OpCx, conformance, conformance::Probe, objects::Medium};
use iov_types::{Kind, ObjectVerb, Persistence, Uuid};
use proptest::prelude::*;

use super::{compile, setup};
use crate::{Foreign, Setup, Source, open};

/// The shared object, compiled once.
fn library() -> &'static Path {
    static LIBRARY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = LIBRARY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("directory.so");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/backend/directory.c");
        compile(&source, &path, &["-fPIC", "-shared"]);
        (dir, path)
    });
    path
}

fn at(dir: &Path) -> Foreign {
    let source = Source::File(library().to_owned());
    let bytes = dir.join("bytes");
    let setup = Setup { stages: Some(&dir.join("stages")), ..setup(bytes.to_str().unwrap()) };
    open(&source, setup).unwrap()
}

fn probe(target: &Arc<Foreign>, n: u64) -> Probe {
    let target: Arc<dyn Backend> = target.clone();
    Probe::new(&target, n)
}

/// A stage as [`Probe`] numbers them.
fn stage(n: u64) -> Uuid {
    let mut bytes = [0; 16];
    bytes[8..].copy_from_slice(&n.to_be_bytes());
    Uuid(bytes)
}

#[test]
fn the_example_in_c_passes_the_backend_suite() {
    let scratch = tempfile::tempdir().unwrap();
    let next = AtomicUsize::new(0);
    conformance::backend(&|| {
        let dir = scratch.path().join(next.fetch_add(1, Ordering::Relaxed).to_string());
        std::fs::create_dir(&dir).unwrap();
        Arc::new(at(&dir))
    });
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 15, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn o6_the_example_in_c_does_what_the_model_does(steps in testing_model::steps(60)) {
        let dir = tempfile::tempdir().unwrap();
        let bytes = dir.path().join("bytes");
        let setup = Setup { stage_bytes: 1 << 30, ..setup(bytes.to_str().unwrap()) };
        let target: Arc<dyn Backend> = Arc::new(open(&Source::File(library().to_owned()), setup).unwrap());
        if let Err(difference) = testing_model::compare_dense(&target, &steps) {
            prop_assert!(false, "{difference}");
        }
    }
}

#[test]
fn several_are_there_at_once_and_apart() {
    let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let targets = [Arc::new(at(one.path())), Arc::new(at(other.path())), Arc::new(super::heap())];
    for (n, target) in targets.iter().enumerate() {
        probe(target, 1).write(0, &[n as u8; 1000]).unwrap();
    }
    for (n, target) in targets.iter().enumerate() {
        assert_eq!(probe(target, 1).all(), [n as u8; 1000]);
    }
}

#[test]
fn p3_what_a_backend_keeps_is_there_for_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let target = Arc::new(at(dir.path()));
    let (open, sealed) = (probe(&target, 1), probe(&target, 2));
    open.with(|d| d.durability = Some(Persistence::Durable)).write(10, b"bytes").unwrap();
    open.fence(5).unwrap();
    open.staged(1).append(b"+").unwrap();
    open.publish(1).unwrap();
    sealed.write(0, b"for ever").unwrap();
    sealed.call(ObjectVerb::Seal).unwrap();
    let before = open.stat();
    drop((open, sealed, target));
    let target = Arc::new(at(dir.path()));
    let (open, sealed) = (probe(&target, 1), probe(&target, 2));
    let facts = open.stat();
    assert_eq!((facts.size, facts.version, facts.epoch), (16, before.version, 5));
    assert_eq!(open.all(), b"\0\0\0\0\0\0\0\0\0\0bytes+");
    let late = open.with(|d| d.epoch = 4);
    assert_eq!(late.write(0, b"x").unwrap_err().kind(), Kind::Fenced);
    assert_eq!(sealed.write(0, b"x").unwrap_err().kind(), Kind::Immutable, "the backend itself says so");
    assert_eq!(open.call(ObjectVerb::List { after: None, max: 10 }).unwrap().objects, [open.id, sealed.id]);
}

#[test]
fn b3_what_a_crash_leaves_prepared_is_published_or_dropped_by_the_next_process() {
    let dir = tempfile::tempdir().unwrap();
    let target = Arc::new(at(dir.path()));
    for n in [1, 2, 3] {
        let object = probe(&target, n);
        object.write(0, b"old").unwrap();
        object.staged(n).write(0, b"new bytes").unwrap();
        if n < 3 {
            object.freeze(n).unwrap();
        }
    }
    // As if the process had ended here: 1 is behind its point P, 2 before, 3 was never frozen.
    drop(target);
    let staged = |dir: &Path| {
        let names = std::fs::read_dir(dir.join("bytes")).unwrap().map(|e| e.unwrap().file_name());
        names.filter(|name| name.to_string_lossy().contains('+')).count()
    };
    assert_eq!(staged(dir.path()), 2);
    let target = Arc::new(at(dir.path()));
    assert!(target.medium().settle(&OpCx::own(1_000_000_000), &[stage(1)]).is_empty());
    assert_eq!(staged(dir.path()), 1, "what nobody decides for is dropped");
    for _ in 0..2 {
        probe(&target, 1).publish(1).unwrap();
        probe(&target, 2).publish(2).unwrap();
    }
    assert_eq!(probe(&target, 1).all(), b"new bytes");
    assert_eq!((probe(&target, 2).all(), probe(&target, 3).all()), (b"old".to_vec(), b"old".to_vec()));
    assert_eq!(staged(dir.path()), 0);
    assert_eq!(std::fs::metadata(dir.path().join("stages")).unwrap().len(), 0, "nothing is left to be remembered");
}

#[test]
fn what_cannot_be_loaded_or_configured_is_told() {
    let dir = tempfile::tempdir().unwrap();
    let fails = |source: &Path, config: &str| match open(&Source::File(source.to_owned()), setup(config)) {
        Err(e) => (e.kind(), e.detail().to_owned()),
        Ok(_) => panic!("it was taken"),
    };
    let (kind, words) = fails(&dir.path().join("nowhere.so"), "");
    assert!(kind == Kind::NotFound && words.contains("nowhere.so"), "{words}");
    let text = dir.path().join("text.so");
    std::fs::write(&text, "this is no shared object").unwrap();
    assert_eq!(fails(&text, "").0, Kind::Invalid);
    let (empty, source) = (dir.path().join("empty.so"), dir.path().join("empty.c"));
    std::fs::write(&source, "int something_else;\n").unwrap();
    compile(&source, &empty, &["-fPIC", "-shared"]);
    let (kind, words) = fails(&empty, "");
    assert!(kind == Kind::Invalid && words.contains("iov_backend_ops_v1"), "{words}");
    let (kind, words) = fails(library(), "a/relative/path");
    assert!(kind == Kind::Invalid && words.contains("backend directory cannot be used"), "{words}");
    assert!(words.contains("the whole path of a directory"), "what it has logged: {words}");
}
