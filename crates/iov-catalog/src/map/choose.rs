//! Which targets a new collection is put on.

use iov_semantics::admit;
use iov_store::MetadataStore;
use iov_types::{Atomicity, Capability, Clause, Effective, Error, Layout, Mutability, Place, Result, Target, Uuid};

use super::{Map, is_well};

/// Bytes on one target before the next, where nobody says.
const CHUNK: u64 = 1 << 20;
/// Smallest chunk that is given.
pub(super) const LEAST_CHUNK: u64 = 4096;
/// A target with less free than this part of its bytes, and than so many, is short of room; such are taken only if there are
/// no better ones. The many bytes: a large disk is used up to its last part, which holds more than most stores.
const SHORT: (u64, u64) = (10, 16 << 30);
/// The same for one that is nearly full.
const FULL: (u64, u64) = (33, 2 << 30);
/// Where fewer bytes are free, nothing is kept that is not asked for.
const SMALL: u64 = 64 << 20;

/// What is wanted for a new collection.
pub(crate) struct Wish<'a> {
    /// Its identity: it decides where chance would. Who runs the same creation again finds the same targets.
    pub(crate) uuid: Uuid,
    pub(crate) layout: &'a Layout,
    pub(crate) effective: &'a Effective,
    /// Asked for by whoever creates it, so that it is refused if it cannot be had; else a default, of which as much is taken
    /// as can be had.
    pub(crate) asked: bool,
}

/// How targets are chosen among those that fit.
#[derive(PartialEq, Eq, Debug)]
enum Policy {
    /// Where much is free, more often.
    Space,
    /// In turns.
    RoundRobin,
    /// These, in this order.
    Named(Vec<u32>),
}

impl Policy {
    fn read(text: Option<&str>) -> Result<Policy> {
        let unknown = || {
            Error::unsupported(format!(
                "layout: no placement policy is called {:?}; there are space, round-robin and targets:N,N…",
                text.unwrap_or_default()
            ))
        };
        match text {
            None | Some("space") => Ok(Policy::Space),
            Some("round-robin") => Ok(Policy::RoundRobin),
            Some(text) => {
                let numbers = text.strip_prefix("targets:").ok_or_else(unknown)?;
                let numbers: Option<Vec<u32>> = numbers.split(',').map(|n| n.trim().parse().ok()).collect();
                let numbers = numbers.filter(|n| !n.is_empty()).ok_or_else(unknown)?;
                if let Some(n) = numbers.iter().enumerate().find_map(|(at, n)| numbers[..at].contains(n).then_some(n)) {
                    return Err(Error::invalid(format!(
                        "layout: target {n} is named twice in {text:?}: name each once"
                    ))
                    .with_clause(Clause::O2));
                }
                Ok(Policy::Named(numbers))
            }
        }
    }
}

/// Whether a target has room: 0 = enough, then less and less.
fn shortage(target: &Target) -> u8 {
    let below = |(one_in, bytes): (u64, u64)| target.free < bytes.min(target.capacity / one_in);
    match target.capacity {
        0 => 0,
        _ if below(FULL) => 2,
        _ if below(SHORT) => 1,
        _ => 0,
    }
}

impl Map {
    /// Whether any target is short of room, as far as is known, or so small that it soon may be.
    pub(crate) fn is_short(&self) -> bool {
        let is_small = |target: &Target| target.capacity > 0 && target.free < SMALL;
        self.targets.values().any(|target| shortage(target) > 0 || is_small(target))
    }
}

/// Kinds of media, the fastest first. Nothing is put nowhere unless somebody asks for that.
fn rank(capability: &Capability) -> u8 {
    match capability.medium {
        Capability::SHARED_MEMORY => 0,
        Capability::HEAP => 1,
        Capability::NULL => 9,
        _ => 2,
    }
}

impl Map {
    /// Fails where a default names what the store has not got, so that nothing could be created by it. How much can be had of the rest is seen
    /// at each create.
    pub(crate) fn check_default(&self, layout: &Layout) -> Result<()> {
        let policy = Policy::read(layout.policy.as_deref())?;
        self.of_kind(&policy, layout.backend.as_deref()).map(drop)
    }

