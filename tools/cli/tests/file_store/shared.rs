//! `iov up`, `iov df` and `iov down`: a store in shared memory, from its first moment to its last.

use std::path::PathBuf;

use crate::{
    runs::{has_library, python},
    store::{Ran, Store, pattern},
};

/// Ends the store, whatever became of the test.
struct Up<'a>(&'a Store);

impl Drop for Up<'_> {
    fn drop(&mut self) {
        self.0.iov(&["down"]);
    }
}

impl Up<'_> {
    fn place(&self) -> PathBuf {
        let text = std::fs::read_to_string(self.0.path("store/storage")).unwrap();
        text.trim().rsplit(' ').next().unwrap().into()
    }

    fn json(&self, command: &str) -> serde_json::Value {
        self.0.iov(&[command, "--json"]).ok().json()
    }
}

fn up(store: &Store, storage: &str) -> Ran {
    store.iov(&["up", "--storage", storage])
}

#[test]
fn a_store_in_shared_memory_comes_up_is_used_and_goes() {
    let store = Store::new();
    let text = up(&store, "shmem:64MiB").ok().text();
    let held = Up(&store);
    assert!(text.contains("is up, with 64.0 MiB of shared memory") && text.contains("export IOVERBS_URL="), "{text}");
    assert!(store.iov(&["up"]).ok().text().contains("is up already"));
    up(&store, "shmem:32MiB").fails(75, &["iov down"]);
    store.iov(&["ws", "create", "w"]).ok();
    let bytes = pattern(3 << 20);
    let file = store.file("f", &bytes);
    store.iov(&["put", &file, "w/f", "-m", "temperature=310"]).ok();
    assert!(store.cat("w/f") == bytes);
    let df = held.json("df");
    assert_eq!((df["medium"].as_str(), df["capacity"].as_u64()), (Some("shared memory"), Some(64 << 20)));
    let used = df["used"].as_u64().unwrap();
    assert!((3 << 20..4 << 20).contains(&used), "{used}");
    assert!(df["taken"].as_u64().unwrap() >= used && df["below"]["free"].as_u64().is_some());
    let table = store.iov(&["df"]).ok().text();
    assert!(table.contains("shared memory") && table.contains("taken of /dev/shm"), "{table}");

    // Kept, it is there again with the next command.
    store.iov(&["down", "--keep"]).ok();
    assert!(held.place().exists());
    assert!(store.cat("w/f") == bytes);
    let text = store.iov(&["down"]).ok().text();
    assert!(text.contains("of shared memory are free again"), "{text}");
    assert!(!held.place().exists());
    // What is known of it stays; its bytes are lost, and not zeros.
    assert_eq!(store.iov(&["find", "w", "temperature > 300"]).ok().lines(), ["w/f"]);
    store.iov(&["get", "w/f", "back"]).fails(66, &["IOV_ELOST", "P1"]);
    assert!(!store.path("back").exists());
    store.iov(&["put", &file, "w/f", "--if-exists", "replace"]).ok();
    assert!(store.cat("w/f") == bytes);
    assert_eq!(store.iov(&["down", "--json"]).ok().json()["ended"], true);
    assert!(store.iov(&["down"]).ok().text().contains("no daemon runs"));
}

#[test]
fn a_store_is_up_in_a_directory_of_its_own() {
    let store = Store::new();
    let dir = store.path("else").to_str().unwrap().to_owned();
    let said = store.iov(&["up", "--dir", &dir, "--storage", "files", "--json"]).ok().json();
    assert_eq!((said["started"].as_bool(), said["store"].as_str()), (Some(true), Some(&*format!("file:{dir}"))));
    let url = format!("file:{dir}");
    store.iov(&["-S", &url, "ws", "create", "w"]).ok();
    assert!(store.iov(&["-S", &url, "df"]).ok().text().contains("files"));
    store.iov(&["-S", &url, "up", "--dir", &dir]).fails(64, &["give one"]);
    store.iov(&["-S", &url, "down"]).ok();
    store.iov(&["-S", &url, "up", "--storage", "shmem:64MiB"]).fails(64, &["another directory"]);
}

#[test]
fn what_cannot_be_had_is_told() {
    let store = Store::new();
    up(&store, "shmem:1000TiB").fails(73, &["--shm-size", "ask for less"]);
    up(&store, "shmem:lots").fails(64, &["lots"]);
    up(&store, "tape").fails(64, &["shmem:SIZE"]);
    assert!(store.iov(&["status"]).ok().text().contains("no daemon runs"));
}

#[test]
fn what_is_written_behind_a_time_that_was_set_has_another_one() {
    if !has_library() {
        return;
    }
    let store = Store::new();
    up(&store, "shmem:64MiB").ok();
    let _up = Up(&store);
    store.iov(&["ws", "create", "w"]).ok();
    // Right after it, in files whose bytes are in their record, in segments, and on their way from the one to the other.
    let program = r#"
import os
os.chdir("/iov/w")
writes = [("ab", b"+"), ("r+b", b"+"), ("ab", b"+" * 9000), ("r+b", b"+" * 9000)]
for size in (1, 4000, 20000):
    for mode, more in writes:
        for _ in range(4):
            with open("f", "wb") as f: f.write(b"x" * size)
            os.utime("f", (5, 5))
            with open("f", mode) as f: f.write(more)
            assert os.stat("f").st_mtime > 5, (size, mode, len(more))
            with open("f", "r+b", buffering=0) as f:
                os.utime(f.fileno(), (5, 5))
                f.write(more)
            assert os.stat("f").st_mtime > 5, (size, mode, len(more), "open")
            os.unlink("f")
print("done")
"#;
    assert_eq!(python(&store, program).ok().text(), "done\n");
}
