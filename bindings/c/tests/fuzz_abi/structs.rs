//! Structs with sizes of older and newer programs, fields that make sense and fields that do not.

use super::arguments::{Arguments, Kind, ROOM};

/// The structs of `ioverbs.h`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Shape {
    Controls,
    Layout,
    SessionAttr,
    WorkspaceAttr,
    BatchAttr,
    SearchAttr,
    LockAttr,
    BufferAttr,
    Attr,
    Handle,
    Value,
    Status,
    Completion,
    Stat,
    Entry,
    Counters,
    Chunks,
    Extents,
}

/// What a field holds.
#[derive(Clone, Copy)]
enum Field {
    U8,
    U32,
    U64,
    /// Flags or a mask.
    Flags,
    /// A time that ends soon.
    Soon,
    /// A time that does not come; rarely another.
    Never,
    Reserved(usize),
    Text,
    Texts,
    Count,
    Handle(Kind),
    /// `Handle` of the kind that the field before names.
    AnyHandle,
    Struct(Shape),
    Values,
    Null,
}

use Field::*;

impl Shape {
    fn size(self) -> usize {
        match self {
            Shape::Controls | Shape::WorkspaceAttr => 88,
            Shape::Layout | Shape::SessionAttr | Shape::BatchAttr | Shape::LockAttr => 48,
            Shape::SearchAttr => 64,
            Shape::BufferAttr | Shape::Attr | Shape::Handle | Shape::Completion => 32,
            Shape::Value | Shape::Chunks | Shape::Extents => 24,
            Shape::Status => 40,
            Shape::Stat => 136,
            Shape::Entry => 56,
            Shape::Counters => 240,
        }
    }

    /// Fields behind `size`, with their offsets; results have none.
    fn fields(self) -> &'static [(usize, Field)] {
        match self {
            Shape::Controls => &[
                (4, U8),
                (5, U8),
                (6, U8),
                (7, U8),
                (8, U8),
                (9, U8),
                (10, U8),
                (11, U8),
                (12, U8),
                (13, Reserved(3)),
                (16, U64),
                (24, U64),
                (32, U64),
                (40, U64),
                (48, U64),
                (56, U64),
                (64, U64),
                (72, U64),
                (80, U64),
            ],
            Shape::Layout => &[(4, U32), (8, U64), (16, U32), (20, U32), (24, Reserved(8)), (32, Text), (40, Text)],
            Shape::SessionAttr => &[(4, Flags), (8, Soon), (16, U64), (24, Text), (32, Null), (40, Null)],
            Shape::WorkspaceAttr => &[
                (4, Reserved(4)),
                (8, Struct(Shape::Controls)),
                (16, Struct(Shape::Layout)),
                (24, Handle(Kind::Metadata)),
                (32, Null),
                (40, Null),
                (48, Texts),
                (56, Count),
                (64, U64),
                (72, U64),
                (80, Never),
            ],
            Shape::BatchAttr => {
                &[(4, U8), (5, U8), (6, Reserved(2)), (24, Soon), (32, U64), (40, Struct(Shape::Controls))]
            }
            Shape::SearchAttr => &[
                (4, Flags),
                (8, Handle(Kind::Group)),
                (16, Text),
                (24, U64),
                (32, Texts),
                (40, Count),
                (48, Values),
                (56, Count),
            ],
            Shape::LockAttr => &[(4, U32), (8, Flags), (12, Reserved(4)), (16, U64), (24, U64), (32, U64), (40, Soon)],
            Shape::BufferAttr => &[(4, Flags), (8, U32), (12, U32), (16, U32), (20, Reserved(4)), (24, U64)],
            Shape::Attr => &[(4, Flags), (8, U32), (12, U32), (16, U32), (20, Reserved(4)), (24, U64)],
            Shape::Handle => &[(4, U32), (8, AnyHandle), (16, U64), (24, U64)],
            Shape::Value => &[(4, U32), (8, Count), (16, Text)],
            Shape::Chunks => &[],
            _ => &[],
        }
    }
}

fn put<const N: usize>(at: usize, bytes: [u8; N]) {
    // SAFETY: `fill` is given a region of ROOM bytes, and every offset is far below that.
    unsafe { (at as *mut [u8; N]).write_unaligned(bytes) };
}

fn zero(at: usize, len: usize) {
    // SAFETY: as in `put`.
    unsafe { (at as *mut u8).write_bytes(0, len) };
}

/// Mostly 0: what is unset is the usual case.
fn rarely(args: &mut Arguments<'_>, value: u64) -> u64 {
    if args.rng.percent(5) { value } else { 0 }
}

