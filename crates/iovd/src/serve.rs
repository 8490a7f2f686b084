//! Puts a store together and serves it.

use std::{
    os::fd::AsFd,
    sync::{Arc, atomic::Ordering},
};

use iov_catalog::Service;
use iov_meta_local::LocalStore;
use iov_server::{Afar, Doors, Facts, Server};
use iov_store::seam;
use iov_types::{Error, Result, Uuid};

use crate::{
    Args,
    begin::{self, Begun, inside, open_dir},
    changes,
    check::Check,
    fleet::{self, Open},
    hold::{Hold, Taken},
    listen::{self, Listening},
    log,
    member::{self, Member},
    storage::Storages,
};

/// Serves until it is told to end or has been idle for long enough; the code is 0 also where another daemon serves.
pub(crate) fn run(args: &Args) -> Result<u8> {
    let Some(begun) = begin::begin(args)? else { return Ok(0) };
    if let Some(member) = Member::load(&begun.dir, args)? {
        return member::run(args, begun, member);
    }
    let Begun { dir, mut hold, stop, mut troubles, connections } = begun;
    let incarnation = seam::now_ns() as u64;
    let storages = Storages::choose(&dir, args)?;
    let store = Arc::new(LocalStore::open(&inside(&dir, "meta"), iov_meta_local::Options::default())?);
    let Open { fleet, targets, stays, all_at_target } =
        fleet::open(&dir, &storages, incarnation, args.trace.as_deref())?;
    // From now on nobody relies on what the catalog before has told: this one may change things as it is opened.
    let changes = changes::open(&dir, incarnation, &mut troubles)?;
    let options = iov_catalog::Options {
        single_user: true,
        lease_ns: (args.lease_ms as i64).saturating_mul(1_000_000),
        inline_bytes: if all_at_target { 0 } else { args.inline_bytes },
        store_uuid: seam::new_uuid(),
        uid: rustix::process::geteuid().as_raw(),
    };
    // Clients of an earlier daemon that live come back with what they hold.
    let afar = Afar::open(inside(&dir, "network"), options.lease_ns, log::line)?;
    let awaits = afar.awaits() || targets.iter().any(|target| target.grants.awaits_clients());
    let grace_ns = if awaits { options.lease_ns } else { 0 };
    let catalog = Arc::new(Service::open_fleet(store.clone(), fleet, options, grace_ns)?);
    if let Some(page) = changes {
        catalog.tell_changes(page);
    }
    for target in &targets {
        let failed = target.grants.settle(&catalog.unfinished(), afar.awaits());
        troubles.extend(failed.iter().map(|e| format!("recovery of target {}: {e}", target.number)));
    }
    let listening = match listen::listen(&dir, args, None) {
        // Programs of this host must not suffer for it.
        Err(e) if args.listen.is_none() => {
            troubles.push(format!("nothing listens on the network as before the last end: {e}"));
            Listening::default()
        }
        listening => listening?,
    };
    troubles.extend(listening.trouble);
    let unfinished = catalog.unfinished();
    let options = iov_server::Options {
        store: catalog.store_uuid(),
        incarnation,
        owner: rustix::process::geteuid().as_raw(),
        idle_ns: if stays { i64::MAX } else { args.idle().as_nanos().min(i64::MAX as u128) as i64 },
        connections,
        entrance: listening.entrance,
        tls: listening.tls,
        toward: listening.toward,
        addresses: listening.addresses,
        data_workers: usize::from(args.workers),
    };
    let bound = listening.bound;
    let doors = Doors { local: iov_server::listen(dir.as_fd())?, network: listening.network };
    let server = Server::new(options, Facts::Catalog(catalog.clone()), targets, &unfinished, afar)?;
    let place = begin::end_start(args, &dir, &troubles)?;
    if let Some(path) = &args.trace {
        log::line(&format!("every call to the target is recorded in {}", path.display()));
    }
    log::line(&format!("serving {} as process {}", place.display(), std::process::id()));
    begin::tell_doors(&server, !doors.network.is_empty(), &bound);
    let check = Check::begin(&catalog, (args.check_after_ms as i64).saturating_mul(1_000_000));
    hold.serves();
    server.run(&doors, &|| stop.load(Ordering::Relaxed))?;
    check.end();
    // First nobody can find us any more, then the hold goes: a successor may start between the two and waits for it.
    drop(doors);
    listen::end(&dir);
    drop(server);
    if !catalog.has_open(Uuid::NIL) {
        // With clients that have something open it is like a crash: they come back to the next daemon.
        catalog.close()?;
    }
    drop(catalog);
    drop(store);
    log::line("ended in order");
    hold.release()?;
    Ok(0)
}

/// Gives the store's shared memory back.
pub(crate) fn release(args: &Args) -> Result<u8> {
    let dir = open_dir(&args.dir)?;
    let Taken::Ours(hold) = Hold::take(dir.as_fd())? else {
        return Err(Error::busy("a daemon serves the store: end it first, with iov down"));
    };
    let bytes = Storages::load(&dir)?.release()?;
    println!("{bytes}");
    hold.release()?;
    Ok(0)
}
