//! Bytes that live in the record of a small collection: the catalog reads and writes them, in the same wave in which
//! targets would.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use iov_store::Answer;
use iov_types::{
    Counters, Error, Kind, Outcome, Persistence, Result, Uuid,
    catalog::{CatalogOp, CatalogReply, Submission},
    limits,
};

use super::{Exec, Phase, sealed::copy_out};
use crate::{
    Collection, Op, OpState,
    op::{Output, Status},
    request::RequestInner,
};

/// Most bytes and operations of one submission: a frame has a limit, and nobody else is served meanwhile.
const BYTES: u64 = 16 << 20;
const OPS: usize = 64 << 10;
/// So often who has a collection open changes the bytes in its record, which is a question each time. Then they move to a target, which costs as much as some ten of them, and
/// where they are changed without one.
const CHANGES: u32 = 64;

impl Exec {
    /// Sends what of the present wave the catalog can do itself, or the first part of it; `false` if there is nothing of
    /// that kind.
    pub(super) fn send_inline(&mut self, ops: &[usize], request: &Arc<RequestInner>) -> bool {
        let mut asked = Vec::new();
        let mut sent = Vec::new();
        if !ops.iter().any(|i| self.ops[*i].handle().is_some_and(Collection::is_inline)) {
            return false;
        }
        ops.iter().for_each(|i| self.wear(*i));
        // The order of operations on the same bytes is kept by whoever runs them, so that it is one of the two.
        let at_target: HashSet<Uuid> =
            ops.iter().filter(|i| self.inline_handle(**i).is_none()).flat_map(|i| self.touches(*i)).collect();
        let mut bytes = 0;
        for &i in ops {
            let Some(c) = self.inline_handle(i) else { continue };
            if c.uuid().is_ok_and(|uuid| at_target.contains(&uuid)) {
                continue;
            }
            let (more, of_them) = self.inline_cost(i);
            if !asked.is_empty() && (bytes + more > BYTES || asked.len() + of_them > OPS) {
                // The rest comes next, in its order.
                break;
            }
            bytes += more;
            match self.inline_ops(i, &c) {
                Ok(more) => {
                    sent.extend(more.iter().map(|_| Some(i)));
                    asked.extend(more);
                }
                Err(e) => self.end(i, Status::failed(e)),
            }
        }
        if asked.is_empty() {
            return false;
        }
        for (i, op) in self.along_with(&sent) {
            sent.push(Some(i));
            asked.push(op);
        }
        self.sent = sent;
        self.phase = Phase::Inline;
        self.submit_facts(asked, Submission::Each, request);
        true
    }

    /// Attributes that are set behind writes which are sent to the catalog, and the close: it takes all of it in this order, so that they go
    /// with them. Where the bytes have moved meanwhile, they are sent once more behind those.
    fn along_with(&self, sent: &[Option<usize>]) -> Vec<(usize, CatalogOp)> {
        let writes = |i: &usize| matches!(self.ops[*i], Op::Write { .. } | Op::Append { .. } | Op::Truncate { .. });
        let sent: HashSet<usize> = sent.iter().flatten().copied().filter(writes).collect();
        let mut along = Vec::new();
        if !self.apart || sent.is_empty() {
            return along;
        }
        // Whether all that comes before on a collection is among what is sent, or has ended.
        let mut clear: HashMap<Uuid, bool> = HashMap::new();
        for (i, op) in self.ops.iter().enumerate() {
            let pending = self.status[i].state == OpState::Pending;
            let Some(uuid) = op.handle().and_then(|c| c.uuid().ok()) else {
                if pending {
                    // It may look at any of them, or take any away.
                    clear.values_mut().for_each(|clear| *clear = false);
                }
                continue;
            };
            match op {
                _ if sent.contains(&i) => drop(clear.entry(uuid).or_insert(true)),
                Op::SetAttr { .. } if pending && clear.get(&uuid) == Some(&true) => {
                    along.extend(self.catalog_op(i).ok().flatten().map(|op| (i, op)));
                }
                Op::Close { c } if pending && clear.insert(uuid, false) == Some(true) && self.only_ends(c) => {
                    if let Ok(Some(op)) = self.catalog_op(i) {
                        self.telling_catalog(i);
                        along.push((i, op));
                    }
                }
                _ if pending => drop(clear.insert(uuid, false)),
                _ => {}
            }
        }
        along
    }

