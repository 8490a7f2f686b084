use iov_types::*;
use proptest::prelude::*;

use super::{list, maybe, number, one_of, time};

pub(crate) fn uuid() -> BoxedStrategy<Uuid> {
    prop_oneof![Just(Uuid::NIL), any::<[u8; 16]>().prop_map(Uuid)].boxed()
}

pub(crate) fn name() -> BoxedStrategy<Name> {
    prop_oneof![
        "[a-z0-9._-]{1,20}".prop_map(String::into_bytes),
        proptest::collection::vec(prop_oneof![1u8..b'/', b'0'..=255], 1..=255)
    ]
    .prop_filter_map("only a UUID begins with uuid:", |bytes| Name::new(bytes).ok())
    .boxed()
}

pub(crate) fn which() -> BoxedStrategy<Which> {
    prop_oneof![name().prop_map(Which::Name), uuid().prop_map(Which::Uuid)].boxed()
}

/// Without NaN, which equals nothing, so that values can be compared; the codec's own tests look at its bits.
pub(crate) fn value() -> BoxedStrategy<Value> {
    prop_oneof![
        any::<String>().prop_map(Value::Str),
        any::<i64>().prop_map(Value::I64),
        any::<f64>().prop_filter("NaN", |f| !f.is_nan()).prop_map(Value::F64),
        any::<bool>().prop_map(Value::Bool),
        any::<Vec<u8>>().prop_map(Value::Bytes),
        any::<i64>().prop_map(Value::Time),
    ]
    .boxed()
}

pub(crate) fn metadata() -> BoxedStrategy<Metadata> {
    list(("[a-z]{1,12}", value()))
        .prop_map(|pairs| {
            let mut metadata = Metadata::new();
            for (key, value) in pairs {
                metadata.set(key, value).expect("the key is a good one");
            }
            metadata
        })
        .boxed()
}

pub(crate) fn range() -> BoxedStrategy<Range> {
    (number(), number()).prop_map(|(offset, len)| Range { offset, len }).boxed()
}

pub(crate) fn extent() -> BoxedStrategy<Extent> {
    let kinds = &[ExtentKind::Data, ExtentKind::Hole, ExtentKind::Allocated, ExtentKind::Abandoned];
    (range(), one_of(kinds), any::<u32>()).prop_map(|(range, kind, target)| Extent { range, kind, target }).boxed()
}

pub(crate) fn entry_kind() -> BoxedStrategy<EntryKind> {
    one_of(&[EntryKind::Workspace, EntryKind::Group, EntryKind::Collection]).boxed()
}

pub(crate) fn state() -> BoxedStrategy<State> {
    one_of(&[State::Staging, State::Open, State::Sealed]).boxed()
}

fn limits() -> BoxedStrategy<Limits> {
    (number(), number()).prop_map(|(min, max)| Limits { min, max }).boxed()
}

pub(crate) fn effective() -> BoxedStrategy<Effective> {
    let sharing = (one_of(Consistency::ALL), one_of(Concurrency::ALL), one_of(Mutability::ALL), one_of(Atomicity::ALL));
    let keeping = (one_of(Persistence::ALL), one_of(Point::ALL), one_of(Temporality::ALL));
    let hints = (one_of(Spatiality::ALL), one_of(OnError::ALL), limits(), limits());
    (sharing, keeping, hints, [number(), number(), number(), number(), number()])
        .prop_map(|(sharing, keeping, hints, [eventual_ns, atomic_unit, drain_ns, stride, block])| Effective {
            consistency: sharing.0,
            eventual_ns,
            concurrency: sharing.1,
            mutability: sharing.2,
            atomicity: sharing.3,
            atomic_unit,
            persistence: keeping.0,
            point: keeping.1,
            temporality: keeping.2,
            drain_ns,
            spatiality: hints.0,
            stride,
            block,
            request_size: hints.2,
            collection_size: hints.3,
            on_error: hints.1,
        })
        .boxed()
}

/// Controls of which any may be unset.
pub(crate) fn controls() -> BoxedStrategy<Controls> {
    (effective(), any::<u16>())
        .prop_map(|(effective, unset)| {
            let mut c = Controls::from(&effective);
            let mut set = (0..9).map(|bit| unset >> bit & 1 == 0);
            let mut keep = || set.next().unwrap_or(true);
            c.consistency = c.consistency.filter(|_| keep());
            c.concurrency = c.concurrency.filter(|_| keep());
            c.mutability = c.mutability.filter(|_| keep());
            c.atomicity = c.atomicity.filter(|_| keep());
            c.persistence = c.persistence.filter(|_| keep());
            c.point = c.point.filter(|_| keep());
            c.temporality = c.temporality.filter(|_| keep());
            c.spatiality = c.spatiality.filter(|_| keep());
            c.on_error = c.on_error.filter(|_| keep());
            c
        })
        .boxed()
}

