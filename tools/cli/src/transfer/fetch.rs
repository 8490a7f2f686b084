//! Fetching many collections: small ones together in batches, large ones with several requests in flight.

use std::{
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
};

use ioverbs::{Collection, EntryKind, Error, ExtentKind, Lent, Op, Output, Range, Result, Status, Uuid};
use serde_json::json;

use super::{
    BATCH, BATCH_BYTES, SMALL, SPARSE,
    download::{self, Part},
};
use crate::{
    address::Address,
    ctx::Ctx,
    facts::Facts,
    failure::{Done, Failure, Next, local},
    locate::Spot,
    modes,
    options::IfExists,
    output::{JsonList, json_name},
    progress::Progress,
    quantity::Span,
};

/// One collection to fetch.
struct Wanted {
    spot: Spot,
    uuid: Uuid,
    size: u64,
    address: Address,
    target: PathBuf,
    /// What others may do with it.
    mode: u32,
    is_link: bool,
}

/// Fetches collections one after the other, keeping small ones until there are enough for a batch.
pub(crate) struct Fetcher {
    if_exists: IfExists,
    waiting: Vec<Wanted>,
    waiting_bytes: u64,
    progress: Progress,
    json: JsonList,
    count: u64,
}

impl Fetcher {
    /// Nothing is fetched yet.
    pub(crate) fn new(ctx: &Ctx, what: &str, if_exists: IfExists) -> Fetcher {
        Fetcher {
            if_exists,
            waiting: Vec::new(),
            waiting_bytes: 0,
            progress: ctx.progress(what, None),
            json: JsonList::default(),
            count: 0,
        }
    }

    /// Whether the target is to be written; tells if it is there and must not be.
    fn wants(&self, target: &Path) -> Done<bool> {
        if self.if_exists == IfExists::Replace || std::fs::symlink_metadata(target).is_err() {
            return Ok(true);
        }
        if self.if_exists == IfExists::Skip {
            return Ok(false);
        }
        let error = Error::exists(format!("the file {} is there already", target.display()));
        Err(error).next(|| "--if-exists replace puts the new one in its place".into())
    }

    /// Fetches a collection, or a part of it, into a file.
    pub(crate) fn add(
        &mut self,
        ctx: &mut Ctx,
        spot: Spot,
        facts: &Facts,
        address: Address,
        target: PathBuf,
        span: Span,
    ) -> Done {
        ctx.stop.check()?;
        if !self.wants(&target)? {
            return Ok(());
        }
        let (mode, kind) = (modes::for_local(facts, &target), modes::kind(facts));
        if kind == modes::Kind::Other {
            ctx.warn(format_args!("{address} is no file and no group: left out"));
            return Ok(());
        }
        let is_link = kind == modes::Kind::Link && span == Span::default();
        let wanted = Wanted { spot, uuid: facts.uuid, size: facts.size, address, target, mode, is_link };
        if wanted.size > SMALL || span != Span::default() {
            return self.large(ctx, wanted, span);
        }
        self.waiting_bytes += wanted.size;
        self.waiting.push(wanted);
        if self.waiting.len() >= BATCH || self.waiting_bytes >= BATCH_BYTES as u64 { self.flush(ctx) } else { Ok(()) }
    }

    /// Fetches what waits, and says how it all went.
    pub(crate) fn end(mut self, ctx: &mut Ctx) -> Done {
        self.flush(ctx)?;
        let how = self.progress.end();
        if ctx.global.json {
            ctx.end_list(&self.json)?;
        } else if self.count > 0 {
            ctx.summary(format_args!("{} fetched, {how}", self.count));
        }
        Ok(())
    }

    fn large(&mut self, ctx: &mut Ctx, wanted: Wanted, span: Span) -> Done {
        let target = (&*wanted.target, wanted.mode);
        let fetched = download::to_file(ctx, (&wanted.spot, span), target, &mut self.progress);
        let bytes = fetched.map_err(|e| e.about(&wanted.address))?;
        self.report(ctx, &wanted, bytes)
    }