/// Fills a region with one struct, or with an array of eight.
pub(super) fn fill(args: &mut Arguments<'_>, shape: Shape, at: usize) {
    match shape {
        Shape::Chunks => {
            zero(at, ROOM);
            for i in 0..8 {
                let (offset, buf, len) = (args.offset(), args.data(), args.len());
                let at = at + 24 * i;
                put(at, offset.to_ne_bytes());
                put(at + 8, buf.to_ne_bytes());
                put(at + 16, len.to_ne_bytes());
            }
        }
        Shape::Extents => zero(at, 8 * 24),
        Shape::Value => {
            zero(at, ROOM);
            let stride = one(args, shape, at);
            // A wrong size ends the call at the first element.
            if stride <= 4096 {
                (1..8).for_each(|i| fields(args, shape, at + stride * i));
            }
        }
        _ => {
            zero(at, 4096 + 64);
            one(args, shape, at);
        }
    }
}

/// One struct with its size; returns that.
fn one(args: &mut Arguments<'_>, shape: Shape, at: usize) -> usize {
    fields(args, shape, at);
    let size = match args.rng.below(60) {
        0 => 0,
        1 => args.rng.below(shape.size()),
        2 => shape.size() + 8 * args.rng.below(6),
        3 => {
            put(at + shape.size() + args.rng.below(8), [1]);
            shape.size() + 8
        }
        4 => args.rng.next() as u32 as usize,
        _ => shape.size(),
    };
    put(at, (size as u32).to_ne_bytes());
    size
}

fn fields(args: &mut Arguments<'_>, shape: Shape, at: usize) {
    for (offset, field) in shape.fields() {
        let at = at + offset;
        match field {
            U8 => {
                let n = args.rng.next() % 6;
                put(at, [rarely(args, n) as u8]);
            }
            U32 => {
                let n = if args.rng.percent(5) { args.rng.next() } else { args.rng.next() % 3 };
                put(at, (n as u32).to_ne_bytes());
            }
            U64 => {
                let n = args.offset();
                put(at, rarely(args, n).to_ne_bytes());
            }
            Flags => {
                // Bit 0 is IOV_LOCK_TRY among others: waiting for locks would take the test's time.
                let n = if args.rng.percent(5) { args.rng.next() as u32 } else { args.rng.below(2) as u32 };
                let n = if shape == Shape::LockAttr { n | 1 } else { n };
                let n = if shape == Shape::SessionAttr { n & !1 } else { n };
                put(at, n.to_ne_bytes());
            }
            Soon => put(at, (1_000_000 + args.rng.next() as i64 % 20_000_000).abs().to_ne_bytes()),
            Never => {
                let n = args.offset();
                let n = if args.rng.percent(3) { n } else { 0 };
                put(at, n.to_ne_bytes());
            }
            Reserved(len) => {
                if args.rng.percent(1) {
                    put(at + args.rng.below(*len), [args.rng.next() as u8]);
                }
            }
            Text => put(at, args.text().to_ne_bytes()),
            Texts => {
                let list = args.region();
                for i in 0..8 {
                    put(list + 8 * i, args.text().to_ne_bytes());
                }
                let list = if args.rng.percent(10) { 0 } else { list };
                put(at, list.to_ne_bytes());
            }
            Count => {
                let n = if args.rng.percent(50) { 0 } else { args.rng.below(4) };
                put(at, n.to_ne_bytes());
            }
            Handle(kind) => {
                let handle = if args.rng.percent(60) { 0 } else { args.handle(*kind) };
                put(at, handle.to_ne_bytes());
            }
            AnyHandle => {
                let kind = *args.rng.of(&[Kind::Session, Kind::Workspace, Kind::Group, Kind::Collection]);
                put(at - 4, (kind_number(kind)).to_ne_bytes());
                put(at, args.handle(kind).to_ne_bytes());
            }
            Struct(inner) => {
                let inner = if args.rng.percent(60) { 0 } else { args.structure(*inner) };
                put(at, inner.to_ne_bytes());
            }
            Values => {
                let values = args.structure(Shape::Value);
                put(at, values.to_ne_bytes());
            }
            Null => put(at, 0usize.to_ne_bytes()),
        }
    }
}

/// `IOV_KIND_*`.
fn kind_number(kind: Kind) -> u32 {
    match kind {
        Kind::Session => 1,
        Kind::Workspace => 2,
        Kind::Group => 3,
        _ => 4,
    }
}