    /// Whether closing it is to tell the catalog that it is closed, and nothing else.
    fn only_ends(&self, c: &Collection) -> bool {
        let volatile = self.contract(c).is_ok_and(|contract| contract.durability < Persistence::Durable);
        volatile && !c.is_dirty() && !c.is_unsynced() && !c.has_stage() && c.broken().is_ok()
    }

    /// Whether it writes all that a collection gets, as the close or what publishes it comes with it: the catalog then takes somewhat more than it keeps, and
    /// writes it at the target by itself.
    fn ends_behind(&self, i: usize, c: &Collection) -> bool {
        let of_it = |op: &Op| op.handle().is_some_and(|other| other.uuid() == c.uuid());
        let behind = self.ops.get(i + 1..).unwrap_or_default();
        let mut rest = behind.iter().skip_while(|op| matches!(op, Op::SetAttr { .. }) && of_it(op));
        matches!(&self.ops[i], Op::Write { chunks, .. } if matches!(chunks[..], [(0, _)]))
            && self.apart
            && rest.next().is_some_and(|op| matches!(op, Op::Close { .. } | Op::Commit { .. }) && of_it(op))
            && self.only_ends(c)
    }

    /// The collections whose bytes an operation reads or writes.
    fn touches(&self, i: usize) -> impl Iterator<Item = Uuid> {
        let source = if let Op::Copy { src, .. } = &self.ops[i] { src.uuid().ok() } else { None };
        self.ops[i].handle().and_then(|c| c.uuid().ok()).into_iter().chain(source)
    }

    /// The handle of an operation whose bytes the catalog keeps, where the operation is one that it knows.
    fn inline_handle(&self, i: usize) -> Option<Collection> {
        let (c, chunks) = match &self.ops[i] {
            Op::Read { c, chunks } | Op::Write { c, chunks } => (c, &chunks[..]),
            Op::Truncate { c, .. } if !self.session.0.cut_elsewhere.load(Ordering::Relaxed) => (c, &[][..]),
            // What is not to be done twice only a target remembers.
            Op::Append { c, .. } if !self.append_elsewhere() && self.append_key(i).is_none() => (c, &[][..]),
            _ => return None,
        };
        if !c.is_inline() || c.has_stage() || self.stage.is_some() {
            return None;
        }
        if matches!(self.ops[i], Op::Write { .. } | Op::Append { .. } | Op::Truncate { .. }) {
            let Ok(contract) = self.contract(c) else { return Some(c.clone()) };
            // What a batch promises beyond its handle, whoever moves the bytes later would not know of.
            if contract.durability >= Persistence::Durable
                && self.ready_contract(c).is_ok_and(|own| own.durability < Persistence::Durable)
            {
                return None;
            }
            // Beyond the limit they move, and a target takes what is written.
            let limit = self.session.0.sides.catalog.capability().inline_bytes;
            let limit = if self.ends_behind(i, c) { limit.max(limits::WRITE_THROUGH) } else { limit };
            let limit = if contract.max_size == 0 { limit } else { limit.min(contract.max_size) };
            let fits = |offset: u64, len: usize| offset.checked_add(len as u64).is_some_and(|end| end <= limit);
            let end = match &self.ops[i] {
                Op::Truncate { size, .. } => *size,
                Op::Append { memory, .. } => memory.len() as u64,
                _ => 0,
            };
            if end > limit || !chunks.iter().all(|(offset, memory)| fits(*offset, memory.len())) {
                return None;
            }
        }
        let (bytes, ops) = self.inline_cost(i);
        (bytes <= BYTES && ops <= OPS).then(|| c.clone())
    }

    /// Counts a change of bytes in a record. After many a target is asked: whoever touches something there has it moved first.
    fn wear(&self, i: usize) {
        let (Op::Write { c, .. } | Op::Append { c, .. } | Op::Truncate { c, .. }) = &self.ops[i] else { return };
        let limit = self.session.0.sides.catalog.capability().inline_bytes;
        // What is promised to stay small costs no request for data, ever (H2); and what is to outlast a loss of power is written down sooner here.
        let may_move = |max: u64| max == 0 || max > limit;
        if c.is_inline()
            && self.ready_contract(c).is_ok_and(|own| may_move(own.max_size) && own.durability < Persistence::Durable)
            && c.mark_inline_change() >= CHANGES
        {
            c.mark_moved();
        }
    }

