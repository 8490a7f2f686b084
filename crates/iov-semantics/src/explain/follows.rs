//! What follows from the value of a control.

use iov_types::{
    Atomicity, Clause, Concurrency, Consistency, Mutability, OnError, Persistence, Point, Spatiality, Temporality,
};

use crate::{
    Contract, Control, Publish, SyncPoint,
    quantity::{format_size, format_time},
};

/// The clause behind a control's value, and what follows from it.
pub(super) fn follows(control: Control, contract: &Contract) -> (Clause, String) {
    match control {
        Control::Consistency => consistency(contract),
        Control::Concurrency => fixed(match contract.effective.concurrency {
            Concurrency::Shared => (Clause::X3, "writers of disjoint ranges need no lock and lose nothing"),
            Concurrency::Exclusive => {
                (Clause::X1, "others' opens are busy; a lease with an epoch fences a holder that is gone")
            }
        }),
        Control::Mutability => fixed(match contract.effective.mutability {
            Mutability::Overwrite => (Clause::C5, "any byte may change; a racing read gets the old or the new one"),
            Mutability::Append => {
                (Clause::M4, "writes go to the end, where the target says; each record once and whole")
            }
            Mutability::Immutable => (Clause::M2, "writable until sealed; then caches need not ask again"),
        }),
        Control::Atomicity => atomicity(contract),
        Control::Persistence => fixed(match contract.durability {
            Persistence::Volatile => (Clause::P1, "no sync; what the medium loses is reported as lost, never as zeros"),
            Persistence::Process => (Clause::P2, "no sync; acknowledged bytes survive the end of every process"),
            Persistence::Durable => (
                Clause::P3,
                "synced by the point; acknowledged bytes survive power loss, damage to them is noticed (I1)",
            ),
            Persistence::Replicated => (Clause::P4, "written to all copies by the point; survives the loss of copies"),
        }),
        Control::Point => point(contract),
        Control::Temporality => match contract.effective.temporality {
            Temporality::Multiple => (Clause::H1, "caches keep what was used".into()),
            Temporality::Once => (Clause::H2, "nothing stays in caches, the kernel's included".into()),
            Temporality::Bursty => {
                let within = format_time(contract.drain_ns);
                (Clause::H2, format!("absorbed by the fast tier, drained within {within}"))
            }
        },
        Control::Spatiality => fixed(match contract.effective.spatiality {
            Spatiality::Any => (Clause::H1, "reads ahead where it sees a sequence"),
            Spatiality::Contiguous => (Clause::H1, "reads ahead"),
            Spatiality::Strided => (Clause::H2, "no read-ahead into the gaps"),
            Spatiality::Random => (Clause::H2, "no read-ahead"),
        }),
        Control::RequestSize => match contract.effective.request_size.single() {
            Some(n) => (
                Clause::H2,
                format!("chunks are a multiple of {}, so that no aligned request straddles", format_size(n)),
            ),
            None => (Clause::H1, "changes no result".into()),
        },
        Control::CollectionSize => match contract.max_size {
            0 => (Clause::H1, "may grow as far as the quota".into()),
            max => (Clause::H1, format!("a change beyond {} fails", format_size(max))),
        },
        Control::Error => fixed(match contract.effective.on_error {
            OnError::Continue => (Clause::B1, "every operation of a batch runs"),
            OnError::Stop => (Clause::B2, "after a failure the later groups of a batch are skipped"),
            OnError::Rollback => (Clause::B3, "a batch is staged, and takes effect at one point or not at all"),
        }),
    }
}

fn fixed((clause, text): (Clause, &str)) -> (Clause, String) {
    (clause, text.into())
}

fn consistency(contract: &Contract) -> (Clause, String) {
    let clause = match contract.effective.consistency {
        Consistency::Sequential => Clause::C1,
        Consistency::Commit => Clause::C2,
        Consistency::Session => Clause::C3,
        Consistency::Eventual => Clause::C4,
    };
    let what = match contract.publish {
        Publish::AtOnce => "a write is seen by every read that starts after it has completed".into(),
        Publish::AtCommit => "what is committed is seen; before that others may or may not see it".into(),
        Publish::AtClose => "what was closed is seen by those who open after that".into(),
        Publish::Within => format!("seen by all at the latest {} later", format_time(contract.effective.eventual_ns)),
    };
    (clause, what)
}

fn atomicity(contract: &Contract) -> (Clause, String) {
    let what = match contract.effective.atomicity {
        Atomicity::None => "a crash leaves each byte of a request in flight old or new".into(),
        Atomicity::Unit => {
            format!("each unit of {} is old or new, for readers and after a crash", format_size(contract.unit))
        }
        Atomicity::Publication => "staged; appears and persists in one step at commit or close, or not at all".into(),
    };
    (Clause::M1, what)
}

fn point(contract: &Contract) -> (Clause, String) {
    let what = match (contract.sync, contract.effective.point) {
        (SyncPoint::Never, _) => "nothing waits: the medium gives the level by itself",
        (_, Point::Request) => "each request completes after its sync",
        (_, Point::Batch) => "a batch completes after one sync",
        (_, Point::Close) => "close completes after the sync",
        (_, Point::Explicit) => "only an explicit persist syncs",
    };
    (Clause::P5, what.into())
}

pub(super) const fn publish(p: Publish) -> &'static str {
    match p {
        Publish::AtOnce => "at once",
        Publish::AtCommit => "at commit",
        Publish::AtClose => "at close",
        Publish::Within => "within T",
    }
}

pub(super) const fn sync(s: SyncPoint) -> &'static str {
    match s {
        SyncPoint::Never => "never",
        SyncPoint::Request => "request",
        SyncPoint::Batch => "batch",
        SyncPoint::Close => "close",
        SyncPoint::Explicit => "explicit",
    }
}
