//! One workspace into an export: group by group, skipping what is there and unchanged.

use std::{
    collections::{HashMap, HashSet},
    os::unix::fs::DirBuilderExt,
    path::{Path, PathBuf},
};

use ioverbs::{EntryKind, Error, Metadata, Name, Result, Stat, Uuid, Workspace, catalog::SearchSpec};

use super::{
    book::{Book, Export, time_of},
    fetch,
    names::{UNNAMED, file_of},
    records::{Line, LinkLine, MemberLine, WorkspaceLine},
};
use crate::{
    ctx::Ctx,
    facts::{self, Facts, everything, members},
    failure::{Done, local},
    modes,
    output::{JsonList, printable},
    progress::Progress,
    transfer::{BATCH, BATCH_BYTES, SMALL},
};

/// What an export has done so far.
pub(crate) struct Report {
    pub(crate) progress: Progress,
    pub(crate) json: JsonList,
    pub(crate) exported: u64,
    pub(crate) unchanged: u64,
}

/// One collection on its way.
pub(super) struct Wanted {
    pub(super) line: MemberLine,
    /// Where it goes, in the directory of the workspace.
    pub(super) file: PathBuf,
    /// What an earlier export knew of it, if its file is there.
    pub(super) before: Option<MemberLine>,
}

/// A workspace on its way.
pub(crate) struct Walk<'a> {
    pub(super) export: &'a mut Export,
    pub(super) report: &'a mut Report,
    pub(super) ws: Workspace,
    pub(super) directory: PathBuf,
    pub(super) book: Book,
    /// Collections and groups that were met, and where the first name of each is.
    pub(super) seen: HashMap<Uuid, PathBuf>,
    pub(super) waiting: Vec<Wanted>,
    pub(super) waiting_bytes: u64,
    pub(super) links: Vec<LinkLine>,
    /// Collections whose files are in place.
    pub(super) placed: HashSet<Uuid>,
    /// Files that this export has put there or found as they should be.
    pub(super) files: HashSet<PathBuf>,
    /// All of it was asked for; else what is named there.
    pub(super) whole: bool,
    pub(super) scope: Vec<PathBuf>,
}

