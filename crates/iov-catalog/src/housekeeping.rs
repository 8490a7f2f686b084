//! What time does: sessions and leases that end, ids and unsealed collections that are forgotten, work that is tried again. And the
//! end of the catalog.

use iov_store::{KeyRange, OpCx, Room};
use iov_types::{Result, Uuid, catalog::CatalogOp, limits};
use iov_wire::Wire;

use crate::{
    Service,
    exec::{Exec, Mode},
    keys,
    record::{BatchRecord, Record, RemovedRecord},
    recovery,
    service::Writer,
    state::Touch,
};

/// Forgotten at a time, so that nobody waits long.
const PORTION: usize = 1024;

/// How long unsealed collections of a dead writer are kept (M2).
const ABANDONED_NS: i64 = 24 * 3600 * 1_000_000_000;

/// How often the store is looked through for what is to be forgotten.
const SWEEP_NS: i64 = 60_000_000_000;
/// The same where it was left unfinished.
const SWEEP_ON_NS: i64 = 2_000_000_000;

/// How often it is tried again to end a session.
const END_AGAIN_NS: i64 = 1_000_000_000;

/// For how long, at a time.
const END_FOR_NS: i64 = 100_000_000;

impl Writer {
    /// Sessions whose end is to be tried again now. They stay on the list until their turn: one that comes back takes itself off it.
    pub(crate) fn ends_again(&mut self, now_ns: i64) -> Vec<Uuid> {
        if self.unended.is_empty() || self.closed || now_ns < self.end_again_ns {
            return Vec::new();
        }
        self.end_again_ns = now_ns.saturating_add(END_AGAIN_NS);
        self.unended.clone()
    }

    /// Takes one off the list; whether it was there.
    pub(crate) fn is_unended(&mut self, session: Uuid) -> bool {
        let before = self.unended.len();
        self.unended.retain(|unended| *unended != session);
        self.unended.len() < before
    }
}

impl Service {
    /// Ends a session whose owner has ended, or has been away for longer than its lease: its opens, holds, cursors and locks, and what
    /// is bound to its process.
    pub fn end_session(&self, session: Uuid) {
        self.say_goodbye(session);
        self.end_temporary(&mut self.core.writer(), &self.own_cx(Uuid::NIL), true);
        self.deliver();
    }

    /// Ends a session whose process may live, and come back: what is bound to that stays, and its locks end with their leases (O11).
    pub fn leave(&self, session: Uuid) {
        self.core.locks().report_dead(session, self.core.monotonic_ns());
        self.say_goodbye(session);
    }

    /// Tries again to end sessions whose end failed, but for those that are back.
    pub(crate) fn end_again(&self, sessions: Vec<Uuid>) {
        let begun = self.core.monotonic_ns();
        for session in sessions {
            let unended = self.core.writer().is_unended(session);
            if unended {
                // One that fails goes behind the others. Everybody waits for those that wait for a target.
                self.leave(session);
                if self.core.monotonic_ns().saturating_sub(begun) > END_FOR_NS {
                    break;
                }
            }
        }
    }

    fn say_goodbye(&self, session: Uuid) {
        let cx = self.own_cx(session);
        // An error means that lengths could not be recorded, as a target is away still or the store fails: targets have them.
        let ended = self.write(&cx, session, vec![CatalogOp::Goodbye], false);
        if !ended.is_ok_and(|replies| replies.iter().all(Result::is_ok)) {
            self.core.writer().unended.push(session);
        }
        self.deliver();
    }

    /// To be called from time to time with the monotonic clock, at least as often as locks shall time out on the point.
    pub fn tick(&self, now_monotonic_ns: i64) {
        self.core.locks().expire(now_monotonic_ns);
        self.deliver();
        self.core.cursors().expire(now_monotonic_ns);
        let grace = self.core.grace_ns.load(std::sync::atomic::Ordering::Relaxed);
        if grace != 0 && grace <= now_monotonic_ns {
            // What fails is tried again when the store is next opened.
            let _ = self.end_grace();
        }
        let cx = self.own_cx(Uuid::NIL);
        let unended = self.core.writer_if_idle().map_or_else(Vec::new, |mut writer| {
            self.end_temporary(&mut writer, &cx, false);
            if !writer.closed {
                self.seal_parted_again(&mut writer, now_monotonic_ns);
            }
            writer.ends_again(now_monotonic_ns)
        });
        self.end_again(unended);
        if !self.sweep_is_due(now_monotonic_ns) {
            return;
        }
        let mut writer = self.core.writer();
        if writer.closed {
            return;
        }
        self.settle(&mut writer, &cx);
        self.core.store().keep_room();
        // A failure is met again by whoever writes next, who hears of it.
        let _ = self.forget(&mut writer, &cx, false);
    }

