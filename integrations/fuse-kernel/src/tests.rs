//! Layouts, what is agreed on, and who takes the next request.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use proptest::prelude::*;

use crate::{
    Attr, Entry, Names, Room,
    abi::{head_len, init},
    crew::{Crew, Interrupts, Pulse},
    dispatch::split,
    fields::{Fields, Writer},
    handshake::{Asked, answer, read},
    mounting::Switch,
    ring::count,
    watch::Seen,
};

const ATTR: Attr = Attr {
    ino: 7,
    size: 3,
    blocks: 1,
    atime_ns: -1,
    mtime_ns: -1_500_000_001,
    ctime_ns: 4_000_000_000_123_456_789,
    btime_ns: 0,
    mode: 0o100_644,
    links: 1,
    uid: 8,
    gid: 9,
    rdev: (8, 1),
};

#[test]
fn times_before_1970_count_forward_from_a_negative_second() {
    let mut room = [0; 88];
    let mut to = Writer::new(&mut room);
    ATTR.write(&mut to);
    assert_eq!(to.done(), Ok(88), "fuse_attr");
    let mut from = Fields(&room[24..]);
    let seconds = [from.u64(), from.u64(), from.u64()].map(|s| s.unwrap() as i64);
    assert_eq!(seconds, [-1, -2, 4_000_000_000]);
    assert_eq!([from.u32(), from.u32(), from.u32()], [Ok(999_999_999), Ok(499_999_999), Ok(123_456_789)]);
}

#[test]
fn devices_are_numbered_as_the_kernel_does_it() {
    for (device, expected) in [((8, 1), 0x801), ((1, 3), 0x103), ((259, 0xf_ffff), 0xfff1_03ff)] {
        let mut room = [0; 88];
        Attr { rdev: device, ..ATTR }.write(&mut Writer::new(&mut room));
        assert_eq!(Fields(&room[76..]).u32(), Ok(expected), "{device:?}");
    }
}

#[test]
fn answers_are_as_long_as_the_kernels_structures() {
    let mut room = [0; 512];
    let mut to = Writer::new(&mut room);
    Entry { ttl: Duration::from_millis(1500), attr: ATTR }.write(&mut to);
    assert_eq!(to.done(), Ok(128), "fuse_entry_out");
    let mut to = Writer::new(&mut room);
    ATTR.write_statx(&mut to);
    assert_eq!(to.done(), Ok(256), "fuse_statx");
    let mut to = Writer::new(&mut room);
    crate::Space::default().write(&mut to);
    assert_eq!(to.done(), Ok(80), "fuse_statfs_out");
    let mut to = Writer::new(&mut room);
    crate::Opened { handle: 1, flags: 2, backing: Some(3) }.write(&mut to);
    assert_eq!(to.done(), Ok(16), "fuse_open_out");
    assert_eq!(room[..16], [1, 0, 0, 0, 0, 0, 0, 0, 2 | 1 << 7, 0, 0, 0, 3, 0, 0, 0]);
}

#[test]
fn names_fill_the_room_and_no_more() {
    let mut room = [0; 64];
    let mut names = Names::new(&mut room);
    assert!(names.add(5, 0o040_000, 1, b".") && !names.add(6, 0o100_000, 2, b"123456789"));
    assert!(names.add(6, 0o100_000, 2, b"12345678") && !names.add(7, 0o100_000, 3, b""));
    assert_eq!(names.len(), 64);
    let mut from = Fields(&room[32..]);
    assert_eq!((from.u64(), from.u64(), from.u32(), from.u32()), (Ok(6), Ok(2), Ok(8), Ok(8)));
    assert_eq!(from.bytes(8), Ok(&b"12345678"[..]));
}