impl<'a> Walk<'a> {
    /// Begins the sidecar of a workspace.
    pub(crate) fn begin(
        ctx: &mut Ctx,
        export: &'a mut Export,
        report: &'a mut Report,
        ws: &Workspace,
    ) -> Done<Walk<'a>> {
        let name = ws.name();
        let directory = PathBuf::from(file_of(name.as_bytes(), ws.uuid()));
        let line = workspace_line(ctx, ws, &directory)?;
        make_directory(&export.root.join(&directory), line.mode)?;
        let mut book = Book::begin(export, name.as_bytes(), ws.uuid())?;
        book.add(&Line::Workspace(Box::new(line)))?;
        Ok(Walk {
            export,
            report,
            ws: ws.clone(),
            directory,
            book,
            seen: HashMap::new(),
            waiting: Vec::new(),
            waiting_bytes: 0,
            links: Vec::new(),
            placed: HashSet::new(),
            files: HashSet::new(),
            whole: false,
            scope: Vec::new(),
        })
    }

    pub(super) fn path(&self, file: &Path) -> PathBuf {
        self.export.root.join(&self.directory).join(file)
    }

    pub(super) fn address(&self, file: &Path) -> String {
        format!("{}/{}", printable(self.ws.name().as_bytes()), printable(as_bytes(file)))
    }

    /// All of it, also what has no name.
    pub(crate) fn everything(&mut self, ctx: &mut Ctx) -> Done {
        self.whole = true;
        self.group(ctx, Uuid::NIL, Path::new(""))?;
        let unnamed = SearchSpec { predicate: Some("not exists(iov.name)".into()), ..everything(facts::KEYS) };
        let mut results = facts::search(&self.ws, unnamed)?;
        let mut made = false;
        while let Some(entry) = results.next()? {
            ctx.stop.check()?;
            let found = Facts::new(entry);
            if found.is_group() || self.seen.contains_key(&found.uuid) {
                continue;
            }
            if !made {
                make_directory(&self.path(Path::new(UNNAMED)), None)?;
                made = true;
            }
            let file = Path::new(UNNAMED).join(&found.uuid.to_string()["uuid:".len()..]);
            self.member(ctx, &found, Uuid::NIL, file)?;
        }
        Ok(())
    }

    /// One group or collection, with the groups that lead to it. `path`: these groups, and at the end what is meant.
    pub(crate) fn part(&mut self, ctx: &mut Ctx, path: &[Facts]) -> Done {
        let (mut file, mut parent) = (PathBuf::new(), Uuid::NIL);
        for (n, found) in path.iter().enumerate() {
            let name = found.name.as_ref().map_or(Vec::new(), |name| name.as_bytes().to_vec());
            file.push(file_of(&name, found.uuid));
            if n + 1 == path.len() {
                self.scope.push(file.clone());
            }
            self.member(ctx, found, parent, file.clone())?;
            parent = found.uuid;
        }
        match path.last() {
            Some(last) if last.is_group() => self.group(ctx, last.uuid, &file),
            _ => Ok(()),
        }
    }

    fn group(&mut self, ctx: &mut Ctx, group: Uuid, at: &Path) -> Done {
        let mut below = Vec::new();
        let mut results = facts::search(&self.ws, members(group, facts::KEYS))?;
        while let Some(entry) = results.next()? {
            ctx.stop.check()?;
            let found = Facts::new(entry);
            let Some(name) = &found.name else { continue };
            let file = at.join(file_of(name.as_bytes(), found.uuid));
            let is_group = found.is_group();
            match self.member(ctx, &found, group, file.clone()) {
                Ok(()) if is_group => below.push((found.uuid, file)),
                Ok(()) => {}
                Err(e) => ctx.tell(e.about(self.address(&file)))?,
            }
        }
        drop(results);
        for (uuid, file) in below {
            self.group(ctx, uuid, &file)?;
        }
        Ok(())
    }

    fn member(&mut self, ctx: &mut Ctx, found: &Facts, parent: Uuid, file: PathBuf) -> Done {
        let mut line = line_of(found, parent)?;
        if found.is_group() {
            if self.seen.contains_key(&found.uuid) {
                return Ok(());
            }
            make_directory(&self.path(&file), found.mode)?;
            // Who may not open it is told so by what is in it.
            let stat = fetch::stats(ctx, &self.ws, EntryKind::Group, &[found.uuid])?.pop();
            if let Some(Ok(stat)) = stat {
                line.group_id = Some(stat.gid);
            }
            line.file = Some(file.clone());
            self.seen.insert(found.uuid, file);
            return Ok(self.book.add(&Line::Group(Box::new(line)))?);
        }
        if let Some(first) = self.seen.get(&found.uuid) {
            if let (Some(name), true) = (found.name.clone(), *first != file) {
                self.links.push(LinkLine { uuid: found.uuid, parent, name, file: Some(file) });
            }
            return Ok(());
        }
        self.seen.insert(found.uuid, file.clone());
        let before = self.before(&line, &file);
        let wanted = Wanted { line, file, before };
        if wanted.line.size > SMALL {
            return self.large(ctx, wanted).or_else(|e| ctx.tell(e));
        }
        self.waiting_bytes += wanted.line.size;
        self.waiting.push(wanted);
        if self.waiting.len() >= BATCH || self.waiting_bytes >= BATCH_BYTES as u64 { self.flush(ctx) } else { Ok(()) }
    }

    /// What an earlier export knew of a collection whose file it has left there.
    fn before(&self, line: &MemberLine, file: &Path) -> Option<MemberLine> {
        let before = self.book.known.members.get(&line.uuid)?.member()?;
        let facts = std::fs::symlink_metadata(self.path(file)).ok()?;
        let same = before.file.as_deref() == Some(file) && facts.is_file() && before.error.is_none();
        let mark = (facts.len(), time_of(&facts)) == (before.size, before.time_of_file());
        (same && mark).then(|| before.clone())
    }

    /// Exports what waits.
    fn flush(&mut self, ctx: &mut Ctx) -> Done {
        let waiting = std::mem::take(&mut self.waiting);
        self.waiting_bytes = 0;
        let (again, new): (Vec<_>, Vec<_>) = waiting.into_iter().partition(|w| w.before.is_some());
        let mut fetch = new;
        if !again.is_empty() {
            ctx.stop.check()?;
            let uuids: Vec<Uuid> = again.iter().map(|w| w.line.uuid).collect();
            for (wanted, stat) in again.into_iter().zip(fetch::stats(ctx, &self.ws, EntryKind::Collection, &uuids)?) {
                match stat {
                    Ok(stat) if is_same(&wanted, &stat) => self.keep(ctx, wanted, &stat)?,
                    Ok(_) => fetch.push(wanted),
                    Err(e) => self.failed(ctx, wanted, e.into())?,
                }
            }
        }
        if fetch.is_empty() {
            return Ok(());
        }
        ctx.stop.check()?;
        let asked: Vec<_> = fetch.iter().map(|w| (w.line.uuid, w.line.size, self.export.temporary())).collect();
        let fetched = fetch::small(ctx, &self.ws, &asked, &mut self.report.progress)?;
        let mut ready = Vec::new();
        for (wanted, fetched) in fetch.into_iter().zip(fetched) {
            match fetched {
                Ok(Some(fetched)) => ready.push((wanted, fetched)),
                Ok(None) => self.large(ctx, wanted).or_else(|e| ctx.tell(e))?,
                Err(e) => self.failed(ctx, wanted, e.into())?,
            }
        }
        self.place(ctx, ready)
    }

    fn large(&mut self, ctx: &mut Ctx, wanted: Wanted) -> Done {
        if wanted.before.is_some() {
            let stat = fetch::stats(ctx, &self.ws, EntryKind::Collection, &[wanted.line.uuid])?.pop();
            if let Some(Ok(stat)) = stat
                && is_same(&wanted, &stat)
            {
                return self.keep(ctx, wanted, &stat);
            }
        }
        let path = self.export.temporary();
        let moved = self.report.progress.moved();
        match fetch::large(ctx, &self.ws, wanted.line.uuid, &path, &mut self.report.progress) {
            Ok(fetched) => self.place(ctx, vec![(wanted, fetched)]),
            Err(e) => {
                self.report.progress.at(moved);
                // What there is of it goes with the directory too.
                let _ = std::fs::remove_file(&path);
                if e.kind() == Some(ioverbs::Kind::Cancelled) {
                    return Err(e);
                }
                self.failed(ctx, wanted, e)
            }
        }
    }

    /// Further names of what is in place.
    fn link(&mut self, ctx: &mut Ctx, mut link: LinkLine) -> Done {
        let Some(file) = link.file.clone() else { return Ok(()) };
        let first = self.seen.get(&link.uuid).filter(|_| self.placed.contains(&link.uuid)).cloned();
        let linked = match first {
            Some(first) => {
                self.book.announce(&Line::Link(link.clone()))?;
                self.book.told()?;
                self.link_file(&first, &file)
            }
            None => Ok(false),
        };
        match linked {
            Ok(true) => {
                self.tell_json(ctx, link.uuid, &file, 0, "linked")?;
                self.files.insert(file);
            }
            Ok(false) => link.file = None,
            Err(e) => {
                link.file = None;
                ctx.tell(e.about(self.address(&file)))?;
            }
        }
        Ok(self.book.add(&Line::Link(link))?)
    }

    /// Makes a hard link; `false`: this file system has none.
    fn link_file(&mut self, first: &Path, file: &Path) -> Done<bool> {
        use std::os::unix::fs::MetadataExt;
        let (from, to) = (self.path(first), self.path(file));
        let identity = |path: &Path| std::fs::symlink_metadata(path).ok().map(|facts| (facts.dev(), facts.ino()));
        if identity(&from).is_some() && identity(&from) == identity(&to) {
            return Ok(true);
        }
        self.may_replace(file)?;
        let temporary = self.export.temporary();
        if std::fs::hard_link(&from, &temporary).is_err() {
            return Ok(false);
        }
        std::fs::rename(&temporary, &to).map_err(|e| local("the file", &to, e))?;
        Ok(true)
    }

    /// Writes down what is left, and ends the sidecar.
    pub(crate) fn finish(mut self, ctx: &mut Ctx) -> Done {
        self.flush(ctx)?;
        self.names_elsewhere();
        for link in std::mem::take(&mut self.links) {
            self.link(ctx, link)?;
        }
        self.carry_over()?;
        let (mut left, mut one) = (0, None);
        // What could not be exported now is in the store all the same, and was told.
        let seen: HashSet<&Path> = self.seen.values().map(PathBuf::as_path).collect();
        let gone = |file: &&Path| !self.files.contains(*file) && !seen.contains(*file);
        for file in self.book.known.files().filter(gone) {
            if std::fs::symlink_metadata(self.path(file)).is_ok() {
                left += 1;
                one.get_or_insert_with(|| self.path(file));
            }
        }
        if let Some(one) = one {
            ctx.warn(format_args!(
                "{}: {left} files of an earlier export are no longer in the store under these names, and were left: {}{}",
                printable(self.ws.name().as_bytes()),
                one.display(),
                if left > 1 { ", …" } else { "" }
            ));
        }
        Ok(self.book.finish()?)
    }

    /// Names by which an earlier export has found what this one found by another: it was not asked for those.
    fn names_elsewhere(&mut self) {
        if self.whole {
            return;
        }
        for line in self.book.known.members.values() {
            let Line::Collection(member) = line else { continue };
            let (Some(name), Some(file)) = (&member.name, &member.file) else { continue };
            let within = self.scope.iter().any(|scope| file.starts_with(scope));
            if self.seen.contains_key(&member.uuid) && !within {
                let (uuid, parent, name) = (member.uuid, member.parent, name.clone());
                self.links.push(LinkLine { uuid, parent, name, file: Some(file.clone()) });
            }
        }
    }

    /// What earlier exports have brought and this one was not asked for.
    fn carry_over(&mut self) -> Result<()> {
        if self.whole {
            return Ok(());
        }
        let within = |file: &Path| self.scope.iter().any(|scope| file.starts_with(scope));
        let outside = |file: &Option<PathBuf>| file.as_deref().is_some_and(|file| !within(file));
        let mut lines = Vec::new();
        for (uuid, line) in &self.book.known.members {
            let Some(member) = line.member() else { continue };
            if !self.seen.contains_key(uuid) && outside(&member.file) {
                lines.push(line.clone());
                self.files.extend(member.file.clone());
            }
        }
        // Groups first, from the top: what is in them is found by them.
        let depth = |line: &Line| match line {
            Line::Group(group) => group.file.as_deref().map_or(0, |file| file.components().count()),
            _ => usize::MAX,
        };
        lines.sort_by_key(depth);
        let there: HashSet<Uuid> = self.book.known.members.keys().copied().collect();
        let links = self.book.known.links.iter().filter(|l| outside(&l.file) && there.contains(&l.uuid));
        let links: Vec<LinkLine> = links.cloned().collect();
        self.files.extend(links.iter().filter_map(|link| link.file.clone()));
        lines.extend(links.into_iter().map(Line::Link));
        lines.iter().try_for_each(|line| self.book.add(line))
    }
}

