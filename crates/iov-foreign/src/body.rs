//! The bytes of one object at a backend.

use std::sync::Arc;

use iov_store::objects::{AppendKey, Body, Call, Shape, Stage};
use iov_types::{Demand, Error, Evidence, Kind, ObjectId, Outcome, Persistence, Priority, Range, Result, Uuid};

use crate::{
    abi,
    flat::flatten,
    prepared::Prepared,
    table::{Answer, Table, level, number},
};

/// Bytes moved at once where they go through memory of this process.
const PIECE: usize = 1 << 20;

/// What all bodies of a backend have in common.
pub(crate) struct Shared {
    pub(crate) table: Arc<Table>,
    pub(crate) prepared: Prepared,
}

/// An object at a backend.
pub struct ForeignBody {
    shared: Arc<Shared>,
    id: ObjectId,
    /// Whether it is there.
    made: bool,
    size: u64,
    /// As the backend tells it; 0 = it does not.
    allocated: u64,
    version: u64,
    epoch: u64,
    mtime_ns: i64,
    /// The stage that the backend holds, and how many of its changes.
    ready: Option<(Uuid, usize)>,
}

impl Shared {
    /// An operation on an object; the caller fills in the rest.
    pub(crate) fn op(&self, kind: u32, id: ObjectId, call: Call<'_>) -> abi::Op {
        let mut op = abi::op(kind);
        op.object = abi::Object { collection: id.collection.0, slot: id.slot };
        op.deadline_ns = call.cx.deadline_ns;
        op.durability = number(call.demand.durability);
        op.priority = u8::from(call.cx.priority == Priority::Background);
        op
    }

    /// Carries out an operation without memory.
    pub(crate) fn plain(&self, op: abi::Op) -> Result<Answer> {
        debug_assert!(op.buf.is_null());
        // SAFETY: there is no memory.
        unsafe { self.table.call(op) }
    }
}

/// An id for one append of a batch: as old as the batch, and as unlikely to be met again.
fn append_id((batch, sequence): AppendKey) -> Uuid {
    let mut bytes = batch.0;
    let mut low =
        u64::from_be_bytes([bytes[8], bytes[9], bytes[10], bytes[11], bytes[12], bytes[13], bytes[14], bytes[15]]);
    // The two bits of the variant stay.
    let variant = low & (3 << 62);
    low = variant | (low.wrapping_add(sequence.wrapping_mul(0x9e37_79b9_7f4a_7c15)) & !(3 << 62));
    bytes[8..].copy_from_slice(&low.to_be_bytes());
    Uuid(bytes)
}

impl ForeignBody {
    pub(crate) fn new(shared: Arc<Shared>, id: ObjectId) -> ForeignBody {
        ForeignBody { shared, id, made: false, size: 0, allocated: 0, version: 0, epoch: 0, mtime_ns: 0, ready: None }
    }

    /// One that is there, as `STAT` has told.
    pub(crate) fn there(shared: Arc<Shared>, id: ObjectId, stat: &Answer) -> ForeignBody {
        let mut body = ForeignBody { made: true, size: stat.bytes, ..ForeignBody::new(shared, id) };
        body.note(stat);
        body
    }

    fn op(&self, kind: u32, call: Call<'_>) -> abi::Op {
        let mut op = self.shared.op(kind, self.id, call);
        op.expect_epoch = self.epoch;
        op
    }

    /// What else an answer says of the object; zero says nothing.
    fn note(&mut self, answer: &Answer) {
        self.version = self.version.max(answer.version);
        self.epoch = self.epoch.max(answer.epoch);
        self.allocated = answer.allocated;
        self.mtime_ns = answer.mtime_ns;
    }

    /// Whether what was demanded was reached.
    fn check_level(&self, call: Call<'_>, answer: &Answer) -> Result<()> {
        let asked = call.demand.durability.filter(|level| *level > Persistence::Volatile);
        match asked {
            Some(level) if answer.durability.is_none_or(|reached| reached < level) => Err(Error::internal(format!(
                "backend {} has acknowledged without reaching persistence={}",
                self.shared.table.name(),
                level.text()
            ))
            .with_outcome(Outcome::Unknown)),
            _ => Ok(()),
        }
    }

