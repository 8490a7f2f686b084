//! Views: what they show, and how long it stays.

use std::time::{Duration, Instant};

use ioverbs::Kind;

use super::{MIB, Shared, delete};
use crate::kit::{create, read, wait_until};

#[test]
fn views_show_what_is_there_and_keep_it() {
    let shared = Shared::new("32MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    let bytes: Vec<u8> = (0..3 * MIB).map(|i| (i / 4096) as u8 ^ i as u8).collect();
    ioverbs::write_at(&c, 0, &bytes).unwrap();
    // SAFETY: the view pins them, and nobody writes meanwhile.
    let shown = |view: &ioverbs::Viewed| unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) }.to_vec();
    let view = c.view(12_345, 100_000).unwrap();
    assert!(shown(&view) == bytes[12_345..112_345]);
    assert_eq!(view.as_ptr() as usize % 64, 12_345 % 64, "aligned as its offset is");
    assert_eq!(c.view(3 * MIB as u64 - 5, 100).unwrap().len(), 5, "not beyond the end");
    assert_eq!(c.view(3 * MIB as u64 + 5, 100).unwrap().len(), 0);
    // Whoever writes, seals or deletes does not wait for it, and its bytes stay.
    ioverbs::run(ws.session(), ioverbs::Op::Seal { c: c.clone() }).unwrap();
    let sealed = c.view(0, bytes.len() as u64).unwrap();
    ioverbs::close(&c).unwrap();
    let from = Instant::now();
    delete(&ws, "c");
    assert!(from.elapsed() < Duration::from_secs(10));
    // Others take all the space that there is.
    for i in 0.. {
        let c = create(&ws, &format!("filler{i}"), "");
        if ioverbs::write_at(&c, 0, &vec![0xee; MIB]).is_err() {
            break;
        }
    }
    assert!(shown(&sealed) == bytes[..sealed.len()] && !sealed.is_empty(), "T21: never foreign bytes");
    assert!(shown(&view) == bytes[12_345..112_345]);
    assert!(shared.store.status("shm_held_bytes").unwrap() >= 3 * MIB as u64);
    drop((view, sealed));
    let last = create(&ws, "last", "");
    wait_until("the space comes back", || ioverbs::write_at(&last, 0, &vec![1; 2 * MIB]).is_ok());
    // A small one lies in its record, and a group has no bytes.
    let small = create(&ws, "small", "");
    ioverbs::write_at(&small, 0, b"small").unwrap();
    assert_eq!(small.view(0, 5).err().map(|e| e.kind()), Some(Kind::Unsupported));
}

/// A child that lets go of a view which it has inherited does not let go for its parent.
#[test]
fn t23_a_child_does_not_end_its_parents_views() {
    let shared = Shared::new("16MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![7; MIB]).unwrap();
    let view = c.view(0, 1000).unwrap();
    // SAFETY: the child does nothing but drop the view and end.
    match unsafe { libc::fork() } {
        0 => {
            drop(view);
            // SAFETY: takes no pointer; nothing of the parent's is run at its end.
            unsafe { libc::_exit(0) }
        }
        // SAFETY: waits for that child.
        child => assert_eq!(unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) }, child),
    }
    ioverbs::close(&c).unwrap();
    delete(&ws, "c");
    for i in 0.. {
        let filler = create(&ws, &format!("filler{i}"), "");
        if ioverbs::write_at(&filler, 0, &vec![0xee; MIB]).is_err() {
            break;
        }
    }
    // SAFETY: the view pins them.
    let shown = unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) };
    assert!(shown.iter().all(|b| *b == 7));
}

/// The same for what is appended and cut again (T21).
#[test]
fn t21_a_view_of_appended_records_outlives_their_truncation() {
    let shared = Shared::new("16MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    for _ in 0..8 {
        ioverbs::append(&c, &vec![7; 100_000]).unwrap();
    }
    let view = c.view(200_000, 500_000).unwrap();
    ioverbs::run(ws.session(), ioverbs::Op::Truncate { c: c.clone(), size: 10 }).unwrap();
    for i in 0.. {
        let filler = create(&ws, &format!("filler{i}"), "");
        if ioverbs::write_at(&filler, 0, &vec![0xee; MIB]).is_err() {
            break;
        }
    }
    // SAFETY: the view pins them.
    let shown = unsafe { std::slice::from_raw_parts(view.as_ptr(), view.len()) };
    assert!(!shown.is_empty() && shown.iter().all(|b| *b != 0xee), "never foreign bytes");
}

/// A daemon that starts while somebody looks at bytes in place does not take him for a stuck writer.
#[test]
fn p2_a_view_does_not_cost_a_restart_anything() {
    let mut shared = Shared::new("32MiB");
    let ws = shared.store.in_workspace();
    let c = create(&ws, "c", "");
    ioverbs::write_at(&c, 0, &vec![7; 20 * MIB]).unwrap();
    let view = c.view(0, 1000).unwrap();
    shared.kill();
    shared.restart(&[]);
    assert_eq!(read(&c).len(), 16 * MIB);
    ioverbs::write_at(&c, 0, &vec![8; MIB]).unwrap();
    assert_eq!(read(&c)[..MIB], vec![8; MIB]);
    // What nobody used is lent again only when the view has gone, but what the daemon takes anew is there.
    let other = create(&ws, "other", "");
    ioverbs::write_at(&other, 0, &vec![9; MIB]).unwrap();
    drop(view);
}