#[test]
fn who_has_no_room_hears_how_long_a_value_is() {
    let give = |size: usize, value: &[u8]| {
        let mut bytes = [0; 16];
        let mut room = Room::new(&mut bytes, size);
        room.give(value);
        (room.given(), bytes)
    };
    assert_eq!(give(0, b"four").0, Ok(8));
    assert_eq!(give(0, b"four").1[..4], [4, 0, 0, 0]);
    assert_eq!(give(3, b"four").0, Err(34));
    assert_eq!((give(4, b"four").0, &give(4, b"four").1[..4]), (Ok(4), &b"four"[..]));
}

/// A first request of the kernel: its version and all flags.
fn first(major: u32, flags: u64) -> [u8; 64] {
    let mut room = [0; 64];
    let mut to = Writer::new(&mut room);
    to.u32(major).u32(45).u32(128 << 10).u32(flags as u32 | 1 << 30).u32((flags >> 32) as u32);
    room
}

#[test]
fn what_the_kernel_does_not_offer_is_not_granted() {
    let asked = Asked { passthrough: true, rings: true, ..Asked::default() };
    let (major, offered) = read(&first(7, u64::MAX)).unwrap();
    assert_eq!(major, 7);
    let (out, granted) = answer(&offered, asked);
    assert!(granted.passthrough && granted.rings);
    assert_eq!(Fields(&out[8..]).u32(), Ok(128 << 10), "no more is read ahead than the kernel would");
    let (_, granted) = answer(&offered, Asked::default());
    assert!(!granted.passthrough && !granted.rings);
    let (_, offered) = read(&first(7, !init::OVER_IO_URING)).unwrap();
    let (out, granted) = answer(&offered, asked);
    assert!(granted.passthrough && !granted.rings);
    let flags =
        |out: &[u8]| u64::from(Fields(&out[12..]).u32().unwrap()) | u64::from(Fields(&out[32..]).u32().unwrap()) << 32;
    assert_eq!(flags(&out) & (init::OVER_IO_URING | init::PASSTHROUGH), init::PASSTHROUGH);
    // Pages are kept where that is asked for.
    assert!(!granted.keeps && flags(&out) & init::AUTO_INVAL_DATA != 0);
    let (out, granted) = answer(&offered, Asked { keeps: true, ..asked });
    assert!(granted.keeps && flags(&out) & init::AUTO_INVAL_DATA == 0);
    assert!(read(&[7, 0, 0]).is_none());
}

#[test]
fn processors_are_counted_as_the_kernel_lists_them() {
    assert_eq!([count("0"), count("0-1"), count("0,2-3,8-127")], [Some(1), Some(2), Some(123)]);
    assert_eq!([count(""), count("3-1"), count("a"), count("0-18446744073709551615")], [None; 4]);
}

#[test]
fn there_is_one_more_than_are_busy_or_wait() {
    let hired = Arc::new(AtomicUsize::new(0));
    let count = hired.clone();
    let crew = Crew::new(Arc::default(), true, move || {
        count.fetch_add(1, Ordering::Relaxed);
        true
    });
    let joins = || {
        crew.comes();
        crew.is_ready()
    };
    joins();
    joins();
    let first = crew.busy();
    assert_eq!(hired.load(Ordering::Relaxed), 1, "one is left, and another one is to come");
    crew.comes();
    let second = crew.busy();
    assert_eq!(hired.load(Ordering::Relaxed), 2, "nobody is left, and one is coming");
    assert!(crew.is_ready(), "somebody may have asked meanwhile");
    assert!(!joins());
    drop(second);
    let second = crew.busy();
    assert_eq!(hired.load(Ordering::Relaxed), 2, "two are idle");
    let others: Vec<_> = (0..100).map(|_| (crew.busy(), joins()).0).collect();
    let at_most = hired.load(Ordering::Relaxed);
    assert!(at_most < 40, "threads that do not wait are bounded: {at_most}");
    // Those that wait do not count.
    let waiting: Vec<_> = (0..200).map(|n| crew.waits(n)).collect();
    let _next = crew.busy();
    drop((first, second, others, waiting));
    assert!(hired.load(Ordering::Relaxed) >= at_most);
}