    /// An operation without memory that changes the object.
    fn change(&mut self, call: Call<'_>, op: abi::Op) -> Result<Answer> {
        let result = self.shared.plain(op);
        self.changed(call, result)
    }

    /// What comes of a change; where it is not known what happened, the object is looked at.
    fn changed(&mut self, call: Call<'_>, result: Result<Answer>) -> Result<Answer> {
        let result = result.and_then(|answer| self.check_level(call, &answer).map(|()| answer));
        match &result {
            Ok(answer) => self.note(answer),
            Err(e) if e.outcome() != Outcome::NotApplied => self.look(call),
            Err(_) => {}
        }
        result
    }

    /// Asks how the object is. If even that fails, the next one who asks hears of it.
    fn look(&mut self, call: Call<'_>) {
        if let Ok(stat) = self.shared.plain(self.shared.op(abi::STAT, self.id, call)) {
            self.size = stat.bytes;
            self.note(&stat);
        }
    }

    /// Makes the object before its first change.
    fn ensure(&mut self, call: Call<'_>) -> Result<()> {
        if !self.made {
            self.shared.plain(self.shared.op(abi::CREATE, self.id, call))?;
            self.made = true;
        }
        Ok(())
    }

    /// Hands bytes to the backend, in pieces that it takes.
    fn send(&mut self, call: Call<'_>, kind: u32, batch: Uuid, offset: u64, data: &[u8]) -> Result<()> {
        let mut at = offset;
        let mut rest = data;
        while !rest.is_empty() {
            let (piece, later) = rest.split_at(self.piece(call, at, rest.len()));
            rest = later;
            let mut op = self.op(kind, call);
            op.batch = batch.0;
            op.offset = at;
            op.len = piece.len() as u64;
            op.buf = piece.as_ptr().cast_mut().cast();
            // SAFETY: the bytes live until the evidence has come; the backend only reads them.
            let result = unsafe { self.call_with(call, op, piece) };
            let result = if at > offset { result.map_err(|e| e.with_outcome(Outcome::Unknown)) } else { result };
            self.changed(call, result)?;
            at += op.len;
        }
        Ok(())
    }

    fn zeros(&mut self, call: Call<'_>, range: Range) -> Result<()> {
        let zeros = vec![0; PIECE.min(range.len as usize)];
        let mut at = range.offset;
        while at < range.end() {
            let n = zeros.len().min((range.end() - at) as usize);
            let sent = self.send(call, abi::WRITE, Uuid::NIL, at, &zeros[..n]);
            sent.map_err(|e| if at > range.offset { e.with_outcome(Outcome::Unknown) } else { e })?;
            at += n as u64;
        }
        Ok(())
    }

    /// How much to hand over at once: as much as is taken, and whole units (M1).
    fn piece(&self, call: Call<'_>, at: u64, len: usize) -> usize {
        let end = at.saturating_add(self.shared.table.most()).min(at + len as u64);
        let whole = end.checked_div(call.demand.unit).map_or(end, |units| units * call.demand.unit);
        ((if whole > at && end < at + len as u64 { whole } else { end }) - at) as usize
    }

    /// Hands bytes over, with their checksum where they must last; all of them must be taken.
    ///
    /// # Safety
    /// `op` has the address and length of `bytes`, which the backend only reads.
    unsafe fn call_with(&self, call: Call<'_>, mut op: abi::Op, bytes: &[u8]) -> Result<Answer> {
        if call.demand.durability >= Some(Persistence::Durable) {
            op.checksum_kind = abi::CHECKSUM_CRC32C;
            op.checksum = u64::from(crc_fast::crc32_iscsi(bytes) as u32);
        }
        // SAFETY: promised by the caller.
        let answer = unsafe { self.shared.table.call(op) }?;
        if answer.bytes != op.len {
            let why = format!("the backend took {} of {} bytes", answer.bytes, op.len);
            return Err(Error::unavailable(why).with_outcome(Outcome::Unknown));
        }
        Ok(answer)
    }

    fn entry(&self, stage: Uuid) -> (ObjectId, Uuid) {
        (self.id, stage)
    }

    /// Shows or drops what the backend holds of a stage.
    fn end_stage(&mut self, call: Call<'_>, kind: u32, stage: Uuid) -> Result<()> {
        let mut op = self.op(kind, call);
        op.batch = stage.0;
        self.change(call, op)?;
        self.shared.prepared.remove(self.entry(stage));
        self.ready = None;
        Ok(())
    }
}

