//! Reads a collection for its checksums alone.

use ioverbs::{Collection, Error, Kind, Persistence, Range, Result};

use super::{
    PIECE, SMALL,
    extents::{Pieces, of_collection, sum},
};
use crate::{ctx::Ctx, failure::Done};

/// Damaged places that are told; a disk that goes bad has many.
const TOLD: usize = 20;
/// In a piece that is damaged, one place is told for so many bytes.
const CLOSER: usize = 64 << 10;

/// Reads all of a collection, and tells where it is damaged, each time by the error that a reader there gets.
pub(crate) fn damage(ctx: &mut Ctx, c: &Collection) -> Done<Vec<Error>> {
    let mut found = Vec::new();
    // A file that is gone, or was cut, is found by asking for its facts.
    let Some(size) = told(ioverbs::stat(c), &mut found)?.map(|stat| stat.bytes) else { return Ok(found) };
    if c.effective()?.persistence < Persistence::Durable && size > SMALL {
        return Ok(found);
    }
    let Some(ranges) = told(of_collection(c, 0, size), &mut found)? else { return Ok(found) };
    let mut progress = ctx.progress("check", Some(sum(&ranges)));
    let mut buf = vec![0; PIECE.min(size as usize)];
    for piece in Pieces::new(ranges, PIECE) {
        ctx.stop.check()?;
        if !is_sound(c, piece, &mut buf)? {
            for part in Pieces::new(vec![piece], CLOSER) {
                told(read(c, part, &mut buf), &mut found)?;
            }
        }
        if found.len() >= TOLD {
            break;
        }
        progress.at(progress.moved() + piece.len);
    }
    progress.end();
    Ok(found)
}

fn read(c: &Collection, piece: Range, buf: &mut [u8]) -> Result<usize> {
    ioverbs::read_at(c, piece.offset, &mut buf[..piece.len as usize])
}

fn is_sound(c: &Collection, piece: Range, buf: &mut [u8]) -> Result<bool> {
    let mut found = Vec::new();
    // Less than was asked for: it has become shorter meanwhile, which is no damage.
    told(read(c, piece, buf), &mut found).map(|_| found.is_empty())
}

/// Sorts out what tells of damage.
fn told<T>(result: Result<T>, found: &mut Vec<Error>) -> Result<Option<T>> {
    match result {
        Err(e) if matches!(e.kind(), Kind::Corrupt | Kind::Lost) => {
            found.push(e);
            Ok(None)
        }
        result => result.map(Some),
    }
}