    /// Removes remembered batches and abandoned collections whose time is over, and writes what was put off: a portion of it, or
    /// all where the catalog ends.
    fn forget(&self, writer: &mut Writer, cx: &OpCx, ends: bool) -> Result<()> {
        let now_ns = self.core.now_ns();
        let mut x = self.start(writer, cx, Uuid::NIL, Mode::Each);
        // Both lists are in order of time.
        let mut over = 0;
        for (key, value) in x.scan(&KeyRange::prefix(keys::BATCH), None, PORTION)? {
            let record = BatchRecord::decode(&value.value)?;
            if record.publish.is_empty() && record.seal.is_empty() && record.expires_ns <= now_ns {
                x.delete(key.to_vec());
                over += 1;
            }
        }
        // Who commits many a second must not be ahead of that for ever. What a target has still to do may lie among them.
        let mut more = over > PORTION / 2;
        let abandoned = x.scan(&KeyRange::prefix(keys::ABANDONED), None, PORTION)?;
        let full = abandoned.len() == PORTION;
        for (n, (key, value)) in abandoned.into_iter().enumerate() {
            let since = key.get(1..9).and_then(|b| b.try_into().ok()).map_or(0, i64::from_be_bytes);
            if since.saturating_add(ABANDONED_NS) > now_ns {
                break;
            }
            let (ws, uuid) = (RemovedRecord::decode(&value.value)?.ws, keys::uuid_at(&key, 9)?);
            let found = x.get(&keys::record(ws, uuid))?.map(|bytes| Record::parse(&bytes)).transpose()?;
            match (found, x.workspace_of_handle(ws)) {
                (Some(record), Ok(at)) if record.abandoned_ns == since && !record.deleted => {
                    x.unname(at, uuid, record, None)?
                }
                _ => x.delete(key.to_vec()),
            }
            more |= full && n + 1 == PORTION;
        }
        if more {
            self.sweep_again_soon();
        }
        self.note_touched(&mut x, ends)?;
        for (key, value) in std::mem::take(&mut writer.lazy) {
            match value {
                Some(value) => x.put(key, value),
                None => x.delete(key),
            }
        }
        self.commit_own(writer, cx, x)
    }

    /// Writes down when names of groups were last changed.
    fn note_touched(&self, x: &mut Exec<'_>, ends: bool) -> Result<()> {
        let touched = self.core.shared().touched.all();
        let most = if ends { usize::MAX } else { PORTION };
        if touched.len() > most {
            // The rest before long, others having had their turn.
            self.sweep_again_soon();
        }
        for (ws, group, at_ns) in touched.into_iter().take(most) {
            x.after.touched.push(Touch { ws, group, at_ns: None });
            // The workspace, or the group, may be gone.
            let Ok(at) = x.workspace_of_handle(ws) else { continue };
            if group == ws {
                let mut record = (**x.record(at)).clone();
                record.mtime_ns = at_ns;
                x.set_workspace(ws, Some(record));
            } else if let Some(bytes) = x.get(&keys::record(ws, group))?
                // What cannot be read is told to who asks for it.
                && let Ok(mut record) = Record::parse(&bytes)
            {
                record.mtime_ns = at_ns;
                record.changed_ns = record.changed_ns.max(at_ns);
                x.put_record(ws, group, &mut record);
            }
        }
        Ok(())
    }

    /// Ends the catalog in order: sessions (what is bound to their processes stays: they may live, and come back to the
    /// next catalog), work put off, and a note that nothing was left open. Later submissions fail.
    pub fn close(&self) -> Result<()> {
        let sessions: Vec<Uuid> = {
            let shared = self.core.shared();
            let mut all: Vec<Uuid> = shared.opens.iter().flat_map(|(_, e)| e.slots().map(|s| s.session)).collect();
            all.sort_unstable();
            all.dedup();
            all
        };
        for session in sessions {
            self.leave(session);
        }
        let cx = self.own_cx(Uuid::NIL);
        let mut writer = self.core.writer();
        if writer.closed {
            return Ok(());
        }
        self.settle(&mut writer, &cx);
        // What cannot be sealed keeps nothing else from ending in order. Who may still come back to write goes on in the next catalog, which knows of it.
        self.seal_parted_at_once(&mut writer);
        self.forget(&mut writer, &cx, true)?;
        self.note_temporary(&mut writer, &cx)?;
        let open = self.core.shared().opens.iter().any(|(_, e)| e.written);
        recovery::write(self.core.store(), &self.core.store_record(!open), Room::Last)?;
        writer.closed = true;
        Ok(())
    }

    fn sweep_again_soon(&self) {
        use std::sync::atomic::Ordering::Relaxed;
        self.swept_ns.fetch_sub(SWEEP_NS - SWEEP_ON_NS, Relaxed);
    }

    fn sweep_is_due(&self, now_ns: i64) -> bool {
        use std::sync::atomic::Ordering::Relaxed;
        let last = self.swept_ns.load(Relaxed);
        let due = now_ns.saturating_sub(last) >= SWEEP_NS;
        due && self.swept_ns.compare_exchange(last, now_ns, Relaxed, Relaxed).is_ok()
    }
}

// What is remembered must outlast what may be asked for.
const _: () = assert!(SWEEP_NS < limits::BATCH_MEMORY_NS);
