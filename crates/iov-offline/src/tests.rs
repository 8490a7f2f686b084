//! The engine in memory over another one, by the suite that every engine must pass; and the line that says where bytes are.

use std::{path::Path, sync::Arc};

use iov_store::{KeyRange, MemoryStore, MetadataStore, Txn, conformance};

use crate::{
    overlay::Overlay,
    place::{Place, read},
};

fn put(store: &dyn MetadataStore, writes: &[(&str, Option<&str>)]) {
    let writes = writes.iter().map(|(k, v)| (k.as_bytes().to_vec(), v.map(|v| v.as_bytes().to_vec().into()))).collect();
    store.commit(vec![Txn { guards: Vec::new(), writes }]).unwrap().remove(0).unwrap();
}

fn all(store: &dyn MetadataStore, limit: usize) -> Vec<(String, String)> {
    let everything = KeyRange { from: Vec::new(), to: None };
    let (mut out, mut after) = (Vec::new(), None);
    loop {
        let page = store.scan(&everything, after.as_deref(), limit).unwrap();
        let Some((last, _)) = page.last() else { return out };
        after = Some(last.to_vec());
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        out.extend(page.iter().map(|(key, record)| (text(key), text(&record.value))));
    }
}

#[test]
fn the_engine_in_memory_passes_the_metadata_suite() {
    conformance::metadata(&|| Arc::new(Overlay::new(MemoryStore::new().snapshot().unwrap())));
}

#[test]
fn what_is_written_lies_over_what_is_there_and_what_is_there_stays() {
    let below = MemoryStore::new();
    let keys: Vec<String> = (0..700).map(|n| format!("k{n:03}")).collect();
    put(&below, &keys.iter().map(|k| (k.as_str(), Some("old"))).collect::<Vec<_>>());
    let before = all(&below, 1000);
    let over = Overlay::new(below.snapshot().unwrap());
    let view = over.snapshot().unwrap();
    put(&over, &[("k001", Some("new")), ("k002", None), ("k3", Some("")), ("a", Some("first")), ("k699", None)]);
    let mut expected = before.clone();
    expected.retain(|(key, _)| key != "k002" && key != "k699");
    expected[1].1 = "new".into();
    expected.push(("k3".into(), String::new()));
    expected.push(("a".into(), "first".into()));
    expected.sort();
    for limit in [1, 7, 256, 5000] {
        assert_eq!(all(&over, limit), expected, "{limit} at a time");
    }
    let get = |key: &str| over.get(&[key.as_bytes()]).unwrap().remove(0).map(|r| r.value.to_vec());
    assert_eq!(get("k002"), None);
    assert_eq!(get("k001").as_deref(), Some(&b"new"[..]));
    assert_eq!(get("k003").as_deref(), Some(&b"old"[..]));
    assert_eq!(get("k3").as_deref(), Some(&b""[..]));
    assert_eq!(view.get(&[b"k001"]).unwrap()[0].as_ref().map(|r| &r.value[..]), Some(&b"old"[..]), "a view stays");
    assert_eq!(all(&below, 1000), before);
}

#[test]
fn the_line_of_a_store_tells_where_its_bytes_are() {
    let of = |text: &str| read(text, Path::new("/store"));
    assert_eq!(of("files").unwrap(), Place::Files(None));
    assert_eq!(of("files,io=direct").unwrap(), Place::Files(None));
    assert_eq!(of("files:/a/b,io=uring").unwrap(), Place::Files(Some("/a/b".into())));
    assert_eq!(of("files:/a b").unwrap(), Place::Files(Some("/a b".into())));
    assert_eq!(of("shmem 1024 /dev/shm/iov 1").unwrap(), Place::Shared("/dev/shm/iov 1".into()));
    assert_eq!(of("heap 1024").unwrap(), Place::Heap);
    assert_eq!(of("null").unwrap(), Place::Null);
    for other in ["virtual /lib/x.so,", "mirror /a /b", "", "files 3"] {
        assert_eq!(of(other).unwrap_err().kind(), iov_types::Kind::Unsupported, "{other}");
    }
}
