use std::{ffi::OsStr, os::unix::ffi::OsStrExt};

use ioverbs::{Kind, Name, Which};

use crate::address::Address;

fn parse(text: &str) -> Address {
    Address::parse(OsStr::new(text)).unwrap()
}

fn name(text: &str) -> Which {
    Which::Name(Name::new(text).unwrap())
}

#[test]
fn addresses_are_workspace_and_path() {
    let a = parse("simulation");
    assert_eq!((a.workspace, a.path.len(), a.slash, a.store), (name("simulation"), 0, false, None));
    let a = parse("simulation/group/run_1");
    assert_eq!(a.path, [name("group"), name("run_1")]);
    assert!(parse("simulation/group/").slash);
    assert_eq!(parse("simulation/group/").path, [name("group")]);
}

#[test]
fn addresses_name_uuids_and_stores() {
    let uuid = "uuid:0192f0c1-2b3c-7def-8123-456789abcdef";
    assert!(matches!(parse(&format!("w/{uuid}")).path[0], Which::Uuid(_)));
    let a = parse("iov://host:1234/w/n");
    assert_eq!((a.store.as_deref(), a.workspace.clone()), (Some("iov://host:1234"), name("w")));
    assert_eq!(parse("iov:///w/n").store, None);
    assert_eq!(parse("iov:///w/n").path, [name("n")]);
}

#[test]
fn addresses_may_be_any_bytes_and_read_back() {
    let bytes = b"w/\xff\xfe\n/x";
    let a = Address::parse(OsStr::from_bytes(bytes)).unwrap();
    assert_eq!(a.to_bytes(), bytes);
    assert_eq!(a.to_string(), "w/\\xff\\xfe\\n/x");
}

#[test]
fn what_is_no_address_says_what_to_write() {
    for (bad, word) in [
        ("", "empty"),
        ("/w/n", "local path"),
        ("w//n", "is empty"),
        ("file:/scratch/x", "--store"),
        ("mem:", "--store"),
        ("w/uuid:123", "not a UUID"),
        ("iov://host", "empty"),
    ] {
        let e = Address::parse(OsStr::new(bad)).unwrap_err();
        assert_eq!(e.kind(), Kind::Invalid, "{bad}");
        assert!(e.detail().contains(word), "{bad}: {e}");
    }
}
