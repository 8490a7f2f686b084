//! Data and holes of a collection by those of its objects.

use iov_layout::Stripes;
use iov_types::{Evidence, Extent, ExtentKind, Range, Result};

use super::{
    gather::{Part, sum, worst},
    table::Lined,
};

/// The extents of a range, at most `max`, in order.
pub(super) fn merge(lined: &Lined, stripes: &Stripes, range: Range, max: usize, parts: Vec<Part>) -> Result<Evidence> {
    if let Some(e) = worst(&parts, false) {
        return Err(e);
    }
    let mut found = sum(stripes, &parts);
    let end = range.offset.saturating_add(range.len).min(found.size);
    let (mut all, mut known_to) = (Vec::new(), end);
    for part in &parts {
        let Ok(e) = &part.result else { continue };
        let target = lined.numbers[part.index];
        let whole = Range { offset: range.offset, len: end.saturating_sub(range.offset) };
        let Some(share) = stripes.share(part.index, whole) else { continue };
        let mut told_to = share.offset;
        let mut room = max;
        let mut take = |extents: &mut Vec<Extent>, local: Range, kind: ExtentKind| {
            for piece in spread(stripes, part.index, local, kind, target) {
                if room == 0 {
                    // Nobody wants to hear of more at once.
                    known_to = known_to.min(piece.range.offset);
                    return;
                }
                room -= 1;
                extents.push(piece);
            }
        };
        for extent in &e.extents {
            told_to = told_to.max(extent.range.end());
            take(&mut all, extent.range, extent.kind);
        }
        let rest = Range { offset: told_to, len: share.end().saturating_sub(told_to) };
        if e.extents.len() < max {
            // It ends there, and others go on.
            take(&mut all, rest, ExtentKind::Hole);
        } else if rest.len > 0 {
            // There may be more of it than was told.
            known_to = known_to.min(stripes.logical(part.index, told_to));
        }
    }
    all.sort_by_key(|extent| extent.range.offset);
    found.extents = join(all, range.offset, known_to, stripes.width() == 1);
    found.extents.truncate(max);
    Ok(found)
}

/// The pieces of the collection that a range of an object holds.
fn spread(
    stripes: &Stripes,
    index: usize,
    local: Range,
    kind: ExtentKind,
    target: u32,
) -> impl Iterator<Item = Extent> + use<> {
    let stripes = *stripes;
    let mut at = local.offset;
    std::iter::from_fn(move || {
        if at >= local.end() {
            return None;
        }
        let left = local.end() - at;
        let len = if stripes.width() == 1 { left } else { left.min(stripes.chunk() - at % stripes.chunk()) };
        let range = Range { offset: stripes.logical(index, at), len };
        at += len;
        Some(Extent { range, kind, target })
    })
}

/// Joins neighbours of one kind on one target, and cuts to what is asked for and known. Holes lie nowhere.
fn join(all: Vec<Extent>, from: u64, to: u64, one: bool) -> Vec<Extent> {
    let mut joined: Vec<Extent> = Vec::new();
    for extent in all {
        let (start, end) = (extent.range.offset.max(from), extent.range.end().min(to));
        if start >= end {
            continue;
        }
        let range = Range { offset: start, len: end - start };
        match joined.last_mut() {
            Some(last)
                if last.range.end() == start
                    && last.kind == extent.kind
                    && (one || last.target == extent.target || extent.kind == ExtentKind::Hole) =>
            {
                last.range.len += range.len;
            }
            _ => joined.push(Extent { range, ..extent }),
        }
    }
    joined
}
