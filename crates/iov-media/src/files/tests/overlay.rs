use iov_types::Range;

use super::Rng;
use iov_store::Overlay;

use crate::files::stage::source::Source;

/// The same by bytes.
fn plain(bytes: &[Option<Source>], range: Range) -> Vec<(u64, Option<Source>)> {
    (range.offset..range.end()).map(|at| (at, bytes[at as usize])).collect()
}

fn at(source: Option<Source>, n: u64) -> Option<Source> {
    match source {
        Some(Source::Log { record, within }) => Some(Source::Log { record, within: within + n }),
        other => other,
    }
}

#[test]
fn b3_pieces_cover_what_was_laid_last() {
    let mut rng = Rng(7);
    for _ in 0..300 {
        let (mut overlay, mut bytes) = (Overlay::default(), vec![None; 200]);
        for record in 0..30 {
            let offset = rng.below(180);
            let range = Range { offset, len: rng.below(200 - offset) };
            let source = match rng.below(4) {
                0 => Source::Zero,
                1 => Source::Image,
                _ => Source::Log { record, within: 0 },
            };
            assert_eq!(overlay.touches(range), range.len > 0 && plain(&bytes, range).iter().any(|b| b.1.is_some()));
            overlay.lay(range, source);
            for n in 0..range.len {
                bytes[(offset + n) as usize] = at(Some(source), n);
            }
            let look = Range { offset: rng.below(100), len: rng.below(100) };
            let pieces: Vec<_> = overlay.cover(look).collect();
            assert!(pieces.iter().all(|(r, _)| r.len > 0), "{pieces:?}");
            let covered: Vec<_> =
                pieces.iter().flat_map(|(r, s)| (0..r.len).map(|n| (r.offset + n, at(*s, n)))).collect();
            assert_eq!(covered, plain(&bytes, look), "{look:?} of {overlay:?}");
        }
    }
}

#[test]
fn b4_neighbours_of_one_source_are_one_piece() {
    let mut overlay = Overlay::default();
    for n in [3, 1, 0, 2, 4] {
        overlay.lay(Range { offset: n * 10, len: 10 }, Source::Image);
    }
    assert_eq!(overlay.len(), 1);
    overlay.lay(Range { offset: 20, len: 5 }, Source::Zero);
    assert_eq!(overlay.len(), 3);
    overlay.lay(Range { offset: 20, len: 5 }, Source::Image);
    assert_eq!(overlay.len(), 1);
}