    /// Chooses the targets of a new collection, and completes its layout.
    pub(crate) fn choose(&mut self, store: &dyn MetadataStore, wish: &Wish<'_>) -> Result<Layout> {
        let mut layout = Layout { place: Place::FIRST, ..wish.layout.clone() };
        let mut asked = layout.targets.max(1) as usize;
        let appends = wish.effective.mutability == Mutability::Append;
        if asked > 1 && appends && wish.asked {
            return Err(Error::refused(
                Clause::M4,
                "layout: one target gives offsets to appends; offer: layout with targets=1",
            ));
        }
        let policy = Policy::read(layout.policy.as_deref())?;
        let fitting = self.fitting(wish, &policy)?;
        if !wish.asked {
            asked = if appends { 1 } else { asked.min(fitting.len()) };
        }
        if asked > fitting.len() {
            let n = fitting.len();
            return Err(Error::refused(
                Clause::O2,
                format!("layout: {asked} targets, but {n} can be had for this; offer: layout with targets={n}"),
            ));
        }
        let chosen = self.pick(&policy, wish.uuid, fitting, asked);
        self.check_together(&chosen)?;
        if chosen == [0] {
            return Ok(layout);
        }
        let chunk = chunk(layout.chunk_size, wish.effective)?;
        let pattern = self.pattern(store, chosen)?;
        layout.place = Place::new(pattern, chunk).ok_or_else(|| Error::internal("a place that is none"))?;
        (layout.targets, layout.chunk_size) = (asked as u32, chunk);
        Ok(layout)
    }

    /// Those that a policy names, of a kind of storage.
    fn of_kind(&self, policy: &Policy, storage: Option<&str>) -> Result<Vec<&Target>> {
        let named: Vec<&Target> = match policy {
            Policy::Named(numbers) => {
                let find =
                    |n: &u32| self.targets.get(n).ok_or_else(|| Error::not_found(format!("layout: no target {n}")));
                numbers.iter().map(find).collect::<Result<_>>()?
            }
            _ => self.targets.values().collect(),
        };
        let of_kind: Vec<&Target> = match storage {
            None => named,
            Some(kind) => named.into_iter().filter(|target| target.storage == kind).collect(),
        };
        if let (Some(kind), true) = (storage, of_kind.is_empty()) {
            let mut there: Vec<&str> = self.targets.values().map(|target| target.storage.as_str()).collect();
            there.sort_unstable();
            there.dedup();
            let there = there.join(", ");
            return Err(Error::unsupported(format!(
                "layout: no target of this store keeps bytes in {kind:?}: {there}"
            )));
        }
        Ok(of_kind)
    }

    /// Those on which it can be, by the policy and by what it promises.
    fn fitting(&self, wish: &Wish<'_>, policy: &Policy) -> Result<Vec<Target>> {
        let of_kind = self.of_kind(policy, wish.layout.backend.as_deref())?;
        let mut refused = None;
        let mut able = Vec::new();
        for target in of_kind {
            match admit(wish.effective, None, &target.capability) {
                Ok(_) => able.push(target),
                Err(refusal) => refused = refused.or(Some(refusal.error)),
            }
        }
        if able.is_empty() {
            return Err(refused.unwrap_or_else(|| Error::unavailable("the store has no target")));
        }
        let well: Vec<&Target> = able.iter().copied().filter(|target| is_well(target)).collect();
        if well.is_empty() {
            let states: Vec<String> =
                able.iter().map(|t| format!("{} is {}, {}", t.number, t.reach.text(), t.health.text())).collect();
            return Err(Error::unavailable(format!(
                "no target that could take it is there (target {}): start their daemons; iov targets",
                states.join("; target ")
            )));
        }
        if matches!(policy, Policy::Named(_)) || wish.layout.backend.is_some() {
            return Ok(well.into_iter().cloned().collect());
        }
        Ok(best_pool(&well, wish))
    }

    /// Fails for targets whose media do not go together.
    fn check_together(&self, chosen: &[u32]) -> Result<()> {
        let mut classes = chosen.iter().filter_map(|n| self.targets.get(n)).map(|t| class_of(&t.capability));
        let first = classes.next();
        if classes.all(|class| Some(class) == first) {
            return Ok(());
        }
        Err(Error::refused(
            Clause::O2,
            "layout: one collection does not lie on a heap and on other media; offer: targets of one kind (iov targets)",
        ))
    }

