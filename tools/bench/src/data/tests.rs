//! The schedule gives both sides the same work, and the bare side finds the collection's file.

use std::fs;

use proptest::prelude::*;

use super::{
    SCHEDULE, SMALL,
    turns::{Schedule, Turn},
    worker::data_file,
};

fn schedules() -> impl Strategy<Value = Schedule> {
    (1u64..40, 1u64..9, 1u64..5000).prop_map(|(pairs, requests, request)| {
        let piece = requests * request;
        Schedule { footprint: 2 * pairs * piece, piece, request }
    })
}

/// What each side moved, in order, as a round runs it: `true` is ours.
fn moved(schedule: Schedule, ahead: u64, round: u64) -> Vec<(bool, u64)> {
    let mut log = Vec::new();
    let side = |ours: bool| {
        move |log: &mut Vec<(bool, u64)>, at: u64| {
            log.push((ours, at));
            Ok(())
        }
    };
    schedule.run(ahead, round, &mut log, side(true), side(false)).unwrap();
    log
}

proptest! {
    #[test]
    fn each_side_moves_every_request_exactly_once(
        schedule in schedules(), ahead in any::<prop::sample::Index>(), round in 0u64..9,
    ) {
        let pieces = schedule.footprint / schedule.piece;
        let ahead = ahead.index(pieces as usize) as u64 * schedule.piece;
        let log = moved(schedule, ahead, round);
        let all: Vec<u64> = (0..schedule.footprint / schedule.request).map(|i| i * schedule.request).collect();
        for side in [true, false] {
            let mut offsets: Vec<u64> = log.iter().filter(|(ours, _)| *ours == side).map(|(_, at)| *at).collect();
            offsets.sort_unstable();
            prop_assert_eq!(&offsets, &all);
        }
    }

    #[test]
    fn each_side_goes_first_as_often_and_rounds_swap(schedule in schedules(), round in 0u64..9) {
        let turns: Vec<Turn> = schedule.turns(0, round).collect();
        let firsts = turns.iter().filter(|t| t.ours_first).count();
        prop_assert_eq!(2 * firsts, turns.len());
        prop_assert!(turns.windows(2).all(|w| w[0].ours_first != w[1].ours_first));
        for (turn, next) in turns.iter().zip(schedule.turns(0, round + 1)) {
            prop_assert_eq!(turn.ours_first, !next.ours_first);
        }
        // The order is the one in which the requests go out.
        let first = moved(schedule, 0, round)[0].0;
        prop_assert_eq!(first, turns[0].ours_first);
    }

    #[test]
    fn half_a_footprint_lies_between_the_sides(schedule in schedules(), round in 0u64..9) {
        let half = schedule.footprint / 2;
        for turn in schedule.turns(half, round) {
            prop_assert_eq!(turn.ours.abs_diff(turn.bare), half);
        }
    }
}

#[test]
fn the_footprint_is_what_the_interface_defines() {
    let Schedule { footprint, piece, request } = SCHEDULE;
    assert!(footprint >= 1 << 30 && request == 1 << 20, "{SCHEDULE:?}");
    assert_eq!((SMALL.footprint, SMALL.request), (footprint, 4 << 10));
    assert!(footprint.is_multiple_of(2 * piece) && piece.is_multiple_of(request), "{SCHEDULE:?}");
}

#[test]
fn the_collections_file_is_the_only_one_of_its_length() {
    let dir = tempfile::tempdir().unwrap();
    let (deep, len) = (dir.path().join("a/b"), 5000);
    fs::create_dir_all(&deep).unwrap();
    fs::write(dir.path().join("short"), [0; 4999]).unwrap();
    assert!(data_file(dir.path(), len).unwrap_err().to_string().starts_with("0 files of 5000 bytes"));
    fs::write(deep.join("it"), [0; 5000]).unwrap();
    assert_eq!(data_file(dir.path(), len).unwrap(), deep.join("it"));
    fs::write(dir.path().join("other"), [0; 5000]).unwrap();
    assert!(data_file(dir.path(), len).unwrap_err().to_string().starts_with("2 files"));
}
