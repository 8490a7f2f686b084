use iov_types::{
    EntryKind,
    catalog::{Presented, PresentedLock},
};
use iov_wire::messages::*;
use proptest::prelude::*;

use super::*;

fn text() -> BoxedStrategy<String> {
    any::<String>().boxed()
}

pub(crate) fn context() -> BoxedStrategy<Context> {
    (uuid(), uuid()).prop_map(|(holder, batch)| Context { holder, batch }).boxed()
}

pub(crate) fn hello() -> BoxedStrategy<Hello> {
    (any::<[u16; 2]>(), text(), uuid(), text(), any::<[u32; 3]>(), any::<Vec<u8>>(), uuid())
        .prop_map(|([min_version, max_version], library, session, program, [pid, channel, target], challenge, of)| {
            Hello {
                min_version,
                max_version,
                library,
                session,
                program,
                pid,
                channel,
                challenge,
                target,
                of,
                rings: target % 2 == 1,
            }
        })
        .boxed()
}

pub(crate) fn challenge() -> BoxedStrategy<Challenge> {
    any::<Vec<u8>>().prop_map(|challenge| Challenge { challenge }).boxed()
}

pub(crate) fn proof() -> BoxedStrategy<Proof> {
    any::<Vec<u8>>().prop_map(|proof| Proof { proof }).boxed()
}

pub(crate) fn welcome() -> BoxedStrategy<Welcome> {
    let capability =
        (capability(), number(), any::<bool>(), number()).prop_map(|(targets, max_ops, single_user, inline_bytes)| {
            StoreCapability { targets: TargetCapability::from(&targets), max_ops, single_user, inline_bytes }
        });
    let more = (any::<Vec<u8>>(), list(text()), any::<(u32, bool, bool)>());
    (any::<u16>(), uuid(), [number(), number()], capability, text(), any::<u32>(), more)
        .prop_map(
            |(
                version,
                store,
                [incarnation, lease_ns],
                capability,
                daemon,
                pid,
                (proof, addresses, (target, priorities, rings)),
            )| {
                Welcome {
                    version,
                    store,
                    incarnation,
                    capability,
                    daemon,
                    pid,
                    lease_ns,
                    proof,
                    addresses,
                    target,
                    priorities,
                    rings,
                }
            },
        )
        .boxed()
}

pub(crate) fn resume() -> BoxedStrategy<Resume> {
    let kind = one_of(&[EntryKind::Group, EntryKind::Collection]);
    let presented = (uuid(), uuid(), kind, any::<[u32; 2]>(), number())
        .prop_map(|(ws, uuid, kind, [handles, writers], epoch)| Presented { ws, uuid, kind, handles, writers, epoch });
    let lock = (uuid(), uuid(), super::catalog::lock()).prop_map(|(ws, uuid, lock)| PresentedLock { ws, uuid, lock });
    (context(), list(presented), list(uuid()), list(lock))
        .prop_map(|(context, opens, stages, locks)| Resume { context, opens, stages, locks })
        .boxed()
}

pub(crate) fn resume_answer() -> BoxedStrategy<ResumeAnswer> {
    let results = || list(result(catalog_reply()));
    (results(), list(uuid()), results()).prop_map(|(opens, lost, locks)| ResumeAnswer { opens, lost, locks }).boxed()
}

pub(crate) fn catalog_request() -> BoxedStrategy<CatalogRequest> {
    (context(), submission(), list(catalog_op().prop_map(Ok)))
        .prop_map(|(context, how, ops)| CatalogRequest { context, how, ops })
        .boxed()
}

pub(crate) fn catalog_answer() -> BoxedStrategy<CatalogAnswer> {
    result(list(result(catalog_reply()))).prop_map(CatalogAnswer::from).boxed()
}

pub(crate) fn object_request() -> BoxedStrategy<ObjectRequest> {
    let call = (object_op(), number(), maybe(any::<u32>())).prop_map(|(op, len, checksum)| ObjectCall {
        op: Ok(op),
        len,
        checksum,
    });
    let tickets = list(any::<Vec<u8>>());
    (context(), list(call), tickets)
        .prop_map(|(context, calls, tickets)| ObjectRequest { context, calls, tickets })
        .boxed()
}