/// Whether what an earlier export has fetched is what there is now.
fn is_same(wanted: &Wanted, stat: &Stat) -> bool {
    wanted.before.as_ref().is_some_and(|before| {
        (before.size, before.mtime_ns, before.version) == (stat.bytes, stat.mtime_ns, stat.version)
    })
}

pub(super) fn note(line: &mut MemberLine, stat: &Stat) {
    (line.version, line.links, line.mtime_ns) = (stat.version, stat.links, stat.mtime_ns);
    line.group_id = Some(stat.gid);
}

pub(super) fn as_bytes(path: &Path) -> &[u8] {
    std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str())
}

/// Makes a directory that is not there, for no more people than a mode says; its owner puts something in it.
fn make_directory(path: &Path, mode: Option<i64>) -> Result<()> {
    let mode = mode.and_then(|mode| u32::try_from(mode).ok()).map_or(0, modes::for_export);
    match std::fs::DirBuilder::new().mode(0o700 | mode).create(path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => {
            Err(Error::exists(format!("{} is there, and is no directory: move it away", path.display())))
        }
        made => made.map_err(|e| local("the directory", path, e)),
    }
}

fn metadata_of(pairs: &[(String, ioverbs::Value)]) -> Result<Metadata> {
    let mut metadata = Metadata::new();
    pairs.iter().try_for_each(|(key, value)| metadata.set(key.clone(), value.clone()))?;
    Ok(metadata)
}