#[test]
fn who_waits_hears_of_interrupts_that_came_before_and_behind() {
    let interrupts = Arc::new(Interrupts::default());
    let crew = Crew::new(interrupts.clone(), true, || true);
    crew.comes();
    crew.is_ready();
    interrupts.interrupt(3);
    assert!(crew.waits(3).is_interrupted() && !crew.waits(4).is_interrupted());
    let waiting = crew.waits(5);
    interrupts.interrupt(5);
    assert!(waiting.is_interrupted());
    drop(waiting);
    assert!(!crew.waits(3).is_interrupted(), "it was told once");
    // What nobody waits for does not pile up.
    (0..100_000).for_each(|unique| interrupts.interrupt(unique));
    assert!(!crew.waits(0).is_interrupted() && crew.waits(99_999).is_interrupted());
}

proptest! {
    /// Requests come from the kernel, but of a length that nobody here has said.
    #[test]
    fn requests_of_any_length_are_split(opcode in 0u32..60, longer: bool, body in proptest::collection::vec(any::<u8>(), 0..120)) {
        match split(opcode, longer, &body) {
            Ok((head, rest)) => prop_assert_eq!((head.len(), head.len() + rest.len()), (head_len(opcode, longer), body.len())),
            Err(_) => prop_assert!(body.len() < head_len(opcode, longer)),
        }
    }
}

#[test]
fn rings_are_switched_on_and_off_again_also_where_there_is_no_place_for_a_lock() {
    let dir = tempfile::tempdir().unwrap();
    let (file, lock) = (dir.path().join("switch"), dir.path().join("lock"));
    let says = || std::fs::read_to_string(&file).unwrap();
    for lock in [lock, dir.path().join("none/lock")] {
        std::fs::write(&file, "N\n").unwrap();
        let switch = Switch::at(&file, &lock);
        assert_eq!(says(), "Y\n", "{lock:?}");
        drop(switch);
        assert_eq!(says(), "N\n", "{lock:?}");
        // Where somebody else has switched it on it stays on.
        std::fs::write(&file, "Y\n").unwrap();
        drop(Switch::at(&file, &lock));
        assert_eq!(says(), "Y\n", "{lock:?}");
    }
}

/// A queue in which some wait and nothing moves is given something to answer: more seldom where that brings nothing.
#[test]
fn a_queue_in_which_nothing_moves_is_given_something_to_answer() {
    let pulse = |taken, idle, busy| Pulse { taken, idle, busy, ..Pulse::default() };
    let mut seen = Seen::default();
    assert_eq!(seen.looks_at(pulse(7, 2, 1)), 0, "something has moved since");
    assert_eq!(seen.looks_at(pulse(7, 2, 1)), 2);
    assert_eq!(seen.looks_at(pulse(11, 3, 3)), 3, "two more were taken than were made");
    // Now nothing lies there.
    let mut taken = 14;
    let looks = |seen: &mut Seen, taken: &mut u64| {
        (1..1000).find(|_| {
            let made = seen.looks_at(pulse(*taken, 3, 3));
            *taken += made as u64;
            made > 0
        })
    };
    let waits: Vec<_> = (0..9).map(|_| looks(&mut seen, &mut taken).unwrap()).collect();
    assert_eq!(waits, [2, 3, 5, 9, 17, 33, 51, 51, 51]);
    let short = Pulse { shorts: 1, ..pulse(taken, 3, 3) };
    assert_eq!(seen.looks_at(short), 3, "something may have come that nobody could take");
    let stuck = Pulse { shorts: 2, looking: 7, ..pulse(taken, 3, 3) };
    assert_eq!(seen.looks_at(stuck), 1, "those that are on their way are no more than so many");
    for none in [pulse(taken + 3, 0, 9), pulse(taken + 3, 9, 0)] {
        assert_eq!(seen.looks_at(Pulse { shorts: 2, ..none }), 0);
    }
}