pub(crate) fn object_answer() -> BoxedStrategy<ObjectAnswer> {
    let completion = (any::<u32>(), result(evidence()), number(), maybe(any::<u32>()))
        .prop_map(|(index, result, len, checksum)| ObjectCompletion { index, result, len, checksum });
    (maybe(error()), list(completion)).prop_map(|(failed, completions)| ObjectAnswer { failed, completions }).boxed()
}

fn access() -> BoxedStrategy<Access> {
    one_of(&[Access::Read, Access::Write]).boxed()
}

pub(crate) fn grant_request() -> BoxedStrategy<GrantRequest> {
    let tickets = list(proptest::collection::vec(any::<u8>(), 0..8));
    (context(), object_id(), range(), access(), number(), any::<[bool; 2]>(), tickets)
        .prop_map(|(context, object, range, access, epoch, [memory, anew], tickets)| GrantRequest {
            context,
            object,
            range,
            access,
            epoch,
            memory,
            anew,
            tickets,
        })
        .boxed()
}

pub(crate) fn grant_answer() -> BoxedStrategy<GrantAnswer> {
    let stretch = [number(), number(), number(), number()].prop_map(|[offset, len, segment, at]| Stretch {
        offset,
        len,
        segment,
        at,
    });
    let window = (number(), number(), list(stretch), list(number()))
        .prop_map(|(head_segment, head_at, stretches, passed)| Window { head_segment, head_at, stretches, passed });
    let numbers = [number(), number(), number(), number(), number()];
    let granted = (numbers, range(), access(), any::<bool>(), maybe(window)).prop_map(
        |([grant, position, epoch, lease_ns, version], range, access, kept, window)| Granted {
            grant,
            range,
            position,
            access,
            epoch,
            lease_ns,
            kept,
            window,
            version,
        },
    );
    prop_oneof![granted.prop_map(GrantAnswer::Granted), error().prop_map(GrantAnswer::Failed)].boxed()
}

pub(crate) fn recall() -> BoxedStrategy<Recall> {
    (number(), number()).prop_map(|(grant, within_ns)| Recall { grant, within_ns }).boxed()
}

pub(crate) fn sums_request() -> BoxedStrategy<SumsRequest> {
    (context(), object_id(), number(), number())
        .prop_map(|(context, object, first, runs)| SumsRequest { context, object, first, runs })
        .boxed()
}

pub(crate) fn sums_answer() -> BoxedStrategy<SumsAnswer> {
    prop::option::of(error()).prop_map(|failed| SumsAnswer { failed }).boxed()
}

pub(crate) fn take_back() -> BoxedStrategy<TakeBack> {
    (context(), object_id()).prop_map(|(context, object)| TakeBack { context, object }).boxed()
}

pub(crate) fn take_back_answer() -> BoxedStrategy<TakeBackAnswer> {
    prop::option::of(error()).prop_map(|failed| TakeBackAnswer { failed }).boxed()
}

pub(crate) fn give_back() -> BoxedStrategy<GiveBack> {
    number().prop_map(|grant| GiveBack { grant }).boxed()
}

pub(crate) fn renew() -> BoxedStrategy<Renew> {
    number().prop_map(|lease_ns| Renew { lease_ns }).boxed()
}

pub(crate) fn fault() -> BoxedStrategy<Fault> {
    error().prop_map(|error| Fault { error }).boxed()
}

pub(crate) fn status_answer() -> BoxedStrategy<StatusAnswer> {
    let counters = list((text(), number()).prop_map(|(name, value)| Counter { name, value }));
    (text(), any::<[u32; 3]>(), number(), counters)
        .prop_map(|(daemon, [pid, sessions, connections], uptime_ns, counters)| StatusAnswer {
            daemon,
            pid,
            uptime_ns,
            sessions,
            connections,
            counters,
        })
        .boxed()
}
