//! Opens the targets of a store.

use std::{os::fd::OwnedFd, path::Path, sync::Arc};

use iov_catalog::{Fleet, anywhere};
use iov_server::{Room, Target};
use iov_store::{Backend, Spread, Trace, TraceWriter};
use iov_types::{Health, Reach, Result, Uuid};

use crate::storage::{Opened, Storages};

/// All targets of a daemon, open.
pub(crate) struct Open {
    /// For the catalog.
    pub(crate) fleet: Fleet,
    /// For the server.
    pub(crate) targets: Vec<Target>,
    /// Bytes of some are gone when the daemon ends: it does not end by itself.
    pub(crate) stays: bool,
    /// No collection may live in its record.
    pub(crate) all_at_target: bool,
}

fn host() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

/// Opens them all; `trace` names a file to record every call to them in.
pub(crate) fn open(dir: &OwnedFd, storages: &Storages, incarnation: u64, trace: Option<&Path>) -> Result<Open> {
    let writer = trace.map(TraceWriter::open).transpose()?.map(Arc::new);
    let (mut targets, mut known) = (Vec::new(), Vec::new());
    let (mut stays, mut all_at_target) = (false, false);
    for (number, storage) in storages.0.iter().enumerate() {
        let number = number as u32;
        let opened = storage.open(dir, number, incarnation)?;
        stays |= opened.stays;
        all_at_target |= number == 0 && opened.all_at_target;
        let Opened { target, grants, direct, room, .. } = opened;
        let target: Arc<dyn Backend> = match &writer {
            None => target,
            Some(writer) => {
                let writer = writer.clone();
                Arc::new(Trace::new(target, move |event| writer.record(&event)))
            }
        };
        known.push(about(number, storage.kind(), &*target, &room));
        // What goes past this process cannot be traced.
        targets.push(Target { number, target, grants, direct: direct && writer.is_none(), room });
    }
    let capability = anywhere(&known).unwrap_or_else(|| targets[0].target.capability().clone());
    let spread = Spread::new(targets[0].target.clone(), capability);
    for target in &targets {
        spread.add_target(target.number, target.target.clone(), target.target.capability().clone());
    }
    Ok(Open { fleet: Fleet { spread, targets: known }, targets, stays, all_at_target })
}

fn about(number: u32, storage: &str, target: &dyn Backend, room: &Room) -> iov_types::Target {
    let (capacity, free) = room().unwrap_or_default();
    iov_types::Target {
        number,
        uuid: Uuid::NIL,
        capability: target.capability().clone(),
        storage: storage.to_owned(),
        host: host(),
        domain: host(),
        addresses: Vec::new(),
        capacity,
        free,
        reach: Reach::Online,
        health: Health::Good,
        local: String::new(),
    }
}
