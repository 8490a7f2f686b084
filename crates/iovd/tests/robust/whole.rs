//! Reads that are larger than one frame, while what they read is published anew (M1).

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use ioverbs::{SessionAttr, open, write_at};

use crate::{
    kit::{Store, create, lookup},
    members::workspace,
};

const MIB: usize = 1 << 20;

/// Reads a collection of 5 MiB again and again through a URL, while it is published with other bytes each time.
fn is_whole(store: &Store, url: &str, what: &str) {
    let ws = store.in_workspace();
    let c = create(&ws, "c", "atomicity=publication");
    write_at(&c, 0, &vec![0; 5 * MIB]).unwrap();
    ioverbs::commit(&c).unwrap();
    let over = Arc::new(AtomicBool::new(false));
    let until = over.clone();
    let writer = std::thread::spawn(move || {
        let mut k = 1u8;
        while !until.load(Relaxed) {
            write_at(&c, 0, &vec![k; 5 * MIB]).unwrap();
            ioverbs::commit(&c).unwrap();
            k = k.wrapping_add(1);
        }
    });
    let attr = SessionAttr { nodirect: true, ..SessionAttr::default() };
    let reader = lookup(&workspace(&open(Some(url), attr).unwrap()), "c");
    let mut seen = std::collections::BTreeSet::new();
    for _ in 0..60 {
        let mut bytes = vec![0xee; 5 * MIB];
        assert_eq!(ioverbs::read_at(&reader, 0, &mut bytes).unwrap(), bytes.len(), "{what}");
        let first = vec![bytes[0]; bytes.len()];
        assert!(bytes == first, "{what}: of two publications");
        seen.insert(bytes[0]);
    }
    over.store(true, Relaxed);
    writer.join().unwrap();
    assert!(seen.len() > 3, "{what}: it was published meanwhile: {seen:?}");
}

#[test]
fn m1_a_large_read_over_a_unix_socket_is_of_one_publication() {
    let store = Store::new();
    is_whole(&store, &store.url(), "by the socket");
}

#[test]
fn m1_a_large_read_over_tcp_is_of_one_publication() {
    let store = Store::new();
    let _daemon = store.daemon(&["--listen", "127.0.0.1:0"], &[]);
    let address = ioverbs::daemon_addresses_within(&store.url(), 30_000_000_000).unwrap().unwrap()[0].clone();
    let url = format!("iov://{address}?secret={}", store.dir().join("secret").display());
    is_whole(&store, &url, "by TCP");
}
