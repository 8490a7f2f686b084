//! Filling collections from files: each is made without a name, filled, compared with its checksum, closed, and named at the
//! end, so that nobody sees half of one.

use std::{
    fs::File,
    io::Read,
    os::unix::fs::{FileExt, MetadataExt},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use ioverbs::{Collection, EntryKind, Error, Lent, Mutability, Name, Op, Parent, Range, Result, Status, Uuid, Which};
use serde_json::json;

use super::{
    records::{LinkLine, MemberLine},
    restore::{Restore, attr_of, is_taken},
    sums::Sum,
};
use crate::{
    ctx::Ctx,
    facts::close_op,
    failure::{Done, Failure, Next, local},
    locate::find_names,
    options::IfExists,
    output::json_name,
    transfer::{
        BATCH, BATCH_BYTES, PIECE, SMALL, SPARSE,
        extents::{of_file, read_whole, sum},
        pool,
        publish::{Outcome, Unnamed, discard, publish, replace},
    },
};

/// A file that is at hand as a whole.
struct Small<'a> {
    line: &'a MemberLine,
    bytes: Vec<u8>,
}

/// A collection that is complete, and has no name yet.
struct Made<'a> {
    line: &'a MemberLine,
    uuid: Uuid,
    bytes: u64,
}

enum Content {
    Small(Vec<u8>),
    Large(File, u64),
}

impl<'a> Restore<'a> {
    /// All of them, then the further names of those that have several.
    pub(super) fn collections(&mut self, ctx: &mut Ctx) -> Done {
        let tree = self.tree;
        let (mut waiting, mut bytes) = (Vec::new(), 0);
        for lines in tree.collections.chunks(BATCH) {
            for line in self.wanted(ctx, lines)? {
                ctx.stop.check()?;
                match self.content(line) {
                    Ok(Content::Small(content)) => {
                        bytes += content.len();
                        waiting.push(Small { line, bytes: content });
                    }
                    Ok(Content::Large(file, size)) => {
                        let made = self.large(ctx, line, file, size);
                        let told = made.and_then(|made| self.name(ctx, vec![made]));
                        self.or_tell(ctx, line, told)?;
                    }
                    Err(e) => self.or_tell(ctx, line, Err(e))?,
                }
                if waiting.len() >= BATCH || bytes >= BATCH_BYTES {
                    self.small(ctx, std::mem::take(&mut waiting), true)?;
                    bytes = 0;
                }
            }
        }
        self.small(ctx, waiting, true)?;
        for link in &tree.links {
            ctx.stop.check()?;
            if let Err(e) = self.link(ctx, link) {
                ctx.tell(e.about(format_args!("{}/{:?}", self.ws.name(), link.name)))?;
            }
        }
        Ok(())
    }

    fn or_tell(&self, ctx: &mut Ctx, line: &MemberLine, done: Done) -> Done {
        done.or_else(|e| ctx.tell(e.about(self.address(line))))
    }

