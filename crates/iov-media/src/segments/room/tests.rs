use proptest::prelude::*;

use super::*;

fn piece(segment: u32, at: u64, len: u64) -> Piece {
    Piece { segment, at, len }
}

#[test]
fn neighbours_merge_and_segments_do_not() {
    let mut room = Room::default();
    room.add(piece(1, 0, 10));
    room.add(piece(2, 10, 10));
    room.add(piece(1, 20, 10));
    assert_eq!(room.take(11), None);
    room.add(piece(1, 10, 10));
    assert_eq!((room.total(), room.take(30)), (40, Some(piece(1, 0, 30))));
    assert_eq!(room.take_longest(100), Some(piece(2, 10, 10)));
    assert_eq!(room.take_longest(100), None);
}

#[test]
fn the_best_fit_is_taken() {
    let mut room = Room::default();
    room.add(piece(1, 0, 100));
    room.add(piece(1, 200, 20));
    assert_eq!(room.take(15), Some(piece(1, 200, 15)));
    assert_eq!(room.take(15), Some(piece(1, 0, 15)));
    assert_eq!(room.take_longest(30), Some(piece(1, 15, 30)));
}

#[test]
fn what_is_there_is_counted() {
    let mut room = Room::default();
    room.add(piece(3, 0, 40));
    room.add(piece(3, 60, 4));
    room.add(piece(3, 40, 20));
    assert_eq!(room.covered(piece(3, 0, 64)), 64);
    room.carve(piece(3, 10, 4));
    assert_eq!(
        (room.covered(piece(3, 0, 64)), room.covered(piece(3, 12, 10)), room.covered(piece(2, 0, 64))),
        (60, 8, 0)
    );
}

proptest! {
    /// Against a map of single bytes.
    #[test]
    fn nothing_is_lost_or_given_twice(steps in prop::collection::vec((0..4_u8, 0..3_u32, 0..60_u64, 1..20_u64), 1..80)) {
        let (mut room, mut free) = (Room::default(), BTreeSet::new());
        let each = |p: Piece| (p.at..p.end()).map(move |at| (p.segment, at));
        for (what, segment, at, len) in steps {
            let wanted = piece(segment, at, len);
            match what {
                0 => {
                    // Only what is not there yet.
                    for (segment, at) in each(wanted).filter(|b| !free.contains(b)).collect::<Vec<_>>() {
                        room.add(piece(segment, at, 1));
                        free.insert((segment, at));
                    }
                }
                1 => if let Some(got) = room.take(len) {
                    prop_assert_eq!(got.len, len);
                    for byte in each(got) { prop_assert!(free.remove(&byte)); }
                },
                2 => if let Some(got) = room.take_longest(len) {
                    prop_assert!(got.len <= len && got.len > 0);
                    for byte in each(got) { prop_assert!(free.remove(&byte)); }
                },
                _ => {
                    room.carve(wanted);
                    for byte in each(wanted) { free.remove(&byte); }
                }
            }
            prop_assert_eq!(room.total(), free.len() as u64);
            prop_assert_eq!(room.by_len.len(), room.by_place.len());
        }
        for ((segment, at), len) in &room.by_place {
            for byte in each(piece(*segment, *at, *len)) { prop_assert!(free.remove(&byte)); }
        }
        prop_assert!(free.is_empty());
    }
}
