//! Storing many things: small ones together in batches, large ones with several requests in flight. Each is made without
//! a name, filled, closed, and then named.

use std::{
    fs::File,
    io::Read,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

use ioverbs::{
    Collection, Controls, EntryKind, Error, Kind, Lent, Metadata, Mutability, Name, Op, Parent, Result, Status, Uuid,
    Workspace,
};
use serde_json::json;

use super::{
    BATCH, BATCH_BYTES, SMALL, SPARSE, copy,
    given::Given,
    publish::{Outcome, Unnamed, discard, publish},
    upload,
};
use crate::{
    address::Address,
    ctx::Ctx,
    facts::Facts,
    failure::{Done, Failure, Next, local},
    locate::{Spot, find_names},
    modes,
    options::IfExists,
    output::{JsonList, json_name},
    progress::Progress,
};

/// Where something is to be stored.
#[derive(Clone)]
pub(crate) struct Place {
    /// The group, open; `None` = the root.
    pub(crate) parent: Parent,
    /// The group's address.
    pub(crate) at: Address,
    /// The name there.
    pub(crate) name: Name,
}

impl Place {
    fn group(&self) -> Result<Uuid> {
        self.parent.as_ref().map_or(Ok(Uuid::NIL), Collection::uuid)
    }

    /// The address of what will be there.
    pub(crate) fn address(&self) -> Address {
        self.at.join(ioverbs::Which::Name(self.name.clone()))
    }
}

/// What is to be stored.
pub(crate) enum Content {
    /// These bytes.
    Bytes(Vec<u8>),
    /// A file.
    File(File, u64),
    /// A stream to its end.
    Stream(Box<dyn Read + Send>),
    /// What another collection of the store holds.
    Copy(Spot, Box<Facts>),
}

/// One thing to store.
pub(crate) struct Item {
    /// Where it comes from, for messages.
    pub(crate) source: PathBuf,
    pub(crate) place: Place,
    pub(crate) content: Content,
    pub(crate) metadata: Metadata,
    pub(crate) controls: Controls,
    /// What others may do with it, and what kind of file it is; `None`: as of everything new.
    pub(crate) mode: Option<u32>,
}

/// Stores things one after the other, keeping small ones until there are enough for a batch.
pub(crate) struct Storer {
    ws: Workspace,
    if_exists: IfExists,
    waiting: Vec<Item>,
    waiting_bytes: usize,
    /// Where several sources may come to one name.
    names: Option<Names>,
    progress: Progress,
    json: JsonList,
    count: u64,
    verbose: bool,
}

/// What the names of one command are known by.
#[derive(Default)]
struct Names {
    /// Of what is stored.
    given: Given,
    /// Of what waits, and may yet fail.
    waiting: Given,
}

/// A new collection on its way to a name.
struct Made {
    source: PathBuf,
    place: Place,
    bytes: u64,
    result: Result<Uuid>,
}

impl Storer {
    /// Into one workspace, from so many sources.
    pub(crate) fn new(
        ctx: &Ctx,
        ws: &Workspace,
        what: &str,
        sources: usize,
        if_exists: IfExists,
        verbose: bool,
    ) -> Storer {
        // A single source has no name twice.
        let several = sources > 1 && if_exists != IfExists::Skip;
        Storer {
            ws: ws.clone(),
            if_exists,
            waiting: Vec::new(),
            waiting_bytes: 0,
            names: several.then(Names::default),
            progress: ctx.progress(what, None),
            json: JsonList::default(),
            count: 0,
            verbose,
        }
    }

    /// Opens and stores a local file.
    pub(crate) fn add_file(
        &mut self,
        ctx: &mut Ctx,
        path: &Path,
        place: Place,
        metadata: Metadata,
        controls: Controls,
    ) -> Done {
        let mut file = File::open(path).map_err(|e| local("the file", path, e))?;
        let facts = file.metadata().map_err(|e| local("the file", path, e))?;
        let sparse = facts.blocks() * 512 < facts.len() && facts.len() > SPARSE;
        let content = if facts.is_file() && facts.len() <= SMALL && !sparse {
            let mut bytes = Vec::with_capacity(facts.len() as usize);
            let limit = &mut Read::by_ref(&mut file).take(SMALL + 1);
            limit.read_to_end(&mut bytes).map_err(|e| local("reading", path, e))?;
            // Files of the kernel say that they have no bytes, and others grow meanwhile.
            match bytes.len() as u64 > SMALL {
                true => Content::Stream(Box::new(std::io::Cursor::new(bytes).chain(file))),
                false => Content::Bytes(bytes),
            }
        } else if facts.is_file() {
            Content::File(file, facts.len())
        } else if facts.is_dir() {
            return Err(Error::invalid(format!("{} is a directory", path.display())))
                .next(|| "-r stores it as a group".into());
        } else {
            Content::Stream(Box::new(file))
        };
        let mode = facts.is_file().then(|| modes::of_local(&facts));
        self.add(ctx, Item { source: path.to_owned(), place, content, metadata, controls, mode })
    }

    /// Stores something, at once or with the next batch.
    pub(crate) fn add(&mut self, ctx: &mut Ctx, item: Item) -> Done {
        ctx.stop.check()?;
        if let Err(e) = self.check_given(ctx, &item)? {
            return ctx.tell(e.about(item.source.display()));
        }
        let small = match &item.content {
            Content::Bytes(bytes) => Some(bytes.len()),
            Content::Copy(_, facts) if facts.size <= SMALL => Some(0),
            _ => None,
        };
        let Some(len) = small else {
            return self.large(ctx, item);
        };
        if let Some(names) = &mut self.names {
            names.waiting.add(item.place.group()?, &item.place.name);
        }
        self.waiting_bytes += len;
        self.waiting.push(item);
        if self.waiting.len() >= BATCH || self.waiting_bytes >= BATCH_BYTES { self.flush(ctx) } else { Ok(()) }
    }

    /// Whether this command itself has stored something of that name.
    fn check_given(&mut self, ctx: &mut Ctx, item: &Item) -> Done<Done> {
        let (group, name) = (item.place.group()?, &item.place.name);
        if self.names.as_ref().is_some_and(|names| names.waiting.has(group, name)) {
            self.flush(ctx)?;
        }
        Ok(self.names.as_ref().map_or(Ok(()), |names| names.given.check(group, name, || item.place.address())))
    }

    /// Stores what waits, and says how it all went.
    pub(crate) fn end(mut self, ctx: &mut Ctx) -> Done {
        self.flush(ctx)?;
        let how = self.progress.end();
        if ctx.global.json {
            ctx.end_list(&self.json)?;
        } else if self.count > 0 {
            ctx.summary(format_args!("{} stored, {how}", self.count));
        }
        Ok(())
    }

    /// What is taken is told, or skipped, before its bytes are moved.
    fn without_taken(&mut self, ctx: &mut Ctx, items: Vec<Item>) -> Done<Vec<Item>> {
        if self.if_exists == IfExists::Replace {
            return Ok(items);
        }
        let mut groups: Vec<(Uuid, Vec<Name>)> = Vec::new();
        for item in &items {
            let group = item.place.group()?;
            match groups.iter_mut().find(|(g, _)| *g == group) {
                Some((_, names)) => names.push(item.place.name.clone()),
                None => groups.push((group, vec![item.place.name.clone()])),
            }
        }
        let mut taken = std::collections::HashMap::new();
        for (group, names) in &groups {
            for facts in find_names(&self.ws, *group, names, &[])? {
                taken.extend(facts.name.map(|name| ((*group, name), facts.uuid)));
            }
        }
        let mut free = Vec::new();
        for item in items {
            match taken.get(&(item.place.group()?, item.place.name.clone())) {
                None => free.push(item),
                Some(uuid) if self.if_exists == IfExists::Skip => {
                    self.report(ctx, &item.source, &item.place, *uuid, 0, Outcome::Skipped)?;
                }
                Some(_) => ctx.tell(is_taken(&item.place))?,
            }
        }
        Ok(free)
    }

    fn flush(&mut self, ctx: &mut Ctx) -> Done {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        if let Some(names) = &mut self.names {
            names.waiting.clear();
        }
        let items = self.without_taken(ctx, waiting)?;
        if items.is_empty() {
            return Ok(());
        }
        ctx.stop.check()?;
        let mut ops: Vec<Lent<'_>> = Vec::new();
        let mut ranges = Vec::new();
        for item in &items {
            let first = ops.len();
            let out = self.ws.pending(EntryKind::Collection);
            self.small_ops(&mut ops, item, &out)?;
            ranges.push((out, first..ops.len()));
        }
        let statuses = ctx.batch(ops)?;
        let moved: u64 = statuses.iter().map(|s| s.bytes).sum();
        self.progress.more(moved);
        self.progress.at(self.progress.moved() + moved);
        let (mut made, mut failed, mut grown) = (Vec::new(), Vec::new(), Vec::new());
        for (item, (out, range)) in items.into_iter().zip(ranges) {
            let statuses = &statuses[range];
            let bytes: u64 = match &item.content {
                Content::Bytes(bytes) => bytes.len() as u64,
                _ => statuses.iter().map(|s| s.bytes).sum(),
            };
            // A copy that moved all that it was asked for may not have reached the end.
            let longer = matches!(&item.content, Content::Copy(_, facts) if bytes > facts.size);
            let result = statuses.iter().try_for_each(Status::result).and_then(|()| out.uuid());
            match (result, out.uuid()) {
                (Ok(uuid), _) if longer => {
                    failed.push(uuid);
                    grown.push(item);
                }
                (Err(e), Ok(uuid)) => {
                    failed.push(uuid);
                    made.push(Made { source: item.source, place: item.place, bytes, result: Err(e) });
                }
                (result, _) => made.push(Made { source: item.source, place: item.place, bytes, result }),
            }
        }
        // Together: each takes as long as a request may where the store hangs. Their opens have gone back.
        discard(ctx, &self.ws, &failed);
        self.name(ctx, made)?;
        // Only now: where one fails, or is interrupted, nothing of the others is left without a name.
        for item in grown {
            let source = item.source.clone();
            self.large(ctx, item).or_else(|e| ctx.tell(e.about(source.display())))?;
        }
        Ok(())
    }

    /// The operations that make and fill a small collection.
    fn small_ops<'a>(&self, ops: &mut Vec<Lent<'a>>, item: &'a Item, out: &Collection) -> Done {
        let effective = self.ws.session().check_controls(Some(&self.ws), &item.controls)?;
        ops.push(self.create(item, out).into());
        ops.extend(modes::set(out, item.mode).map(Lent::from));
        match &item.content {
            Content::Bytes(data) if data.is_empty() => {}
            Content::Bytes(data) if effective.mutability == Mutability::Append => {
                ops.push(Lent::Append { c: out.clone(), data });
            }
            Content::Bytes(data) => ops.push(Lent::Write { c: out.clone(), offset: 0, data }),
            Content::Copy(spot, facts) => copy::small_ops(ops, spot, facts, out),
            _ => return Err(Error::internal("a large thing in a batch of small ones").into()),
        }
        if effective.mutability == Mutability::Immutable {
            ops.push(Op::Seal { c: out.clone() }.into());
        }
        ops.push(Op::Close { c: out.clone() }.into());
        Ok(())
    }

    fn create(&self, item: &Item, out: &Collection) -> Op {
        Op::Create {
            out: out.clone(),
            parent: item.place.parent.clone(),
            name: None,
            metadata: item.metadata.clone(),
            controls: item.controls.clone(),
        }
    }

    fn large(&mut self, ctx: &mut Ctx, item: Item) -> Done {
        let Some(mut item) = self.without_taken(ctx, vec![item])?.pop() else { return Ok(()) };
        let out = self.ws.pending(EntryKind::Collection);
        let born = std::iter::once(self.create(&item, &out)).chain(modes::set(&out, item.mode)).map(Lent::from);
        let born = ctx.batch(born.collect())?;
        born.first().map_or(Ok(()), Status::result)?;
        let uuid = out.uuid()?;
        let before = self.progress.moved();
        let content = std::mem::replace(&mut item.content, Content::Bytes(Vec::new()));
        let filled = match born.iter().try_for_each(Status::result).map(|()| content) {
            Err(e) => Err(e.into()),
            Ok(content) => match content {
                Content::File(file, size) => {
                    upload::file(ctx, &out, &item.source, file, size, &mut self.progress).map(|()| size)
                }
                Content::Stream(stream) => upload::stream(ctx, &out, &item.source, stream, &mut self.progress),
                Content::Copy(spot, _) => copy::large(ctx, &spot, &out, &mut self.progress),
                Content::Bytes(_) => Err(Error::internal("a small thing was taken for a large one").into()),
            },
        };
        let ended = filled.and_then(|bytes| {
            if out.effective()?.mutability == Mutability::Immutable {
                ioverbs::run(out.session(), Op::Seal { c: out.clone() })?;
            }
            ioverbs::close(&out)?;
            Ok(bytes)
        });
        match ended {
            Ok(bytes) => self.name(ctx, vec![Made { source: item.source, place: item.place, bytes, result: Ok(uuid) }]),
            Err(e) => {
                // The open goes back before the collection does.
                drop(out);
                discard(ctx, &self.ws, &[uuid]);
                self.progress.at(before);
                Err(e)
            }
        }
    }

    /// Gives names to what was made, and tells of what was not.
    fn name(&mut self, ctx: &mut Ctx, made: Vec<Made>) -> Done {
        let mut ready = Vec::new();
        let mut unnamed = Vec::new();
        for made in made {
            match &made.result {
                Ok(uuid) => {
                    unnamed.push(Unnamed {
                        uuid: *uuid,
                        parent: made.place.parent.clone(),
                        name: made.place.name.clone(),
                    });
                    ready.push((made.source, made.place, made.bytes, *uuid));
                }
                Err(e) => ctx.tell(Failure::from(e.clone()).about(made.source.display()))?,
            }
        }
        if unnamed.is_empty() {
            return Ok(());
        }
        let results = publish(ctx, &self.ws, &unnamed, self.if_exists);
        for ((source, place, bytes, uuid), result) in ready.into_iter().zip(results) {
            match result {
                Ok(outcome) => self.report(ctx, &source, &place, uuid, bytes, outcome)?,
                Err(e) if e.kind() == Kind::Exists && self.if_exists == IfExists::Fail => ctx.tell(is_taken(&place))?,
                Err(e) => ctx.tell(Failure::from(e).about(source.display()))?,
            }
        }
        Ok(())
    }

    fn report(
        &mut self,
        ctx: &mut Ctx,
        source: &Path,
        place: &Place,
        uuid: Uuid,
        bytes: u64,
        outcome: Outcome,
    ) -> Done {
        if outcome != Outcome::Skipped {
            self.count += 1;
            if let Some(names) = &mut self.names {
                names.given.add(place.group()?, &place.name);
            }
        }
        let address = place.address();
        if ctx.global.json {
            let item = json!({
                "source": json_name(std::os::unix::ffi::OsStrExt::as_bytes(source.as_os_str())),
                "address": json_name(&address.to_bytes()),
                "uuid": uuid.to_string(),
                "bytes": bytes,
                "outcome": outcome.text(),
            });
            return self.json.item(&mut ctx.out, &item);
        }
        if self.verbose {
            ctx.out.line(format_args!("{address}: {}", outcome.text()))?;
        }
        Ok(())
    }
}

fn is_taken(place: &Place) -> Failure {
    let error = Error::exists(format!("{} is there already", place.address())).with_clause(ioverbs::Clause::O3);
    let next = "--if-exists replace puts the new one in its place in one step, --if-exists skip leaves it".to_owned();
    Failure::Error { error: Box::new(error), next: Some(next) }
}

#[cfg(test)]
mod tests;