    /// Those of some lines that are to be stored: a name that is taken is told, or skipped, before a byte is read.
    fn wanted(&mut self, ctx: &mut Ctx, lines: &'a [MemberLine]) -> Done<Vec<&'a MemberLine>> {
        let mut by_group: Vec<(Uuid, Vec<Name>)> = Vec::new();
        for line in lines {
            let (Some(name), Some(group)) = (&line.name, self.group_of(line.parent)?) else { continue };
            match by_group.iter_mut().find(|(uuid, _)| *uuid == group) {
                Some((_, names)) => names.push(name.clone()),
                None => by_group.push((group, vec![name.clone()])),
            }
        }
        let mut taken = std::collections::HashSet::new();
        for (group, names) in by_group.iter().filter(|_| self.how.if_exists != IfExists::Replace) {
            let found = find_names(&self.ws, *group, names, &[])?;
            taken.extend(found.into_iter().filter_map(|found| Some((*group, found.name?))));
        }
        let mut wanted = Vec::with_capacity(lines.len());
        for line in lines {
            let Some(group) = self.group_of(line.parent)? else {
                let error = Error::not_found("its group could not be made");
                self.or_tell(ctx, line, Err(error.into()))?;
                continue;
            };
            let is_taken = line.name.as_ref().is_some_and(|name| taken.contains(&(group, name.clone())));
            match (is_taken, self.how.if_exists) {
                (true, IfExists::Skip) => self.told(ctx, line, line.uuid, 0, Outcome::Skipped)?,
                (true, _) => self.or_tell(ctx, line, Err(there()))?,
                (false, _) => wanted.push(line),
            }
        }
        Ok(wanted)
    }

    fn group_of(&self, parent: Uuid) -> Result<Option<Uuid>> {
        self.parent(parent).map(|group| group.as_ref().map_or(Ok(Uuid::NIL), Collection::uuid)).transpose()
    }

    fn path(&self, file: &Path) -> PathBuf {
        self.tree.root.join(file)
    }

    fn content(&self, line: &MemberLine) -> Done<Content> {
        if let Some(error) = &line.error {
            return Err(Error::lost(format!("it could not be exported ({error}), and is not in the export")).into());
        }
        let file = line.file.as_deref().ok_or_else(|| Error::corrupt("its line in the sidecar names no file"))?;
        let path = self.path(file);
        let mut opened = File::open(&path).map_err(|e| local("the file", &path, e))?;
        let facts = opened.metadata().map_err(|e| local("the file", &path, e))?;
        if !facts.is_file() {
            return Err(Error::invalid(format!("{} is no file", path.display())).into());
        }
        if self.tree.is_export() && facts.len() != line.size {
            return Err(Error::corrupt(format!(
                "{} has {} bytes, and had {} when it was exported: restore it from a copy, or export again",
                path.display(),
                facts.len(),
                line.size
            ))
            .into());
        }
        let sparse = facts.blocks() * 512 < facts.len() && facts.len() > SPARSE;
        if facts.len() > SMALL || sparse {
            return Ok(Content::Large(opened, facts.len()));
        }
        let mut bytes = Vec::with_capacity(facts.len() as usize);
        // Files of the kernel say that they have no bytes.
        let limit = if self.tree.is_export() { facts.len() } else { SMALL + 1 };
        let read = Read::by_ref(&mut opened).take(limit).read_to_end(&mut bytes);
        read.map_err(|e| local("reading", &path, e))?;
        if bytes.len() as u64 > SMALL {
            let why = format!("{}: it says it has {} bytes and has more", path.display(), facts.len());
            return Err(Error::invalid(why)).next(|| "iov put stores it to its end".into());
        }
        self.check(line, Sum::of(&bytes))?;
        Ok(Content::Small(bytes))
    }

    /// Compares what was read with what was exported.
    fn check(&self, line: &MemberLine, found: Sum) -> Result<()> {
        if !self.tree.is_export() || found == (Sum { crc: line.crc32c, len: line.size }) {
            return Ok(());
        }
        let path = line.file.as_deref().map(|file| self.path(file)).unwrap_or_default();
        Err(Error::corrupt(format!(
            "{} is not what was exported: its checksum is {:08x}, and was {:08x}; restore it from a copy, or export again",
            path.display(),
            found.crc,
            line.crc32c
        )))
    }

    fn create(&self, line: &MemberLine, out: &Collection) -> Result<Op> {
        let parent = self.parent(line.parent).ok_or_else(|| Error::internal("a group was lost"))?;
        let (metadata, controls) = (line.metadata.clone(), self.how.controls(line.controls.as_deref())?);
        Ok(Op::Create { out: out.clone(), parent, name: None, metadata, controls })
    }

    /// What kind of file it is, where it is no regular one: that it has from birth on.
    fn kind_of(line: &MemberLine, out: &Collection) -> Option<Op> {
        let mode = line.mode.and_then(|mode| u32::try_from(mode).ok()).filter(|mode| mode & !0o7777 != 0)?;
        Some(Op::SetAttr { c: out.clone(), attr: ioverbs::Attr { mode: Some(mode), ..Default::default() } })
    }

    /// Whether it is sealed at the end: if it was, or, where that is not known, if it can only be read so.
    fn is_sealed(&self, line: &MemberLine, mutability: Mutability) -> bool {
        match &line.state {
            Some(state) => state == "sealed",
            None => mutability == Mutability::Immutable,
        }
    }

    /// Makes small ones together; `same`: under the identities that they had.
    fn small(&mut self, ctx: &mut Ctx, items: Vec<Small<'a>>, same: bool) -> Done {
        if items.is_empty() {
            return Ok(());
        }
        let (mut ops, mut places, mut ready): (Vec<Lent<'_>>, Vec<_>, Vec<&Small<'a>>) = Default::default();
        for item in &items {
            let out = self.pending(EntryKind::Collection, item.line.uuid, same);
            let first = ops.len();
            match self.small_ops(&mut ops, item, &out) {
                Ok(()) => {
                    places.push((out, first..ops.len()));
                    ready.push(item);
                }
                Err(e) => {
                    ops.truncate(first);
                    self.or_tell(ctx, item.line, Err(e))?;
                }
            }
        }
        let statuses = ctx.batch(ops)?;
        let (mut made, mut again, mut failed) = (Vec::new(), Vec::new(), Vec::new());
        for (item, (out, place)) in ready.into_iter().zip(places) {
            let result = statuses[place.clone()].iter().try_for_each(Status::result);
            let created = statuses[place.start].result().is_ok();
            match (result, out.uuid()) {
                (Ok(()), Ok(uuid)) => made.push(Made { line: item.line, uuid, bytes: item.bytes.len() as u64 }),
                (Ok(()), Err(e)) => self.or_tell(ctx, item.line, Err(e.into()))?,
                (Err(e), uuid) => {
                    if let (true, Ok(uuid)) = (created, uuid) {
                        failed.push(uuid);
                    }
                    match same && self.tree.is_export() && is_taken(&e) {
                        true => again.push(Small { line: item.line, bytes: item.bytes.clone() }),
                        false => self.or_tell(ctx, item.line, Err(e.into()))?,
                    }
                }
            }
        }
        discard(ctx, &self.ws, &failed);
        let moved: u64 = made.iter().map(|made| made.bytes).sum();
        self.report.progress.more(moved);
        self.report.progress.at(self.report.progress.moved() + moved);
        self.name(ctx, made)?;
        self.report.renewed += again.len() as u64;
        self.small(ctx, again, false)
    }

    fn small_ops<'b>(&self, ops: &mut Vec<Lent<'b>>, item: &'b Small<'_>, out: &Collection) -> Done {
        let create = self.create(item.line, out)?;
        let Op::Create { controls, .. } = &create else { return Err(Error::internal("not a create").into()) };
        let effective = self.ws.session().check_controls(Some(&self.ws), controls)?;
        ops.push(create.into());
        ops.extend(Self::kind_of(item.line, out).map(Lent::from));
        match effective.mutability {
            _ if item.bytes.is_empty() => {}
            Mutability::Append => ops.push(Lent::Append { c: out.clone(), data: &item.bytes }),
            _ => ops.push(Lent::Write { c: out.clone(), offset: 0, data: &item.bytes }),
        }
        if self.is_sealed(item.line, effective.mutability) {
            ops.push(Op::Seal { c: out.clone() }.into());
        }
        ops.push(Op::Close { c: out.clone() }.into());
        Ok(())
    }

