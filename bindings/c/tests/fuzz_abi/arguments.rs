//! Arguments: mostly sensible, often not, and never a pointer that leads out of the test's own memory.
//!
//! All memory is made once and stays: results of batches are written into it whenever they come.

use super::{
    rng::Rng,
    structs::{self, Shape},
};

/// What a handle stands for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Session,
    Workspace,
    Collection,
    Group,
    Batch,
    Request,
    Cursor,
    Metadata,
    Buffer,
}

const UUID: &[u8] = b"uuid:01234567-89ab-7def-8123-456789abcdef";
const NIL: &[u8] = b"uuid:00000000-0000-0000-0000-000000000000";
const KINDS: usize = 9;
/// Bytes that a data buffer has; lengths are not larger, unless no memory is that large.
const DATA: usize = 64 << 10;
/// Room of a struct or array: eight of the largest size.
pub(super) const ROOM: usize = 8 * 4096;
const REGIONS: usize = 48;
const SLOTS: usize = 64;

/// What arguments are made of.
pub(super) struct Arguments<'a> {
    pub(super) rng: &'a mut Rng,
    pub(super) world: &'a mut World,
}

/// Handles seen so far, and memory.
pub(super) struct World {
    /// By kind, some of them stale by now.
    seen: [Vec<usize>; KINDS],
    pub(super) all: Vec<(Kind, usize)>,
    data: usize,
    /// A length, and the bytes of an exported handle.
    passport: usize,
    regions: usize,
    next_region: usize,
    /// Where new handles go: a place and its kind.
    slots: usize,
    slot_kinds: Vec<Option<Kind>>,
    texts: Vec<usize>,
    names: Vec<usize>,
    predicates: Vec<usize>,
    controls: Vec<usize>,
    urls: Vec<usize>,
}

/// Memory that stays until the process ends, as a number.
fn memory(words: usize) -> usize {
    Box::leak(vec![0u64; words].into_boxed_slice()).as_mut_ptr() as usize
}

/// A text, and some bytes more: a value may say that it is a little longer than its NUL.
fn text(bytes: &[u8]) -> usize {
    let mut copy = bytes.to_vec();
    copy.resize(bytes.len() + 8, 0);
    Box::leak(copy.into_boxed_slice()).as_ptr() as usize
}

fn texts(list: &[&[u8]]) -> Vec<usize> {
    list.iter().map(|t| text(t)).collect()
}

impl World {
    pub(super) fn new() -> World {
        let long = [b'n'; 300];
        let key = [b'k'; 256];
        World {
            seen: Default::default(),
            all: Vec::new(),
            data: memory(DATA / 8),
            passport: memory(DATA / 8 + 1),
            regions: memory(REGIONS * ROOM / 8),
            next_region: 0,
            slots: memory(SLOTS),
            slot_kinds: vec![None; SLOTS],
            texts: texts(&[
                b"",
                b"k",
                b"temperature",
                b"iov.name",
                b"iov.size",
                b"*",
                b"bad \xff\xfe",
                b"value",
                UUID,
                &key,
                &long,
            ]),
            names: (0..40)
                .map(|i| text(format!("n{i}").as_bytes()))
                .chain(texts(&[b"", b"a/b", b"uuid:", &long, b"not \xff utf8", UUID, NIL]))
                .collect(),
            predicates: texts(&[
                b"k = 1",
                b"temperature > 3 and exists(k)",
                b"k = ?",
                b"k = ? or temperature = ?",
                b"iov.name ~ \"*\"",
                b"iov.size >= 0",
                b"k >",
                b"((((",
                b"",
                b"\xff",
                b"not not not exists(k)",
            ]),
            controls: texts(&[
                b"",
                b"profile=log",
                b"log",
                b"scratch",
                b"checkpoint",
                b"consistency=session",
                b"consistency=commit",
                b"consistency=eventual(1ms)",
                b"atomicity=publication",
                b"atomicity=unit(4096)",
                b"mutability=append",
                b"mutability=immutable",
                b"concurrency=exclusive",
                b"persistence=durable@batch",
                b"error=rollback",
                b"collection_size=..100000",
                b"nonsense",
                b"a=b=c,,",
                b"consistency=\xff",
            ]),
            urls: texts(&[
                b"mem:fuzz",
                b"mem:fuzz",
                b"mem:fuzz",
                b"mem:fuzz",
                b"mem:",
                b"iov://nowhere",
                b"nonsense",
                b"mem:\xff",
            ]),
        }
    }

    /// Takes over the handles that calls have left in their places.
    pub(super) fn harvest(&mut self) {
        for (i, kind) in self.slot_kinds.clone().into_iter().enumerate() {
            let place = (self.slots + 8 * i) as *mut usize;
            // SAFETY: `slots` has SLOTS words.
            let value = unsafe { place.replace(0) };
            if let (Some(kind), true) = (kind, value != 0) {
                self.add(kind, value);
            }
        }
    }

    pub(super) fn add(&mut self, kind: Kind, handle: usize) {
        self.all.push((kind, handle));
        let seen = &mut self.seen[kind as usize];
        if seen.len() >= 16 {
            seen.remove(0);
        }
        seen.push(handle);
    }
}