    /// What to note where the catalog is of a release that cannot append to bytes in records, or cannot cut them.
    fn elsewhere(&self, appends: bool) -> &AtomicBool {
        let session = &self.session.0;
        if appends { &session.append_elsewhere } else { &session.cut_elsewhere }
    }

    fn append_elsewhere(&self) -> bool {
        self.elsewhere(true).load(Ordering::Relaxed)
    }

    /// The bytes that an operation takes to the catalog or brings back, at most, and how many operations it makes.
    fn inline_cost(&self, i: usize) -> (u64, usize) {
        let limit = self.session.0.sides.catalog.capability().inline_bytes;
        match &self.ops[i] {
            Op::Read { c, .. } if let Some(size) = self.whole(c) => (size, 1),
            Op::Read { chunks, .. } => (chunks.iter().map(|(_, m)| limit.min(m.len() as u64)).sum(), chunks.len()),
            Op::Write { chunks, .. } => (chunks.iter().map(|(_, m)| m.len() as u64).sum(), chunks.len()),
            Op::Append { memory, .. } => (memory.len() as u64, 1),
            Op::Truncate { .. } => (0, 1),
            _ => (0, 0),
        }
    }

    fn inline_ops(&self, i: usize, c: &Collection) -> Result<Vec<CatalogOp>> {
        let (ws, uuid) = (c.workspace().uuid(), c.uuid()?);
        match &self.ops[i] {
            Op::Read { chunks, .. } => {
                self.data_handle(c, false)?;
                if let Some(size) = self.whole(c) {
                    return Ok(vec![CatalogOp::Read { ws, uuid, offset: 0, len: size }]);
                }
                let read = |offset: u64, len: usize| CatalogOp::Read { ws, uuid, offset, len: len as u64 };
                Ok(chunks.iter().map(|(offset, memory)| read(*offset, memory.len())).collect())
            }
            Op::Write { chunks, .. } => {
                let contract = self.data_handle(c, true)?;
                self.may_overwrite(&contract, i)?;
                let write = |offset: u64, data: &[u8]| CatalogOp::Write { ws, uuid, offset, data: data.to_vec() };
                Ok(chunks.iter().map(|(offset, memory)| write(*offset, memory.bytes())).collect())
            }
            Op::Truncate { size, .. } => {
                let contract = self.data_handle(c, true)?;
                self.may_overwrite(&contract, i)?;
                Ok(vec![CatalogOp::Truncate { ws, uuid, size: *size }])
            }
            Op::Append { memory, .. } => {
                self.data_handle(c, true)?;
                Ok(vec![CatalogOp::Append { ws, uuid, data: memory.bytes().to_vec() }])
            }
            _ => Err(Error::internal("not an operation on bytes")),
        }
    }

    /// What the catalog answered. What it sends to a target goes there in the next step of the same wave.
    pub(super) fn inline_arrived(&mut self, answer: Answer) {
        self.phase = Phase::Unsent;
        let sent = std::mem::take(&mut self.sent);
        let any = |is: fn(&Op) -> bool| sent.iter().flatten().any(|i| is(&self.ops[*i]));
        let appends = any(|op| matches!(op, Op::Append { .. }));
        let cuts = any(|op| matches!(op, Op::Truncate { .. }));
        let mut replies = match answer {
            Ok(replies) => replies.into_iter(),
            Err(e) if (cuts || appends) && e.kind() == Kind::Version => {
                // A daemon of an older release, which has done nothing of it: a target does. Appends are younger than cuts.
                let closes = sent.iter().flatten().filter(|i| matches!(self.ops[**i], Op::Close { .. }));
                closes.for_each(|i| self.not_started(*i));
                return self.elsewhere(appends).store(true, Ordering::Relaxed);
            }
            Err(e) => {
                sent.iter().flatten().for_each(|i| self.not_taken(*i, &e));
                vec![Err(e); sent.len()].into_iter()
            }
        };
        let mut by_op: Vec<(usize, Vec<Result<CatalogReply>>)> = Vec::new();
        for i in sent.into_iter().flatten() {
            let left_out = || Err(Error::internal("the catalog left out a reply").with_outcome(Outcome::Unknown));
            let reply = replies.next().unwrap_or_else(left_out);
            match by_op.last_mut() {
                Some((last, list)) if *last == i => list.push(reply),
                _ => by_op.push((i, vec![reply])),
            }
        }
        // Of which collections the bytes are elsewhere, so that what was sent along has to come behind them once more.
        let mut moved = HashSet::new();
        for (i, mut replies) in by_op {
            let uuid = self.ops[i].handle().and_then(|c| c.uuid().ok());
            if !matches!(self.ops[i], Op::SetAttr { .. } | Op::Close { .. }) {
                match self.inline_status(i, replies) {
                    Some(status) => self.end(i, status),
                    None => moved.extend(uuid),
                }
                continue;
            }
            match replies.pop() {
                Some(reply) if !uuid.is_some_and(|uuid| moved.contains(&uuid)) => drop(self.early.insert(i, reply)),
                Some(_) if matches!(self.ops[i], Op::Close { .. }) => self.not_started(i),
                Some(Ok(_)) => drop(self.repeats.insert(i)),
                _ => {}
            }
        }
    }