    fn large(&mut self, ctx: &mut Ctx, line: &'a MemberLine, file: File, size: u64) -> Done<Made<'a>> {
        let file = Arc::new(file);
        let before = self.report.progress.moved();
        for same in [true, false] {
            let out = self.pending(EntryKind::Collection, line.uuid, same);
            let done = self.fill(ctx, line, &out, &file, size);
            let uuid = out.uuid();
            match done {
                Ok(()) => {
                    self.report.renewed += u64::from(!same && self.tree.is_export());
                    return Ok(Made { line, uuid: uuid?, bytes: size });
                }
                Err(e) => {
                    // The open goes back before the collection does. What was not created is another's.
                    let created = !out.is_pending() && out.check().is_ok();
                    drop(out);
                    if let (true, Ok(uuid)) = (created, uuid) {
                        discard(ctx, &self.ws, &[uuid]);
                    }
                    self.report.progress.at(before);
                    match &e {
                        Failure::Error { error, .. } if same && self.tree.is_export() && is_taken(error) => {}
                        _ => return Err(e),
                    }
                }
            }
        }
        Err(Error::internal("a new identity was taken").into())
    }

    fn fill(&mut self, ctx: &mut Ctx, line: &MemberLine, out: &Collection, file: &Arc<File>, size: u64) -> Done {
        let create = self.create(line, out)?;
        if let Op::Create { controls, .. } = &create {
            // A refusal comes with what can be had instead.
            self.ws.session().check_controls(Some(&self.ws), controls)?;
        }
        let born = std::iter::once(create).chain(Self::kind_of(line, out)).map(Lent::from);
        ctx.batch(born.collect())?.iter().try_for_each(Status::result)?;
        let path = line.file.as_deref().map(|file| self.path(file)).unwrap_or_default();
        let mutability = out.effective()?.mutability;
        let found = if mutability == Mutability::Append {
            self.append(ctx, out, file, &path, size)?
        } else {
            self.write(ctx, out, file, &path, size)?
        };
        self.check(line, found)?;
        if self.is_sealed(line, mutability) {
            ioverbs::run(out.session(), Op::Seal { c: out.clone() })?;
        }
        Ok(ioverbs::close(out)?)
    }

    fn write(&mut self, ctx: &mut Ctx, out: &Collection, file: &Arc<File>, path: &Path, size: u64) -> Done<Sum> {
        let ranges = of_file(file, size)?;
        let end = ranges.last().map_or(0, Range::end);
        self.report.progress.more(sum(&ranges));
        let sums: Arc<Mutex<Vec<(Range, Sum)>>> = Arc::default();
        let (to, from, found, path) = (out.clone(), file.clone(), sums.clone(), path.to_owned());
        let work = move |piece: Range, buf: &mut [u8]| -> Result<u64> {
            if !read_whole(&from, piece.offset, buf).map_err(|e| local("reading", &path, e))? {
                return Err(Error::conflict(format!("{} became shorter while it was read: try again", path.display())));
            }
            ioverbs::write_at(&to, piece.offset, buf)?;
            found.lock().unwrap_or_else(PoisonError::into_inner).push((piece, Sum::of(buf)));
            Ok(piece.len)
        };
        pool::run(ctx, ranges, &mut self.report.progress, Arc::new(work))?;
        if end < size {
            ioverbs::run(out.session(), Op::Truncate { c: out.clone(), size })?;
        }
        let pieces = std::mem::take(&mut *sums.lock().unwrap_or_else(PoisonError::into_inner));
        Ok(Sum::of_pieces(pieces, size))
    }

    /// Records go to the end one after the other.
    fn append(&mut self, ctx: &mut Ctx, out: &Collection, file: &File, path: &Path, size: u64) -> Done<Sum> {
        self.report.progress.more(size);
        let (mut found, mut buf) = (Sum::default(), vec![0; PIECE.min(size as usize)]);
        while found.len < size {
            ctx.stop.check()?;
            let want = buf.len().min((size - found.len) as usize);
            file.read_exact_at(&mut buf[..want], found.len).map_err(|e| local("reading", path, e))?;
            ioverbs::append(out, &buf[..want])?;
            found = found.then(Sum::of(&buf[..want]));
            self.report.progress.at(self.report.progress.moved() + want as u64);
        }
        Ok(found)
    }

    /// Sets mode and time of what is complete, and gives it its name.
    fn name(&mut self, ctx: &mut Ctx, made: Vec<Made<'a>>) -> Done {
        if made.is_empty() {
            return Ok(());
        }
        let set = self.set_attr(ctx, &made)?;
        let (mut ready, mut unnamed) = (Vec::new(), Vec::new());
        for (made, set) in made.into_iter().zip(set) {
            if let Err(e) = set {
                discard(ctx, &self.ws, &[made.uuid]);
                self.or_tell(ctx, made.line, Err(e.into()))?;
                continue;
            }
            match (&made.line.name, self.parent(made.line.parent)) {
                (Some(name), Some(parent)) => {
                    unnamed.push(Unnamed { uuid: made.uuid, parent, name: name.clone() });
                    ready.push(made);
                }
                _ => self.told(ctx, made.line, made.uuid, made.bytes, Outcome::Stored)?,
            }
        }
        if unnamed.is_empty() {
            return Ok(());
        }
        let results = publish(ctx, &self.ws, &unnamed, self.how.if_exists);
        for (made, result) in ready.into_iter().zip(results) {
            match result {
                Ok(outcome) => self.told(ctx, made.line, made.uuid, made.bytes, outcome)?,
                Err(e) if e.kind() == ioverbs::Kind::Exists => self.or_tell(ctx, made.line, Err(there()))?,
                Err(e) => self.or_tell(ctx, made.line, Err(e.into()))?,
            }
        }
        Ok(())
    }

    fn set_attr(&mut self, ctx: &mut Ctx, made: &[Made<'_>]) -> Done<Vec<Result<()>>> {
        let mut ops: Vec<Lent<'_>> = Vec::with_capacity(made.len() * 3);
        for made in made {
            let c = self.ws.pending(EntryKind::Collection);
            let which = Which::Uuid(made.uuid);
            ops.push(Op::Open { out: c.clone(), parent: None, which, controls: Default::default() }.into());
            ops.push(Op::SetAttr { c: c.clone(), attr: attr_of(made.line) }.into());
            ops.push(close_op(&c));
        }
        let statuses = ctx.batch(ops)?;
        Ok(statuses.chunks(3).map(|three| three.iter().try_for_each(Status::result)).collect())
    }

    fn told(&mut self, ctx: &mut Ctx, line: &MemberLine, uuid: Uuid, bytes: u64, outcome: Outcome) -> Done {
        match outcome {
            Outcome::Skipped => self.report.skipped += 1,
            _ => {
                self.report.stored += 1;
                self.made.insert(line.uuid, uuid);
            }
        }
        if !ctx.global.json {
            return Ok(());
        }
        let file = line.file.as_deref().map(|file| self.path(file)).unwrap_or_default();
        let item = json!({
            "workspace": json_name(self.ws.name().as_bytes()),
            "file": json_name(std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str())),
            "uuid": uuid.to_string(),
            "bytes": bytes,
            "outcome": outcome.text(),
        });
        self.report.json.item(&mut ctx.out, &item)
    }

    /// One more name of a collection that was stored.
    fn link(&mut self, ctx: &mut Ctx, link: &LinkLine) -> Done {
        // Of one that failed, or was skipped, that was told.
        let Some(uuid) = self.made.get(&link.uuid).copied() else { return Ok(()) };
        let parent: Parent = self.parent(link.parent).ok_or_else(|| Error::not_found("its group could not be made"))?;
        let c = ctx.open(&self.ws, EntryKind::Collection, uuid)?;
        let op = Op::Link { c: c.clone(), parent: parent.clone(), name: link.name.clone() };
        let linked = match ioverbs::run(self.ws.session(), op) {
            Err(e) if e.kind() == ioverbs::Kind::Exists => match self.how.if_exists {
                IfExists::Fail => Err(there()),
                IfExists::Skip => Ok(()),
                IfExists::Replace => {
                    let unnamed = Unnamed { uuid, parent, name: link.name.clone() };
                    Ok(replace(ctx, &self.ws, &unnamed, &c).map(drop)?)
                }
            },
            done => Ok(done.map(drop)?),
        };
        let closed = ioverbs::close(&c);
        linked.and_then(|()| Ok(closed?))
    }
}

fn there() -> Failure {
    let error = Error::exists("the name is taken").with_clause(ioverbs::Clause::O3);
    let next = "--replace puts the new one in its place in one step, --skip-existing leaves it".to_owned();
    Failure::Error { error: Box::new(error), next: Some(next) }
}