impl Body for ForeignBody {
    fn size(&self) -> u64 {
        self.size
    }

    fn allocated(&self) -> u64 {
        if self.allocated > 0 { self.allocated } else { self.size }
    }

    fn shape(&self) -> Shape {
        Shape::dense(self.size)
    }

    fn read(&self, call: Call<'_>, offset: u64, out: &mut [u8]) -> Result<usize> {
        let len = self.size.saturating_sub(offset).min(out.len() as u64) as usize;
        let most = usize::try_from(self.shared.table.most()).unwrap_or(usize::MAX).max(1);
        let mut at = offset;
        for piece in out[..len].chunks_mut(most) {
            let mut op = self.op(abi::READ, call);
            op.durability = 0;
            op.offset = at;
            op.len = piece.len() as u64;
            op.buf = piece.as_mut_ptr().cast();
            // SAFETY: the memory lives until the evidence has come, and is this call's alone.
            let answer = unsafe { self.shared.table.call(op) }?;
            if answer.bytes != op.len {
                return Err(Error::corrupt(format!(
                    "backend {} has {} bytes, and gave {} of the {} from {at} on",
                    self.shared.table.name(),
                    self.size,
                    answer.bytes,
                    op.len
                )));
            }
            if answer.crc32c.is_some_and(|sum| sum != crc_fast::crc32_iscsi(piece) as u32) {
                return Err(Error::corrupt(format!(
                    "backend {}: bytes from {at} on are not those that its checksum is of",
                    self.shared.table.name()
                ))
                .with_clause(iov_types::Clause::I1));
            }
            at += op.len;
        }
        Ok(len)
    }

    fn reserve_space(&mut self, range: Range) -> Result<()> {
        match self.shared.table.space() {
            Some((_, free)) if range.len > free => Err(Error::exhausted(format!(
                "backend {} has {free} bytes free, and {} are to be reserved",
                self.shared.table.name(),
                range.len
            ))),
            _ => Ok(()),
        }
    }

    fn write(&mut self, call: Call<'_>, offset: u64, data: &[u8]) -> Result<()> {
        let range = Range::new(offset, data.len() as u64)?;
        self.ensure(call)?;
        self.send(call, abi::WRITE, Uuid::NIL, offset, data)?;
        self.size = self.size.max(range.end());
        Ok(())
    }

    fn append(&mut self, call: Call<'_>, data: &[u8], key: Option<AppendKey>) -> Result<u64> {
        if !self.shared.table.can(abi::APPEND) || data.len() as u64 > self.shared.table.most() {
            let offset = self.size;
            return self.write(call, offset, data).map(|()| offset);
        }
        self.ensure(call)?;
        let mut op = self.op(abi::APPEND, call);
        op.batch = key.map_or(Uuid::NIL, append_id).0;
        op.len = data.len() as u64;
        op.buf = data.as_ptr().cast_mut().cast();
        // SAFETY: the bytes live until the evidence has come; the backend only reads them.
        let result = unsafe { self.call_with(call, op, data) };
        let answer = self.changed(call, result)?;
        let range = Range::new(answer.offset, op.len).map_err(|_| {
            Error::internal("a backend appended behind the largest offset").with_outcome(Outcome::Unknown)
        })?;
        self.size = self.size.max(range.end());
        Ok(answer.offset)
    }

    fn truncate(&mut self, call: Call<'_>, size: u64) -> Result<()> {
        Range::new(size, 0)?;
        self.ensure(call)?;
        let mut op = self.op(abi::TRUNCATE, call);
        op.len = size;
        let result = self.change(call, op);
        if result.is_ok() {
            self.size = size;
        }
        result.map(drop)
    }

    fn punch(&mut self, call: Call<'_>, range: Range) -> Result<()> {
        self.ensure(call)?;
        let Some(range) = range.intersect(&Range { offset: 0, len: self.size }) else { return Ok(()) };
        if self.shared.table.can(abi::PUNCH) {
            let mut op = self.op(abi::PUNCH, call);
            (op.offset, op.len) = (range.offset, range.len);
            match self.change(call, op) {
                // As on a file system without holes.
                Err(e) if e.kind() == Kind::Unsupported => {}
                done => return done.map(drop),
            }
        }
        self.zeros(call, range)
    }

