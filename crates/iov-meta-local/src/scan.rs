//! Reading a range: buffers and tables merged in order of keys, the newest of each key, deletes left out.

use std::ops::Bound;

use bytes::Bytes;
use iov_store::{KeyRange, Record};
use iov_types::Result;

use crate::{
    buffer::Page,
    tables::{Item, SPANS, Span},
    view::View,
};

type Pair = (Bytes, Record);

/// Up to `limit` pairs of a range behind `after`.
pub(crate) fn scan(view: &View, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<Pair>> {
    let mut out = Vec::new();
    let from = match after {
        Some(after) if after >= &range.from[..] => Bound::Excluded(after),
        _ => Bound::Included(&range.from[..]),
    };
    let (Bound::Included(first) | Bound::Excluded(first)) = from else { return Ok(out) };
    let to = range.to.as_deref();
    for span in &SPANS {
        if out.len() >= limit || to.is_some_and(|to| to <= span.from || to <= first) {
            break;
        }
        if span.to.is_some_and(|end| end <= first) {
            continue;
        }
        let from = if first < span.from { Bound::Included(span.from) } else { from };
        let to = match (to, span.to) {
            (Some(to), Some(end)) => Some(to.min(end)),
            (to, end) => to.or(end),
        };
        merge(view, span, from, to, limit, &mut out)?;
    }
    Ok(out)
}

/// What is next.
enum Next {
    /// Of the buffer with that number.
    Buffer(usize),
    Table,
}

fn merge(
    view: &View,
    span: &Span,
    from: Bound<&[u8]>,
    to: Option<&[u8]>,
    limit: usize,
    out: &mut Vec<Pair>,
) -> Result<()> {
    let parts = &view.parts;
    let mut pages: Vec<_> = std::iter::once(&parts.active)
        .chain(&parts.sealed)
        .map(|buffer| Page::new(buffer, span.family, view.revision, from.map(<[u8]>::to_vec), to))
        .collect();
    let tree = parts.pin.tables().tree(span.family);
    let end = to.map_or(Bound::Unbounded, Bound::Excluded);
    let mut range = tree.range(from, end, parts.pin.at(span.family))?;
    let mut table: Option<Item> = tree.next(&mut range)?;
    while out.len() < limit {
        // Newest first, so that of equal keys the newest is taken.
        let mut next: Option<(Next, &[u8])> = None;
        for (n, page) in pages.iter_mut().enumerate() {
            if let Some((key, ..)) = page.peek()
                && next.as_ref().is_none_or(|(_, first)| &key[..] < *first)
            {
                next = Some((Next::Buffer(n), key));
            }
        }
        if let Some(item) = &table
            && next.as_ref().is_none_or(|(_, first)| *item.key() < **first)
        {
            next = Some((Next::Table, item.key()));
        }
        match next {
            None => break,
            Some((Next::Table, _)) => {
                if let Some(item) = table.take() {
                    let value = Bytes::copy_from_slice(item.value());
                    out.push((Bytes::copy_from_slice(item.key()), Record { value, revision: item.revision() }));
                }
                table = tree.next(&mut range)?;
            }
            Some((Next::Buffer(n), _)) => {
                let Some((key, value, revision)) = pages[n].take() else { break };
                for page in &mut pages {
                    if page.peek().is_some_and(|(other, ..)| *other == key) {
                        page.take();
                    }
                }
                if table.as_ref().is_some_and(|item| *item.key() == key[..]) {
                    table = tree.next(&mut range)?;
                }
                if let Some(value) = value {
                    out.push((key, Record { value, revision }));
                }
            }
        }
    }
    Ok(())
}