pub(crate) fn place() -> BoxedStrategy<Place> {
    let spread = (1..=Place::MAX_PATTERN, 1..=Place::MAX_CHUNK);
    prop_oneof![Just(Place::FIRST), spread.prop_map(|(pattern, chunk)| Place::new(pattern, chunk).expect("in range"))]
        .boxed()
}

pub(crate) fn layout() -> BoxedStrategy<Layout> {
    let redundancy = one_of(&[Redundancy::None, Redundancy::Mirror, Redundancy::Erasure]);
    let numbers = (any::<u32>(), number(), any::<u16>(), any::<u16>(), number());
    (numbers, maybe(redundancy), maybe(any::<String>()), maybe(any::<String>()), place())
        .prop_map(|((targets, chunk_size, k, m, revision), redundancy, backend, policy, place)| Layout {
            targets,
            chunk_size,
            redundancy,
            k,
            m,
            revision,
            backend,
            policy,
            place,
        })
        .boxed()
}

pub(crate) fn attr() -> BoxedStrategy<Attr> {
    let numbers = (maybe(any::<u32>()), maybe(any::<u32>()), maybe(any::<u32>()));
    (numbers, maybe(time()), maybe(time()), maybe(lifetime()))
        .prop_map(|((mode, uid, gid), mtime_ns, atime_ns, lifetime)| Attr {
            mode,
            uid,
            gid,
            mtime_ns,
            atime_ns,
            lifetime,
        })
        .boxed()
}

fn lifetime() -> impl Strategy<Value = Lifetime> {
    (one_of(&[Scope::Workspace, Scope::Process, Scope::Lease]), number())
        .prop_map(|(scope, lease_ns)| Lifetime { scope, lease_ns })
}

fn access() -> BoxedStrategy<AccessList> {
    let subject =
        prop_oneof![any::<u32>().prop_map(Subject::User), any::<u32>().prop_map(Subject::Group), Just(Subject::Any)];
    list((subject, one_of(&[Right::Read, Right::Write, Right::Admin])))
        .prop_map(|list| AccessList {
            entries: list.into_iter().map(|(subject, right)| AccessEntry { subject, right }).collect(),
        })
        .boxed()
}

pub(crate) fn workspace_attr() -> BoxedStrategy<WorkspaceAttr> {
    let quota = (maybe(number()), maybe(number()), maybe(time()));
    (maybe(controls()), maybe(layout()), metadata(), maybe(any::<u32>()), maybe(access()), list(any::<String>()), quota)
        .prop_map(|(controls, layout, metadata, owner, access, indexes, quota)| WorkspaceAttr {
            controls,
            layout,
            metadata,
            owner,
            access,
            indexes,
            quota_bytes: quota.0,
            quota_collections: quota.1,
            expires_ns: quota.2,
        })
        .boxed()
}

pub(crate) fn stat() -> BoxedStrategy<Stat> {
    let what = (entry_kind(), maybe(state()), uuid());
    let sizes = [number(), number(), number(), number(), number(), number(), number(), number(), number()];
    (what, sizes, [time(), time(), time(), time(), time()], any::<[u32; 4]>(), maybe(lifetime()))
        .prop_map(|((kind, state, uuid), n, times, [mode, links, uid, gid], lifetime)| {
            let [ctime_ns, mtime_ns, expires_ns, atime_ns, changed_ns] = times;
            Stat {
                atime_ns,
                changed_ns,
                lifetime,
                kind,
                state,
                uuid,
                bytes: n[0],
                allocated: n[1],
                entries: n[2],
                abandoned: n[3],
                ctime_ns,
                mtime_ns,
                staleness_ns: n[4],
                revision: n[5],
                version: n[6],
                mode,
                links,
                uid,
                gid,
                quota_bytes: n[7],
                quota_collections: n[8],
                expires_ns,
            }
        })
        .boxed()
}

pub(crate) fn error() -> BoxedStrategy<Error> {
    let outcome = one_of(&[Outcome::Pending, Outcome::Applied, Outcome::NotApplied, Outcome::Unknown]);
    (one_of(Kind::ALL), outcome, maybe(one_of(Clause::ALL)), any::<String>())
        .prop_map(|(kind, outcome, clause, detail)| {
            let error = Error::new(kind, detail).with_outcome(outcome);
            clause.into_iter().fold(error, Error::with_clause)
        })
        .boxed()
}

pub(crate) fn result<S: Strategy>(ok: S) -> impl Strategy<Value = Result<S::Value>> {
    prop_oneof![3 => ok.prop_map(Ok), 1 => error().prop_map(Err)]
}
