use iov_types::Range;
use proptest::prelude::*;

use super::Stripes;

fn stripes() -> impl Strategy<Value = Stripes> {
    (1_usize..9, prop_oneof![1_u64..70, Just(4096), Just(47_008), Just(1 << 20)])
        .prop_map(|(width, chunk)| Stripes::new(width, chunk))
}

proptest! {
    #[test]
    fn each_byte_has_one_place_and_comes_back_from_it(s in stripes(), offset in 0_u64..1 << 44) {
        let (index, local) = s.locate(offset);
        prop_assert!(index < s.width());
        prop_assert_eq!(s.logical(index, local), offset);
    }

    #[test]
    fn what_lies_together_in_an_object_lies_in_order(s in stripes(), offset in 0_u64..1 << 30) {
        // The next byte of the same object is a later one of the collection.
        let (index, local) = s.locate(offset);
        prop_assert!(s.logical(index, local + 1) > offset);
    }

    #[test]
    fn pieces_cover_a_range_and_nothing_else(s in stripes(), offset in 0_u64..1 << 30, len in 0_u64..5000) {
        let mut at = offset;
        for piece in s.pieces(Range { offset, len }) {
            prop_assert_eq!(piece.offset, at);
            prop_assert!(piece.len > 0);
            prop_assert_eq!(s.locate(at), (piece.index, piece.local));
            prop_assert_eq!(s.locate(at + piece.len - 1), (piece.index, piece.local + piece.len - 1));
            at += piece.len;
        }
        prop_assert_eq!(at, offset + len);
    }

    #[test]
    fn sizes_of_objects_are_those_of_their_bytes(s in stripes(), size in 0_u64..20_000) {
        let mut counted = vec![0_u64; s.width()];
        for piece in s.pieces(Range { offset: 0, len: size }) {
            prop_assert_eq!(counted[piece.index], piece.local);
            counted[piece.index] += piece.len;
        }
        for (index, counted) in counted.iter().enumerate() {
            prop_assert_eq!(s.local_size(index, size), *counted);
        }
        let reach = counted.iter().enumerate().map(|(index, local)| s.reach(index, *local)).max();
        prop_assert_eq!(reach, Some(size));
    }

    #[test]
    fn shares_are_what_the_pieces_say(s in stripes(), offset in 0_u64..1 << 20, len in 0_u64..20_000) {
        let range = Range { offset, len };
        let mut shares = vec![None::<Range>; s.width()];
        for piece in s.pieces(range) {
            let share = shares[piece.index].get_or_insert(Range { offset: piece.local, len: 0 });
            prop_assert_eq!(share.end(), piece.local);
            share.len += piece.len;
        }
        for (index, share) in shares.into_iter().enumerate() {
            prop_assert_eq!(s.share(index, range), share);
        }
    }
}

#[test]
fn numbers_at_the_end_of_the_world_do_not_overflow() {
    let s = Stripes::new(1024, (1 << 40) - 1);
    assert_eq!(s.logical(1023, u64::MAX), u64::MAX);
    assert_eq!(s.reach(1023, u64::MAX), u64::MAX);
    let end = Range { offset: u64::MAX - 10, len: 10 };
    assert_eq!(s.pieces(end).map(|piece| piece.len).sum::<u64>(), 10);
    assert_eq!(Stripes::new(1, 0).locate(u64::MAX), (0, u64::MAX));
}
