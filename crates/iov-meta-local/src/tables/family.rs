//! Which tree a key belongs to: keys that are read alike lie together.

/// The kind of a key, by its first byte.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Family {
    /// `R`: records, read one by one.
    Records = 0,
    /// `N`: names, read one by one and listed.
    Names = 1,
    /// `I`: entries of indexes, only read as ranges.
    Index = 2,
    /// All others.
    Other = 3,
}

/// Every family, in order of number.
pub(crate) const FAMILIES: [Family; 4] = [Family::Records, Family::Names, Family::Index, Family::Other];

impl Family {
    /// The family of a key.
    pub(crate) fn of(key: &[u8]) -> Family {
        match key.first() {
            Some(b'R') => Family::Records,
            Some(b'N') => Family::Names,
            Some(b'I') => Family::Index,
            _ => Family::Other,
        }
    }

    /// The directory of its tree.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Family::Records => "records",
            Family::Names => "names",
            Family::Index => "index",
            Family::Other => "other",
        }
    }

    /// What stands before each key in its tree: tables cannot hold a key without bytes.
    pub(crate) fn prefix(self) -> &'static [u8] {
        if self == Family::Other { b"k" } else { b"" }
    }

    /// Whether single keys are read in it: then tables have filters.
    pub(crate) fn point_reads(self) -> bool {
        self != Family::Index
    }
}

/// Keys from one to before another that belong to one family.
pub(crate) struct Span {
    pub(crate) family: Family,
    pub(crate) from: &'static [u8],
    pub(crate) to: Option<&'static [u8]>,
}

const fn span(family: Family, from: &'static [u8], to: Option<&'static [u8]>) -> Span {
    Span { family, from, to }
}

/// All keys, in order.
pub(crate) const SPANS: [Span; 7] = [
    span(Family::Other, b"", Some(b"I")),
    span(Family::Index, b"I", Some(b"J")),
    span(Family::Other, b"J", Some(b"N")),
    span(Family::Names, b"N", Some(b"O")),
    span(Family::Other, b"O", Some(b"R")),
    span(Family::Records, b"R", Some(b"S")),
    span(Family::Other, b"S", None),
];
