//! `iov up --trace` and `iov trace show`, and the media that a store can be brought up on.

use crate::store::{Store, pattern};

/// Ends the store, whatever became of the test.
struct Up<'a>(&'a Store);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.0.iov(&["down"]);
    }
}

fn calls(store: &Store, more: &[&str]) -> Vec<serde_json::Value> {
    let args = [&["trace", "show", "t.trace", "--json"], more].concat();
    let lines = store.iov(&args).ok().lines();
    lines.iter().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[test]
fn a_trace_tells_every_byte_that_went_to_the_target() {
    for storage in ["shmem:64MiB", "files", "heap:64MiB"] {
        let store = Store::new();
        let up = Up(&store);
        store.iov(&["up", "--storage", storage, "--trace", "t.trace"]).ok();
        store.iov(&["up", "--trace", "other.trace"]).fails(75, &["a trace can be begun", "iov down --keep"]);
        store.iov(&["ws", "create", "w"]).ok();
        let bytes = pattern(3 << 20);
        store.iov(&["put", &store.file("f", &bytes), "w/f"]).ok();
        assert!(store.cat("w/f") == bytes);
        let told = calls(&store, &[]);
        assert!(told[0]["began"].is_string(), "{storage}: {}", told[0]);
        for call in ["write", "read"] {
            let of = told.iter().filter(|e| e["call"] == call);
            let moved: u64 = of.map(|e| e["bytes"].as_u64().unwrap()).sum();
            assert_eq!(moved, 3 << 20, "{storage}: nothing goes past it, {call}");
        }
        let uuid = told.iter().find(|e| e["call"] == "write").unwrap()["collection"].as_str().unwrap().to_owned();
        assert!(calls(&store, &["--collection", &uuid]).len() > 2);
        assert_eq!(calls(&store, &["--failed"]).len(), 1, "{storage}: only its beginning");
        let sums = calls(&store, &["--summary"]);
        let read = sums.iter().find(|sum| sum["call"] == "read").unwrap();
        assert_eq!(read["bytes"], 3 << 20);
        assert!(read["median_ns"].as_u64().unwrap() <= read["max_ns"].as_u64().unwrap());
        let text = store.iov(&["trace", "show", "t.trace"]).ok().text();
        assert!(text.starts_with("a daemon began at ") && text.contains(&uuid), "{text}");
        let looks = text.lines().filter(|line| line.contains(" extents ") || line.contains(" stat "));
        assert!(
            looks.clone().count() > 0 && looks.clone().all(|line| !line.ends_with("bytes")),
            "they move none: {text}"
        );
        let text = store.iov(&["trace", "show", "t.trace", "--summary"]).ok().text();
        assert!(text.contains("3.00 MiB"), "{text}");
        drop(up);
    }
}

#[test]
fn what_is_no_trace_is_told() {
    let store = Store::new();
    store.file("thesis", b"mine, and much too dear to be written over");
    store.iov(&["trace", "show", "thesis"]).fails(64, &["not a trace", "iov up --trace"]);
    store.iov(&["trace", "show", "nowhere"]).fails(66, &["nowhere"]);
    store.iov(&["up", "--trace", "thesis"]).fails(64, &["not a trace"]);
    assert_eq!(std::fs::read(store.path("thesis")).unwrap(), b"mine, and much too dear to be written over");
}

#[test]
fn a_heap_store_says_what_it_has_and_that_it_cannot_be_kept() {
    let store = Store::new();
    let up = Up(&store);
    let text = store.iov(&["up", "--storage", "heap:64MiB"]).ok().text();
    assert!(text.contains("with 64.0 MiB of heap"), "{text}");
    store.iov(&["ws", "create", "w"]).ok();
    store.iov(&["put", &store.file("f", &pattern(3 << 20)), "w/f"]).ok();
    let df = store.iov(&["df", "--json"]).ok().json();
    assert_eq!((df["medium"].as_str(), df["capacity"].as_u64()), (Some("heap"), Some(64 << 20)));
    assert!((3 << 20..4 << 20).contains(&df["used"].as_u64().unwrap()), "{df}");
    assert!(store.iov(&["df"]).ok().text().contains("heap"));
    store.iov(&["down", "--keep"]).fails(64, &["iov get"]);
    assert!(store.cat("w/f") == pattern(3 << 20), "it was not ended");
    drop(up);
    store.iov(&["get", "w/f", "back"]).fails(66, &["IOV_ELOST", "P1", "daemon"]);
}