impl Arguments<'_> {
    pub(super) fn number(&mut self) -> u64 {
        match self.rng.below(4) {
            0 => self.rng.next(),
            _ => self.rng.next() % 8,
        }
    }

    pub(super) fn offset(&mut self) -> u64 {
        match self.rng.below(12) {
            0 => u64::MAX,
            1 => i64::MAX as u64,
            2 => 1 << self.rng.below(64),
            3 => self.rng.next(),
            4 => self.rng.next() % (1 << 22),
            _ => self.rng.next() % 20_000,
        }
    }

    pub(super) fn len(&mut self) -> usize {
        match self.rng.below(20) {
            0 => usize::MAX,
            1 => isize::MAX as usize + 1 + self.rng.below(1 << 20),
            2 => DATA,
            3 => 0,
            _ => self.rng.below(3000),
        }
    }

    /// Elements of an array of results: there is room for eight.
    pub(super) fn count(&mut self) -> usize {
        self.rng.below(9)
    }

    /// Elements of an array of arguments, or an index.
    pub(super) fn many(&mut self) -> usize {
        if self.rng.percent(5) { usize::MAX >> self.rng.below(30) } else { self.rng.below(9) }
    }

    pub(super) fn flags(&mut self) -> u32 {
        if self.rng.percent(10) { self.rng.next() as u32 } else { self.rng.below(4) as u32 }
    }

    pub(super) fn wait(&mut self) -> i64 {
        *self.rng.of(&[0, 1, 1_000_000, -1, i64::MIN])
    }

    pub(super) fn short_wait(&mut self) -> i64 {
        *self.rng.of(&[0, 1, 1_000_000])
    }

    fn text_of(&mut self, list: fn(&World) -> &Vec<usize>) -> usize {
        if self.rng.percent(4) { 0 } else { *self.rng.of(list(self.world)) }
    }

    pub(super) fn text(&mut self) -> usize {
        self.text_of(|w| &w.texts)
    }

    pub(super) fn name(&mut self) -> usize {
        self.text_of(|w| &w.names)
    }

    pub(super) fn predicate(&mut self) -> usize {
        self.text_of(|w| &w.predicates)
    }

    pub(super) fn controls_text(&mut self) -> usize {
        self.text_of(|w| &w.controls)
    }

    pub(super) fn url(&mut self) -> usize {
        // Never NULL: what the environment names is not for this test.
        *self.rng.of(&self.world.urls)
    }

    /// A data buffer with room for every `len`.
    pub(super) fn data(&mut self) -> usize {
        if self.rng.percent(4) { 0 } else { self.world.data }
    }

    /// Where `iov_handle_export` leaves bytes and `iov_handle_import` finds them.
    pub(super) fn passport(&mut self) -> usize {
        if self.rng.percent(4) { self.data() } else { self.world.passport + 8 }
    }

    /// Where it leaves their number.
    pub(super) fn passport_needed(&mut self) -> usize {
        self.world.passport
    }

    /// That number, or another.
    pub(super) fn passport_len(&mut self) -> usize {
        // SAFETY: the first word of that memory.
        let needed = unsafe { (self.world.passport as *const usize).read() };
        if self.rng.percent(20) { self.len() } else { needed.min(DATA) }
    }

    /// A place for plain results.
    pub(super) fn out(&mut self) -> usize {
        match self.rng.below(20) {
            0 => 0,
            1 => self.region() + 1,
            _ => self.region(),
        }
    }

    pub(super) fn region(&mut self) -> usize {
        self.world.next_region = (self.world.next_region + 1) % REGIONS;
        self.world.regions + self.world.next_region * ROOM
    }

    /// A place for a new handle.
    pub(super) fn out_handle(&mut self, kind: Kind) -> usize {
        let slot = self.rng.below(SLOTS);
        // A result of an earlier batch may still be on its way here; it keeps its kind or is of a wrong one, as it comes.
        self.world.slot_kinds[slot] = Some(kind);
        if self.rng.percent(3) { 0 } else { self.world.slots + 8 * slot }
    }

    fn seen(&mut self, kind: Kind) -> usize {
        let seen = &self.world.seen[kind as usize];
        if seen.is_empty() { 0 } else { *self.rng.of(seen) }
    }

    /// A handle: open, stale, of another kind, or no handle at all.
    pub(super) fn handle(&mut self, kind: Kind) -> usize {
        if kind == Kind::Batch && self.rng.percent(60) {
            return 0;
        }
        if kind == Kind::Group && self.rng.percent(60) {
            return 0;
        }
        match self.rng.below(60) {
            0 => 0,
            1 => self.rng.next() as usize,
            2 => self.world.data,
            3 => {
                let any = *self.rng.of(&[Kind::Session, Kind::Workspace, Kind::Group, Kind::Cursor, Kind::Batch]);
                self.seen(any)
            }
            4 => {
                let all = &self.world.all;
                if all.is_empty() { 0 } else { self.rng.of(all).1 }
            }
            5 => self.seen(kind) ^ (1 << self.rng.below(64)),
            _ if kind == Kind::Collection && self.rng.percent(10) => self.seen(Kind::Group),
            _ => self.seen(kind),
        }
    }

    /// A struct, or an array of them.
    pub(super) fn structure(&mut self, shape: Shape) -> usize {
        let unusual = matches!(shape, Shape::Controls | Shape::Layout) && self.rng.percent(40);
        if (unusual || self.rng.percent(5)) && shape != Shape::SessionAttr {
            return 0;
        }
        let at = self.region();
        structs::fill(self, shape, at);
        if self.rng.percent(2) { at + 1 } else { at }
    }
}
