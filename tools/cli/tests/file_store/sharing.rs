use crate::store::{Ran, Store, pattern};

#[test]
fn t13_of_two_that_put_one_name_exactly_one_wins() {
    let store = Store::with_workspace();
    let files: Vec<String> = (0..4u8).map(|i| store.file(&format!("f{i}"), &vec![i; 100_000])).collect();
    let children: Vec<_> = files.iter().map(|f| store.start(&["put", f, "w/name"])).collect();
    let codes: Vec<_> = children.into_iter().map(|c| Ran::new(c.wait_with_output().unwrap()).code).collect();
    let won: Vec<usize> = (0..4).filter(|i| codes[*i] == Some(0)).collect();
    assert_eq!(won.len(), 1, "{codes:?}");
    assert!(codes.iter().all(|c| matches!(c, Some(0 | 73))), "{codes:?}");
    assert_eq!(store.cat("w/name"), vec![won[0] as u8; 100_000]);
    assert_eq!(store.count(), "1");
}

#[test]
fn t22_a_reader_gets_the_old_or_the_new_never_half_and_never_none() {
    let store = Store::with_workspace();
    let sizes = [3 << 20, 5 << 20];
    let files: Vec<String> = (0..2u8).map(|i| store.file(&format!("f{i}"), &vec![i; sizes[i as usize]])).collect();
    store.iov(&["put", &files[0], "w/f"]).ok();
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            for round in 0..12 {
                store.iov(&["put", &files[round % 2], "w/f", "--if-exists", "replace"]).ok();
            }
        });
        let mut seen = 0;
        while !writer.is_finished() || seen == 0 {
            let bytes = store.cat("w/f");
            let first = *bytes.first().expect("never empty");
            assert_eq!(bytes.len(), sizes[first as usize]);
            assert!(bytes.iter().all(|b| *b == first), "bytes of both");
            seen += 1;
        }
        writer.join().unwrap();
    });
    assert_eq!(store.count(), "1");
}

#[test]
fn several_put_trees_at_the_same_time() {
    let store = Store::with_workspace();
    for tree in 0..3 {
        std::fs::create_dir_all(store.path(&format!("tree{tree}/sub"))).unwrap();
        for i in 0..200 {
            store.file(&format!("tree{tree}/sub/{i}"), format!("{tree} {i}").as_bytes());
        }
        store.file(&format!("tree{tree}/large"), &pattern(5 << 20));
    }
    let children: Vec<_> = (0..3).map(|tree| store.start(&["put", "-r", &format!("tree{tree}"), "w"])).collect();
    for child in children {
        Ran::new(child.wait_with_output().unwrap()).ok();
    }
    assert_eq!(store.count(), "603");
    store.iov(&["get", "-r", "w", "back"]).ok();
    for tree in 0..3 {
        assert_eq!(
            std::fs::read(store.path(&format!("back/tree{tree}/sub/77"))).unwrap(),
            format!("{tree} 77").as_bytes()
        );
        assert!(std::fs::read(store.path(&format!("back/tree{tree}/large"))).unwrap() == pattern(5 << 20));
    }
}

#[test]
fn o6_a_sparse_file_comes_back_sparse() {
    use std::os::unix::fs::{FileExt, MetadataExt};
    let store = Store::with_workspace();
    let file = std::fs::File::create(store.path("sparse")).unwrap();
    file.set_len(256 << 20).unwrap();
    file.write_all_at(b"end", (256 << 20) - 3).unwrap();
    let sparse = |name: &str| store.path(name).metadata().unwrap().blocks() * 512 < 8 << 20;
    if !sparse("sparse") {
        return; // a file system without holes cannot show anything
    }
    store.iov(&["put", "sparse", "w"]).ok();
    store.iov(&["cp", "w/sparse", "w/copy"]).ok();
    store.iov(&["get", "w/copy", "back"]).ok();
    assert!(sparse("back"));
    let mut end = [0; 3];
    std::fs::File::open(store.path("back")).unwrap().read_exact_at(&mut end, (256 << 20) - 3).unwrap();
    assert_eq!(&end, b"end");
}
