use std::process::Command;

use super::{Linked, directories, expanded, library_path};

/// What the compiler makes of `int f(void) { return 1; }` with these options.
fn linked(options: &[&str]) -> Linked {
    let dir = tempfile::tempdir().unwrap();
    let (source, made) = (dir.path().join("a.c"), dir.path().join("a.so"));
    std::fs::write(&source, "int f(void) { return 1; }\nint main(void) { return 0; }\n").unwrap();
    let built = Command::new("cc").arg("-o").arg(&made).arg(&source).args(options).output().unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    let mut bytes = std::fs::read(&made).unwrap();
    let linked = Linked::of(&bytes).unwrap();
    // The linker does without section headers: `e_shoff`, `e_shnum` and `e_shstrndx`.
    bytes[40..48].fill(0);
    bytes[60..64].fill(0);
    assert_eq!(Linked::of(&bytes).unwrap(), linked);
    linked
}

fn list(dirs: &[&str]) -> Vec<Vec<u8>> {
    dirs.iter().map(|dir| dir.as_bytes().to_vec()).collect()
}

#[test]
fn a_library_says_what_it_needs_and_where_that_is() {
    let old = ["-shared", "-fPIC", "-Wl,--disable-new-dtags", "-Wl,-rpath,$ORIGIN/../lib:/opt/x"];
    let with_rpath = linked(&[&old[..], &["-Wl,-soname,libf.so.1", "-Wl,--no-as-needed", "-lm"]].concat());
    assert_eq!(with_rpath.soname.as_deref(), Some(&b"libf.so.1"[..]));
    assert_eq!(with_rpath.needed, list(&["libm.so.6", "libc.so.6"]));
    assert_eq!((with_rpath.rpath.clone(), with_rpath.runpath.clone()), (list(&["$ORIGIN/../lib", "/opt/x"]), None));
    let others = list(&["/theirs"]);
    assert_eq!(with_rpath.first(b"/w/bin", &others), list(&["/w/bin/../lib", "/opt/x", "/theirs"]));
    let path = list(&["/said"]);
    assert_eq!(with_rpath.searched(b"/w/bin", &others, &path), list(&["/w/bin/../lib", "/opt/x", "/theirs", "/said"]));
    // Newer linkers look behind the variable, and for itself alone.
    let with_runpath = linked(&["-Wl,--enable-new-dtags", "-Wl,-rpath,${ORIGIN}"]);
    assert_eq!((with_runpath.soname.clone(), with_runpath.needed.clone()), (None, list(&["libc.so.6"])));
    assert_eq!(with_runpath.searched(b"/w", &others, &path), list(&["/said", "/w"]));
    assert_eq!(with_runpath.first(b"/w", &others), others);
}

#[test]
fn directories_are_as_the_linker_reads_them() {
    assert_eq!(directories(b""), list(&[]));
    assert_eq!(directories(b"/a::b"), list(&["/a", ".", "b"]));
    assert_eq!(library_path(b"/a;$ORIGIN/l:", b"/o"), list(&["/a", "/o/l", "."]));
    assert_eq!(library_path(b"", b"/o"), list(&[]));
    assert_eq!(expanded(b"$ORIGIN/a/${ORIGIN}", b"/o"), Some(b"/o/a//o".to_vec()));
    assert_eq!(expanded(b"/usr/$LIB", b"/o"), None);
}

#[test]
fn what_is_broken_is_no_library() {
    let whole = std::fs::read("/proc/self/exe").unwrap();
    assert!(Linked::of(&whole).is_some_and(|linked| linked.needed.contains(&b"libc.so.6".to_vec())));
    for len in (0..512).chain([4096, whole.len() / 2]) {
        // Whatever is left of it: no panic, and no names from elsewhere.
        let left = Linked::of(&whole[..len]);
        assert!(left.is_none_or(|linked| {
            linked.needed.iter().all(|name| name.starts_with(b"lib") || name.starts_with(b"ld-"))
        }));
    }
    assert_eq!(Linked::of(b"#!/bin/sh\n"), None);
}

proptest::proptest! {
    #[test]
    fn no_byte_of_a_header_does_harm(at in 0..4096_usize, byte: u8) {
        let mut bytes = std::fs::read("/bin/true").unwrap();
        let at = at % bytes.len();
        bytes[at] = byte;
        let _ = Linked::of(&bytes);
    }
}
