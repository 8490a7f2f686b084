//! Opening a store: its format, its next incarnation, and what a crash left half done.

use bytes::Bytes;
use iov_store::{KeyRange, MetadataStore, Room, Txn, seam};
use iov_types::{Error, Kind, Outcome, Result, State, Uuid};
use iov_wire::Wire;

use crate::{
    Service,
    core::{Found, Options},
    exec::Mode,
    keys,
    record::{BatchRecord, FORMAT, Record, RemovedRecord, StoreRecord},
    redo::{self, Redo},
    service::Writer,
};

/// Keys read at a time.
const PAGE: usize = 1024;

/// Checks the format of a store and notes that a new incarnation of the catalog has begun. `awaits`: sessions of the one before may come
/// back.
pub(crate) fn enter(store: &dyn MetadataStore, options: &Options, awaits: bool) -> Result<Found> {
    let mut record = match store.get(&[keys::STORE])?.pop().flatten() {
        Some(found) => read(&found.value)?,
        None => found_nothing(store, options)?,
    };
    if record.incarnation > 0 && !record.clean {
        record.crashed.push(record.incarnation);
        if record.unmarked == record.incarnation {
            record.behind = record.incarnation;
        }
    }
    record.unmarked = 0;
    record.alone |= !awaits;
    record.incarnation += 1;
    record.clean = false;
    write(store, &record, Room::Last)?;
    Ok(Found { record })
}

fn read(bytes: &[u8]) -> Result<StoreRecord> {
    let record = StoreRecord::decode(bytes)?;
    match record.format {
        FORMAT => Ok(record),
        0 => Err(Error::corrupt("the store's first record has no format: check the store")),
        newer => Err(Error::version(format!(
            "the store has format {newer}, this release knows {FORMAT}: update the library and the daemon"
        ))),
    }
}

fn found_nothing(store: &dyn MetadataStore, options: &Options) -> Result<StoreRecord> {
    let everything = KeyRange { from: Vec::new(), to: None };
    if !store.scan(&everything, None, 1)?.is_empty() {
        return Err(Error::corrupt("the store holds records, but not the one that tells its format: check the store"));
    }
    let uuid = if options.store_uuid.is_nil() { seam::new_uuid() } else { options.store_uuid };
    Ok(StoreRecord {
        format: FORMAT,
        uuid,
        incarnation: 0,
        clean: true,
        crashed: Vec::new(),
        unmarked: 0,
        behind: 0,
        alone: true,
    })
}

pub(crate) fn write(store: &dyn MetadataStore, record: &StoreRecord, room: Room) -> Result<()> {
    let writes = vec![(keys::STORE.to_vec(), Some(Bytes::from(record.to_bytes())))];
    for commit in store.commit_with(vec![Txn { guards: Vec::new(), writes }], room)? {
        commit?;
    }
    Ok(())
}

/// Goes on with batches behind their point P, and removes what was deleted. Targets that do not answer now are asked
/// again with later requests.
pub(crate) fn recover(service: &Service) -> Result<()> {
    let mut writer = service.core.writer();
    let cx = service.own_cx(Uuid::NIL);
    for_each(service, keys::BATCH, |key, value| {
        let record = BatchRecord::decode(value)?;
        if !record.publish.is_empty() || !record.seal.is_empty() {
            writer.redo.push(Redo { batch: keys::uuid_at(key, 1)?, record, mtime_set: Vec::new(), late: true });
        }
        Ok(())
    })?;
    // Set once: a catalog is opened once.
    let _ = service.core.finished.set(writer.redo.iter().map(|redo| redo.batch).collect());
    redo::finish(service, &mut writer, &cx, None);
    service.load_temporary(&mut writer)?;
    unless_full(note_abandoned(service, &mut writer))?;
    unless_full(service.load_to_seal(&mut writer))?;
    if service.core.in_grace() {
        // Those who have it open may come back (O10).
        return Ok(());
    }
    service.seal_parted_at_once(&mut writer);
    unless_full(remove_deleted(service, &mut writer))
}

/// What finds no room now is done when the store is opened the next time: a store must be opened to make room in it.
fn unless_full(done: Result<()>) -> Result<()> {
    match done {
        Err(e) if (e.kind(), e.outcome()) == (Kind::Exhausted, Outcome::NotApplied) => Ok(()),
        done => done,
    }
}

/// Unsealed collections that somebody was writing when the catalog crashed: whoever lives takes them up again (M2).
fn note_abandoned(service: &Service, writer: &mut Writer) -> Result<()> {
    let mut found = Vec::new();
    for_each(service, &keys::all_in_staging(), |key, value| {
        found.push((RemovedRecord::decode(value)?.ws, keys::uuid_at(key, 9)?));
        Ok(())
    })?;
    if found.is_empty() {
        return Ok(());
    }
    let cx = service.own_cx(Uuid::NIL);
    let mut x = service.start(writer, &cx, Uuid::NIL, Mode::Each);
    for (ws, uuid) in found {
        let record = x.get(&keys::record(ws, uuid))?.map(|bytes| Record::parse(&bytes)).transpose()?;
        match record {
            Some(mut record) if record.state == State::Staging && !record.deleted && record.abandoned_ns == 0 => {
                x.abandon(ws, uuid, &mut record);
                x.put_record(ws, uuid, &mut record);
            }
            _ => x.delete(keys::in_staging(uuid)),
        }
    }
    service.commit_own(writer, &cx, x)
}

/// Removes what was deleted and nobody has open.
pub(crate) fn remove_deleted(service: &Service, writer: &mut Writer) -> Result<()> {
    let cx = service.own_cx(Uuid::NIL);
    let mut removed = Vec::new();
    for_each(service, keys::REMOVED, |key, value| {
        let RemovedRecord { ws, place } = RemovedRecord::decode(value)?;
        removed.push((ws, keys::uuid_at(key, 1)?, place));
        Ok(())
    })?;
    let mut x = service.start(writer, &cx, Uuid::NIL, Mode::Each);
    for (ws, uuid, place) in removed {
        if x.entry(uuid).is_some_and(|e| !e.is_unused()) {
            continue;
        }
        let found = x.get(&keys::record(ws, uuid))?.map(|bytes| Record::parse(&bytes)).transpose()?;
        match (found, x.workspace_of_handle(ws)) {
            (Some(record), _) if !record.deleted => x.delete(keys::removed(uuid)),
            (Some(record), Ok(at)) => x.remove_record(at, uuid, &record),
            _ => x.after.remove.push(place.whole(uuid)),
        }
    }
    service.commit_own(writer, &cx, x)
}

/// Reads all pairs whose key begins with a tag.
pub(crate) fn for_each(service: &Service, tag: &[u8], mut each: impl FnMut(&[u8], &[u8]) -> Result<()>) -> Result<()> {
    let range = KeyRange::prefix(tag);
    let mut after: Option<Vec<u8>> = None;
    loop {
        let page = service.core.store().scan(&range, after.as_deref(), PAGE)?;
        let Some((last, _)) = page.last() else { return Ok(()) };
        after = Some(last.to_vec());
        for (key, record) in &page {
            each(key, &record.value)?;
        }
    }
}