    fn flush(&mut self, ctx: &mut Ctx) -> Done {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        if waiting.is_empty() {
            return Ok(());
        }
        ctx.stop.check()?;
        // One byte more than was found, so that one that has grown is noticed.
        let mut rooms: Vec<Vec<u8>> = waiting.iter().map(|w| vec![0; w.size as usize + 1]).collect();
        let handles: Vec<Collection> = waiting.iter().map(|w| w.spot.ws.pending(EntryKind::Collection)).collect();
        let mut ops: Vec<Lent<'_>> = Vec::with_capacity(waiting.len() * 4);
        for ((wanted, c), buf) in waiting.iter().zip(&handles).zip(&mut rooms) {
            let range = Range { offset: 0, len: wanted.size + 1 };
            ops.push(wanted.spot.op(c).into());
            ops.push(match wanted.size > SPARSE {
                true => Op::Extents { c: c.clone(), range, max: 4096 }.into(),
                // In the place of the other: the read is the third.
                false => Op::Stat { c: c.clone() }.into(),
            });
            ops.push(Lent::Read { c: c.clone(), offset: 0, buf });
            ops.push(Op::Close { c: c.clone() }.into());
        }
        let statuses = ctx.batch(ops)?;
        self.progress.more(statuses.iter().map(|s| s.bytes).sum());
        for ((wanted, status), room) in waiting.into_iter().zip(statuses.chunks(4)).zip(rooms) {
            let [opened, extents, read, closed] = status else {
                return Err(Error::internal("a batch lost a status").into());
            };
            let result = [opened, read, closed].into_iter().try_for_each(Status::result);
            let n = read.bytes as usize;
            let told = match result {
                Ok(()) if n == room.len() => self.large(ctx, wanted, Span::default()),
                Ok(()) => match write(&wanted, &room[..n], &extents.output) {
                    Ok(()) => {
                        self.progress.at(self.progress.moved() + n as u64);
                        self.report(ctx, &wanted, n as u64)
                    }
                    Err(e) => Err(e.into()),
                },
                Err(e) => Err(Failure::from(e).about(&wanted.address)),
            };
            told.or_else(|e| ctx.tell(e))?;
        }
        Ok(())
    }

    fn report(&mut self, ctx: &mut Ctx, wanted: &Wanted, bytes: u64) -> Done {
        self.count += 1;
        if !ctx.global.json {
            return Ok(());
        }
        let item = json!({
            "address": json_name(&wanted.address.to_bytes()),
            "target": json_name(std::os::unix::ffi::OsStrExt::as_bytes(wanted.target.as_os_str())),
            "uuid": wanted.uuid.to_string(),
            "bytes": bytes,
        });
        self.json.item(&mut ctx.out, &item)
    }
}

/// Writes a small file, holes as holes; or makes a link.
fn write(wanted: &Wanted, bytes: &[u8], extents: &Output) -> Result<()> {
    let failed = |e| local("writing", &wanted.target, e);
    if wanted.is_link {
        return download::to_link(bytes, &wanted.target);
    }
    let part = Part::new(&wanted.target, wanted.mode)?;
    part.file().set_len(bytes.len() as u64).map_err(failed)?;
    let whole = Range { offset: 0, len: bytes.len() as u64 };
    let data: Vec<Range> = match extents {
        Output::Extents(extents) => {
            extents.iter().filter(|e| e.kind == ExtentKind::Data).filter_map(|e| e.range.intersect(&whole)).collect()
        }
        // A store that cannot tell holes from data.
        _ => vec![whole],
    };
    for range in data {
        let piece = &bytes[range.offset as usize..range.end() as usize];
        part.file().write_all_at(piece, range.offset).map_err(failed)?;
    }
    part.finish()
}