    /// `None`: the bytes have moved, nothing of it was done.
    fn inline_status(&mut self, i: usize, mut replies: Vec<Result<CatalogReply>>) -> Option<Status> {
        let c = self.ops[i].handle()?.clone();
        if replies.iter().any(|r| matches!(r, Ok(CatalogReply::Moved))) {
            c.mark_moved();
            return None;
        }
        let (mut bytes, mut output) = (0, Output::None);
        let mut error = None;
        let whole = self.whole(&c).filter(|_| matches!(self.ops[i], Op::Read { .. }));
        let whole = whole.map(|size| match replies.pop() {
            Some(Ok(CatalogReply::Bytes(all))) => self.keep_whole(&c, size, all),
            Some(Err(e)) => Err(e),
            _ => Err(Error::internal("a read was not answered by bytes")),
        });
        match &mut self.ops[i] {
            Op::Read { chunks, .. } if let Some(whole) = whole => {
                match whole {
                    Ok(all) => bytes = copy_out(&all, chunks),
                    Err(e) => error = Some(e),
                }
                Counters::add(&self.session.counters().bytes_read, bytes);
            }
            Op::Read { chunks, .. } => {
                for ((_, memory), reply) in chunks.iter_mut().zip(replies) {
                    match reply {
                        Ok(CatalogReply::Bytes(read)) if read.len() <= memory.len() => {
                            memory.bytes_mut()[..read.len()].copy_from_slice(&read);
                            bytes += read.len() as u64;
                        }
                        Ok(_) => error = error.or(Some(Error::internal("the catalog read more than was asked for"))),
                        Err(e) => error = error.or(Some(e)),
                    }
                }
                Counters::add(&self.session.counters().bytes_read, bytes);
            }
            Op::Write { chunks, .. } => {
                let end = chunks.iter().map(|(offset, memory)| offset.saturating_add(memory.len() as u64)).max();
                if end.is_some_and(|end| end > self.session.0.sides.catalog.capability().inline_bytes) {
                    c.mark_moved();
                }
                for ((_, memory), reply) in chunks.iter().zip(replies) {
                    match reply {
                        Ok(_) => bytes += memory.len() as u64,
                        Err(e) => error = error.or(Some(e)),
                    }
                }
                Counters::add(&self.session.counters().bytes_written, bytes);
            }
            op => {
                let (appended, is_append) = match op {
                    Op::Append { memory, .. } => (memory.len() as u64, true),
                    _ => (0, false),
                };
                match replies.pop() {
                    Some(Ok(CatalogReply::Appended(offset))) if is_append => {
                        (bytes, output) = (appended, Output::Offset(offset));
                        Counters::add(&self.session.counters().bytes_written, bytes);
                    }
                    Some(Ok(_)) if !is_append => {}
                    Some(Err(e)) if e.kind() == Kind::Version => {
                        // A daemon of an older release: a target does it.
                        self.elsewhere(is_append).store(true, Ordering::Relaxed);
                        return None;
                    }
                    Some(Err(e)) => error = Some(e),
                    _ => error = Some(Error::internal("an append was not answered by where it is")),
                }
            }
        }
        Some(match error {
            None => Status::ok(bytes, output),
            Some(e) => {
                if e.kind() == Kind::Corrupt && self.contract(&c).is_ok_and(|k| k.durability >= Persistence::Durable) {
                    c.mark_broken(&e);
                }
                Status { bytes, ..Status::failed(e) }
            }
        })
    }

    /// What of the present wave has no status yet.
    pub(super) fn unanswered(&self, ops: Vec<usize>) -> Vec<usize> {
        ops.into_iter().filter(|i| self.status[*i].state == OpState::Pending).collect()
    }
}