    fn allocate(&mut self, call: Call<'_>, range: Range, keep_size: bool) -> Result<()> {
        self.reserve_space(range)?;
        self.ensure(call)?;
        if keep_size || range.end() <= self.size {
            return Ok(());
        }
        // Bytes that are there have room; to a length alone no backend promises any.
        self.zeros(call, Range { offset: self.size, len: range.end() - self.size })?;
        self.size = range.end();
        Ok(())
    }

    fn prepare(&mut self, call: Call<'_>, id: Uuid, staged: &Stage) -> Result<()> {
        if self.ready == Some((id, staged.changes().len())) {
            return Ok(());
        }
        // What it holds already is of fewer changes: it begins anew.
        self.unprepare(call, id)?;
        let flat = flatten(staged, self.size);
        self.ensure(call)?;
        self.shared.prepared.add(self.entry(id), call.demand.durability >= Some(Persistence::Durable))?;
        let mut buf = Vec::new();
        for range in &flat.ranges {
            let mut at = range.offset;
            while at < range.end() {
                buf.resize(PIECE.min((range.end() - at) as usize), 0);
                let n = staged.read(self, call, at, &mut buf)?;
                // What lies behind the end is of a cut.
                if n == 0 {
                    break;
                }
                self.send(call, abi::STAGE, id, at, &buf[..n])?;
                at += n as u64;
            }
        }
        if let Some(size) = flat.cut {
            let mut op = self.op(abi::STAGE, call);
            (op.batch, op.len) = (id.0, size);
            self.change(call, op)?;
        }
        self.ready = Some((id, staged.changes().len()));
        Ok(())
    }

    fn publish(&mut self, call: Call<'_>, id: Uuid, staged: &mut Stage) -> Result<Vec<(AppendKey, u64)>> {
        // More may have been staged behind the freeze.
        self.prepare(call, id, staged)?;
        let flat = flatten(staged, self.size);
        self.end_stage(call, abi::PUBLISH, id)?;
        self.size = flat.size;
        Ok(flat.appended)
    }

    fn settle(&mut self, call: Call<'_>, id: Uuid) -> Result<bool> {
        if !self.shared.prepared.has(self.entry(id)) {
            return Ok(false);
        }
        // What it was to survive is not known any more.
        let best = level(self.shared.table.capability().durability);
        let demand = Demand { durability: best.filter(|best| *best >= Persistence::Durable), ..call.demand.clone() };
        let call = Call { demand: &demand, ..call };
        self.end_stage(call, abi::PUBLISH, id)?;
        self.look(call);
        Ok(true)
    }

    fn unprepare(&mut self, call: Call<'_>, id: Uuid) -> Result<()> {
        match self.shared.prepared.has(self.entry(id)) {
            true => self.end_stage(call, abi::DISCARD, id),
            false => Ok(()),
        }
    }

    fn sync(&mut self, call: Call<'_>) -> Result<()> {
        if !self.made {
            return Ok(());
        }
        let op = self.op(abi::SYNC, call);
        let answer = self.shared.plain(op)?;
        self.check_level(call, &answer)
    }

    fn seal(&mut self, call: Call<'_>) -> Result<()> {
        self.ensure(call)?;
        let op = self.op(abi::SEAL, call);
        self.change(call, op).map(drop)
    }

    fn fence(&mut self, call: Call<'_>, epoch: u64) -> Result<()> {
        self.ensure(call)?;
        let mut op = self.op(abi::FENCE, call);
        op.expect_epoch = epoch;
        self.change(call, op)?;
        self.epoch = epoch;
        Ok(())
    }

    fn create(&mut self, call: Call<'_>) -> Result<()> {
        self.ensure(call)
    }

    fn remove(&mut self, call: Call<'_>) -> Result<()> {
        if self.made {
            self.shared.plain(self.shared.op(abi::REMOVE, self.id, call))?;
            self.shared.prepared.remove_object(self.id);
        }
        *self = ForeignBody::new(self.shared.clone(), self.id);
        Ok(())
    }

    fn earlier(&self) -> Evidence {
        Evidence { version: self.version, epoch: self.epoch, mtime_ns: self.mtime_ns, ..Evidence::default() }
    }
}
