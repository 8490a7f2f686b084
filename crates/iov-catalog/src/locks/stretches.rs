//! Who holds which bytes: the line cut into stretches on which the holders are the same.

use std::collections::{BTreeMap, BTreeSet};

use super::Owner;

/// The end of a range that has none.
pub(super) const NO_END: u64 = u64::MAX;

/// From the first byte to one behind the last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Span {
    pub(super) from: u64,
    pub(super) to: u64,
}

impl Span {
    pub(super) fn overlaps(self, other: Span) -> bool {
        self.from < other.to && other.from < self.to
    }
}

/// The holders of a stretch: either one alone, or any number that share.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Holders {
    Exclusive(Owner),
    Shared(BTreeSet<Owner>),
}

impl Holders {
    /// One of them that stands in the way of `owner`.
    fn obstacle(&self, owner: Owner, exclusive: bool) -> Option<Owner> {
        match self {
            Holders::Exclusive(holder) => (*holder != owner).then_some(*holder),
            Holders::Shared(holders) if exclusive => holders.iter().copied().find(|h| *h != owner),
            Holders::Shared(_) => None,
        }
    }

    fn has(&self, owner: Owner) -> bool {
        match self {
            Holders::Exclusive(holder) => *holder == owner,
            Holders::Shared(holders) => holders.contains(&owner),
        }
    }
}

/// Stretches by their first byte: apart from each other, and no two that touch have the same holders.
#[derive(Default, Debug)]
pub(super) struct Stretches {
    map: BTreeMap<u64, (u64, Holders)>,
}

impl Stretches {
    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// All that hold something.
    pub(super) fn holders(&self) -> BTreeSet<Owner> {
        let mut all = BTreeSet::new();
        for (_, holders) in self.map.values() {
            match holders {
                Holders::Exclusive(holder) => all.extend([holder]),
                Holders::Shared(holders) => all.extend(holders),
            }
        }
        all
    }

    /// The stretches that share a byte with a span, in order.
    pub(super) fn within(&self, span: Span) -> impl Iterator<Item = (Span, &Holders)> {
        let first = self.map.range(..=span.from).next_back().map_or(span.from, |(from, _)| *from);
        self.map
            .range(first..span.to.max(first))
            .map(|(from, (to, holders))| (Span { from: *from, to: *to }, holders))
            .filter(move |(stretch, _)| stretch.overlaps(span))
    }

    /// The first stretch held against `owner` in a span, and who holds it.
    pub(super) fn obstacle(&self, owner: Owner, exclusive: bool, span: Span) -> Option<(Span, Owner)> {
        self.within(span).find_map(|(stretch, holders)| Some((stretch, holders.obstacle(owner, exclusive)?)))
    }

    /// Whether `holder` holds a part of a span in a way that stands against somebody else.
    pub(super) fn holds_against(&self, holder: Owner, exclusive: bool, span: Span) -> bool {
        self.within(span).any(|(_, holders)| match holders {
            Holders::Exclusive(h) => *h == holder,
            Holders::Shared(hs) => exclusive && hs.contains(&holder),
        })
    }

    /// Whether `holder` holds every byte of a span, exclusively if `exclusive` says so.
    pub(super) fn covers(&self, holder: Owner, exclusive: bool, span: Span) -> bool {
        let mut to = span.from;
        for (stretch, holders) in self.within(span) {
            let has = matches!(holders, Holders::Exclusive(_)) || !exclusive;
            if stretch.from > to || !has || !holders.has(holder) {
                return false;
            }
            to = stretch.to;
        }
        to >= span.to
    }

    /// All that `owner` holds in one piece around a stretch, and whether exclusively.
    pub(super) fn whole(&self, owner: Owner, at: Span) -> (Span, bool) {
        let kind = |holders: &Holders| holders.has(owner).then_some(matches!(holders, Holders::Exclusive(_)));
        let exclusive = self.map.get(&at.from).is_some_and(|(_, holders)| kind(holders) == Some(true));
        let mut whole = at;
        for (from, (to, holders)) in self.map.range(..at.from).rev() {
            if *to != whole.from || kind(holders) != Some(exclusive) {
                break;
            }
            whole.from = *from;
        }
        for (from, (to, holders)) in self.map.range(at.to..) {
            if *from != whole.to || kind(holders) != Some(exclusive) {
                break;
            }
            whole.to = *to;
        }
        (whole, exclusive)
    }

    /// Makes `owner` a holder of a span, in place of how it held parts of it. Nobody stands in the way.
    pub(super) fn hold(&mut self, owner: Owner, exclusive: bool, span: Span) {
        self.release(owner, span);
        if exclusive {
            self.map.insert(span.from, (span.to, Holders::Exclusive(owner)));
        } else {
            self.cut(span.from);
            self.cut(span.to);
            let mut free = span.from;
            let mut gaps = Vec::new();
            for (from, (to, holders)) in self.map.range_mut(span.from..span.to) {
                if let Holders::Shared(holders) = holders {
                    holders.insert(owner);
                }
                gaps.push(Span { from: free, to: *from });
                free = *to;
            }
            gaps.push(Span { from: free, to: span.to });
            for gap in gaps.into_iter().filter(|g| g.from < g.to) {
                self.map.insert(gap.from, (gap.to, Holders::Shared(BTreeSet::from([owner]))));
            }
        }
        self.join(span);
    }

    /// Ends what `owner` holds of a span.
    pub(super) fn release(&mut self, owner: Owner, span: Span) {
        self.cut(span.from);
        self.cut(span.to);
        let mut free = Vec::new();
        for (from, (_, holders)) in self.map.range_mut(span.from..span.to) {
            match holders {
                Holders::Exclusive(holder) if *holder == owner => free.push(*from),
                Holders::Exclusive(_) => {}
                Holders::Shared(holders) => {
                    holders.remove(&owner);
                    if holders.is_empty() {
                        free.push(*from);
                    }
                }
            }
        }
        free.iter().for_each(|from| drop(self.map.remove(from)));
        self.join(span);
    }

    /// Makes a stretch begin at `at` if one lies across it.
    fn cut(&mut self, at: u64) {
        if let Some((_, (to, holders))) = self.map.range_mut(..at).next_back()
            && *to > at
        {
            let rest = (*to, holders.clone());
            *to = at;
            self.map.insert(at, rest);
        }
    }

    /// Puts stretches with the same holders together where they touch, in and around a span.
    fn join(&mut self, span: Span) {
        let first = self.map.range(..span.from).next_back().map_or(span.from, |(from, _)| *from);
        let mut starts: Vec<u64> = self.map.range(first..=span.to).map(|(from, _)| *from).collect();
        starts.reverse();
        for pair in starts.windows(2) {
            let (next, before) = (pair[0], pair[1]);
            let same = self.map.get(&before).zip(self.map.get(&next)).is_some_and(|(b, n)| b.0 == next && b.1 == n.1);
            if same
                && let Some((to, _)) = self.map.remove(&next)
                && let Some(stretch) = self.map.get_mut(&before)
            {
                stretch.0 = to;
            }
        }
    }
}