    /// So many of them, in an order that says where the first bytes go. Neighbours stay neighbours, so that there are few
    /// patterns.
    fn pick(&mut self, policy: &Policy, uuid: Uuid, fitting: Vec<Target>, n: usize) -> Vec<u32> {
        let first = match policy {
            Policy::Named(_) => 0,
            Policy::RoundRobin => {
                self.turn += 1;
                (self.turn % fitting.len() as u64) as usize
            }
            Policy::Space => by_space(&fitting, uuid),
        };
        (0..n).map(|i| fitting[(first + i) % fitting.len()].number).collect()
    }
}

/// Of all that could take it, those of one kind of medium that is fast enough and has room.
fn best_pool(well: &[&Target], wish: &Wish<'_>) -> Vec<Target> {
    let asked = wish.layout.targets.max(1) as usize;
    let mut ranks: Vec<u8> = well.iter().map(|target| rank(&target.capability)).collect();
    ranks.sort_unstable();
    ranks.dedup();
    // What is known of its size is spread over so many.
    let least = wish.effective.collection_size.min / asked as u64;
    let fits = |target: &Target| target.capacity == 0 || target.free >= least;
    for most in 0..=2 {
        for kind in &ranks {
            let pool = well.iter().filter(|t| rank(&t.capability) == *kind && shortage(t) <= most && fits(t));
            let pool: Vec<Target> = pool.map(|target| (*target).clone()).collect();
            if pool.len() >= asked {
                return pool;
            }
        }
    }
    // Not of one kind, then: of those that go together, as many as there are.
    let together = |class: u8| -> Vec<Target> {
        well.iter().filter(|t| class_of(&t.capability) == class).map(|target| (*target).clone()).collect()
    };
    let mut pools = [0, 1, 2].map(together).into_iter();
    let first = pools.next().unwrap_or_default();
    pools.fold(first, |best, pool| if best.len() >= asked || pool.len() <= best.len() { best } else { pool })
}

/// Media of one class keep the same promises when bytes are spread over them: what is reached by passing memory or files
/// is, heaps, and what keeps nothing.
fn class_of(capability: &Capability) -> u8 {
    match capability.medium {
        Capability::HEAP => 1,
        Capability::NULL => 2,
        _ => 0,
    }
}

/// One of them, the more likely the more is free there.
fn by_space(targets: &[Target], uuid: Uuid) -> usize {
    let known = targets.iter().all(|target| target.capacity > 0);
    let weight = |target: &Target| if known { u128::from(target.free.max(1)) } else { 1 };
    let all: u128 = targets.iter().map(weight).sum();
    let mut at = u128::from(chance(uuid)) % all;
    for (i, target) in targets.iter().enumerate() {
        match at.checked_sub(weight(target)) {
            None => return i,
            Some(rest) => at = rest,
        }
    }
    0
}

/// A number that is as good as drawn by chance: the last bytes of an identity, stirred (the finalizer of SplitMix64,
/// <https://doi.org/10.1145/2714064.2660195>).
fn chance(uuid: Uuid) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = uuid.0;
    let mut z = u64::from_le_bytes([a, b, c, d, e, f, g, h]).wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Bytes on one target before the next: requests and units of one size never straddle two (H2, M1).
fn chunk(asked: u64, effective: &Effective) -> Result<u64> {
    let unit = match effective.atomicity {
        Atomicity::Unit => effective.atomic_unit.max(1),
        _ => 1,
    };
    let request = effective.request_size.single().unwrap_or(1).max(1);
    let gcd = |mut a: u64, mut b: u64| {
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    let chunk = if asked == 0 { CHUNK } else { asked.max(LEAST_CHUNK) };
    let of = |n: u64| chunk.div_ceil(n).checked_mul(n).filter(|chunk| *chunk <= Place::MAX_CHUNK);
    // Where both have no common size that is any use, units come first: they are a promise.
    let both = (unit / gcd(unit, request)).checked_mul(request).filter(|n| *n <= 1 << 30);
    both.and_then(of).or_else(|| of(unit)).ok_or_else(|| {
        Error::invalid(format!("layout: chunks of {asked} bytes are too large; at most {}", Place::MAX_CHUNK))
    })
}