fn line_of(found: &Facts, parent: Uuid) -> Result<MemberLine> {
    Ok(MemberLine {
        uuid: found.uuid,
        parent,
        name: found.name.clone(),
        size: found.size,
        state: found.state.clone(),
        mtime_ns: found.mtime_ns,
        ctime_ns: found.ctime_ns,
        owner: found.owner,
        mode: found.mode,
        controls: found.controls.clone(),
        layout: found.layout.clone(),
        metadata: metadata_of(&found.user)?,
        ..MemberLine::default()
    })
}

fn workspace_line(ctx: &mut Ctx, ws: &Workspace, directory: &Path) -> Done<WorkspaceLine> {
    ctx.stop.check()?;
    let stat = crate::commands::ws::usage(ws)?;
    let found = crate::commands::ws::facts_of(ws)?;
    let limit = |n: u64| (n != u64::MAX).then_some(n);
    let name: Name = ws.name();
    Ok(WorkspaceLine {
        name,
        uuid: ws.uuid(),
        directory: directory.to_owned(),
        owner: Some(i64::from(stat.uid)),
        mode: found.as_ref().and_then(|found| found.mode),
        quota_bytes: limit(stat.quota_bytes),
        quota_collections: limit(stat.quota_collections),
        expires_ns: (stat.expires_ns != i64::MAX).then_some(stat.expires_ns),
        ctime_ns: stat.ctime_ns,
        controls: ioverbs::text::format(&ws.defaults()),
        layout: found.as_ref().and_then(|found| found.layout.clone()),
        indexes: ws.indexes(),
        metadata: found.map_or(Ok(Metadata::new()), |found| metadata_of(&found.user))?,
    })
}
