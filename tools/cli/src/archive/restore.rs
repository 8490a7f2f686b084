//! A tree into a workspace: the workspace itself, its groups, and at the end what they are to be.

use std::collections::HashMap;

use ioverbs::{
    Attr, Controls, EntryKind, Error, Kind, Lent, Name, Op, Parent, Result, Uuid, Which, Workspace, WorkspaceAttr, seam,
};

use super::{
    records::{MemberLine, WorkspaceLine},
    tree::Tree,
};
use crate::{
    ctx::Ctx,
    facts::close_op,
    failure::{Done, Failure, Next},
    locate::find_in,
    options::{ControlArgs, IfExists},
    output::{JsonList, printable, quoted},
    progress::Progress,
};

/// How an import goes on.
pub(crate) struct How<'a> {
    pub(crate) if_exists: IfExists,
    /// Laid over what the export says.
    pub(crate) controls: &'a ControlArgs,
}

/// What an import has done so far.
pub(crate) struct Report {
    pub(crate) progress: Progress,
    pub(crate) json: JsonList,
    pub(crate) stored: u64,
    pub(crate) skipped: u64,
    /// Collections and groups that have another UUID than before.
    pub(crate) renewed: u64,
}

/// A workspace that is filled.
pub(crate) struct Restore<'a> {
    pub(super) how: &'a How<'a>,
    pub(super) report: &'a mut Report,
    pub(super) ws: Workspace,
    pub(super) tree: &'a Tree,
    /// It was not there.
    new: bool,
    /// Groups by the UUID that they have in the tree; those that could not be made are not there.
    groups: HashMap<Uuid, Parent>,
    /// Those that were not there.
    new_groups: Vec<&'a MemberLine>,
    /// Collections that were stored, and the UUIDs that they have now.
    pub(super) made: HashMap<Uuid, Uuid>,
}

impl How<'_> {
    /// The controls that something is made with.
    pub(crate) fn controls(&self, text: Option<&str>) -> Result<Controls> {
        let mut controls = Controls::default();
        if let Some(text) = text {
            ioverbs::text::parse(&mut controls, text)?;
        }
        self.controls.read_over(&mut controls)?;
        Ok(controls)
    }
}

/// So long after a UUID was made stores take it for new, and with room for clocks that differ, in nanoseconds.
const NEW_NS: i64 = 3_000_000_000;

/// Waits until no identity of a tree passes for a new one: a store compares old ones with all that it has.
pub(crate) fn wait_for_age(ctx: &Ctx, tree: &Tree) -> Done {
    let members = tree.groups.iter().chain(&tree.collections);
    let newest = members.map(|line| line.uuid.unix_ms()).max().unwrap_or(0);
    let made_ns = i64::try_from(newest).unwrap_or(0).saturating_mul(1_000_000);
    let age = seam::now_ns().saturating_sub(made_ns);
    let mut left = if (0..NEW_NS).contains(&age) { NEW_NS - age } else { 0 };
    while left > 0 {
        ctx.stop.check()?;
        let step = left.min(50_000_000);
        seam::sleep(step as u64);
        left -= step;
    }
    Ok(())
}

/// Makes the workspace, or takes the one that is there; whether it is new.
fn workspace(
    ctx: &mut Ctx,
    how: &How<'_>,
    line: Option<&WorkspaceLine>,
    name: &Name,
    may_be: bool,
) -> Done<(Workspace, bool)> {
    let session = ctx.session_or_new()?;
    match session.load_workspace(Which::Name(name.clone())) {
        Ok(ws) if may_be || how.if_exists != IfExists::Fail => return Ok((ws, false)),
        Ok(_) => {
            let error = Error::exists(format!("there is a workspace {name:?} already"));
            return Err(error.with_clause(ioverbs::Clause::O1)).next(|| {
                "--skip-existing adds what is missing in it, --replace replaces what is there, and another WS takes a new one"
                    .into()
            });
        }
        Err(e) if e.kind() == Kind::NotFound => {}
        Err(e) => return Err(e.into()),
    }
    let controls = how.controls(line.map(|line| line.controls.as_str()))?;
    session.check_controls(None, &controls)?;
    let mut attr = WorkspaceAttr { controls: Some(controls), ..WorkspaceAttr::default() };
    if let Some(line) = line {
        attr.metadata = line.metadata.clone();
        attr.indexes = line.indexes.clone();
    }
    let ws = session.create_workspace(name.clone(), attr)?;
    if let Some(mode) = line.and_then(|line| line.mode) {
        // What a list in its metadata lets others do is as the mode says.
        let (c, mode) = (ws.unopened(EntryKind::Group, Uuid::NIL), Some(mode as u32 & 0o7777));
        ioverbs::run(&session, Op::SetAttr { c, attr: Attr { mode, ..Attr::default() } })?;
    }
    Ok((ws, true))
}

impl<'a> Restore<'a> {
    /// Makes the workspace and the groups. `may_be`: the workspace may be there already.
    pub(crate) fn begin(
        ctx: &mut Ctx,
        how: &'a How<'a>,
        report: &'a mut Report,
        tree: &'a Tree,
        name: &Name,
        may_be: bool,
    ) -> Done<Restore<'a>> {
        let (ws, new) = workspace(ctx, how, tree.workspace.as_ref(), name, may_be)?;
        let (groups, made) = (HashMap::new(), HashMap::new());
        let mut restore = Restore { how, report, ws, tree, new, groups, new_groups: Vec::new(), made };
        restore.groups.insert(Uuid::NIL, None);
        for line in &tree.groups {
            ctx.stop.check()?;
            if let Err(e) = restore.group(ctx, line) {
                ctx.tell(e.about(restore.address(line)))?;
            }
        }
        Ok(restore)
    }

    /// How something is called in messages.
    pub(super) fn address(&self, line: &MemberLine) -> String {
        let inside = match (&line.file, &line.name) {
            (Some(file), _) => printable(std::os::unix::ffi::OsStrExt::as_bytes(file.as_os_str())),
            (None, Some(name)) => printable(name.as_bytes()),
            (None, None) => line.uuid.to_string(),
        };
        format!("{}/{inside}", printable(self.ws.name().as_bytes()))
    }

    /// The group that something is to be in, open.
    pub(super) fn parent(&self, uuid: Uuid) -> Option<Parent> {
        self.groups.get(&uuid).cloned()
    }

    fn group(&mut self, ctx: &mut Ctx, line: &'a MemberLine) -> Done {
        let parent = self.parent(line.parent).ok_or_else(|| Error::not_found("its group could not be made"))?;
        let name = line.name.clone().ok_or_else(|| Error::corrupt("a group without a name"))?;
        let above = parent.as_ref().map_or(Ok(Uuid::NIL), |group| group.uuid())?;
        let opened = match find_in(&self.ws, above, &Which::Name(name.clone()), &[])? {
            Some(found) if !found.is_group() => {
                return Err(Error::exists("a collection has this name, and holds no others"))
                    .next(|| "remove it, or import into another workspace".into());
            }
            Some(found) => ctx.open(&self.ws, EntryKind::Group, found.uuid)?,
            None => {
                self.new_groups.push(line);
                let controls = self.how.controls(line.controls.as_deref())?;
                let create = |out| Op::Create {
                    out,
                    parent: parent.clone(),
                    name: Some(name.clone()),
                    metadata: line.metadata.clone(),
                    controls: controls.clone(),
                };
                let out = self.pending(EntryKind::Group, line.uuid, true);
                match ioverbs::run(self.ws.session(), create(out.clone())) {
                    Err(e) if self.tree.is_export() && is_taken(&e) => {
                        let out = self.ws.pending(EntryKind::Group);
                        ioverbs::run(self.ws.session(), create(out.clone()))?;
                        self.report.renewed += 1;
                        out
                    }
                    done => done.map(|_| out)?,
                }
            }
        };
        self.groups.insert(line.uuid, Some(opened));
        Ok(())
    }

    /// A handle for something that is to be made; of an export under the identity that it had, if that can be.
    pub(super) fn pending(&self, kind: EntryKind, uuid: Uuid, same: bool) -> ioverbs::Collection {
        match self.tree.is_export() && same {
            true => self.ws.pending_as(kind, uuid),
            false => self.ws.pending(kind),
        }
    }

    /// Fills it, and sets at the end what would be in the way before: times, limits, expiry.
    pub(crate) fn finish(mut self, ctx: &mut Ctx) -> Done {
        self.collections(ctx)?;
        let mut ops: Vec<Lent<'_>> = Vec::new();
        for line in &self.new_groups {
            if let Some(Some(group)) = self.groups.get(&line.uuid) {
                ops.push(Op::SetAttr { c: group.clone(), attr: attr_of(line) }.into());
            }
        }
        ops.extend(self.groups.values().flatten().map(close_op));
        for status in ctx.batch(ops)? {
            if let Err(e) = status.result() {
                ctx.tell(e.context("the mode and time of a group").into())?;
            }
        }
        let Some(line) = self.tree.workspace.as_ref().filter(|_| self.new) else { return Ok(()) };
        let attr = WorkspaceAttr {
            quota_bytes: line.quota_bytes,
            quota_collections: line.quota_collections,
            expires_ns: line.expires_ns,
            ..WorkspaceAttr::default()
        };
        if attr != WorkspaceAttr::default() {
            let set = ioverbs::run(self.ws.session(), Op::WorkspaceSet { w: self.ws.clone(), attr });
            let name = quoted(self.ws.name().as_bytes());
            set.map_err(|e| Failure::from(e.context(format!("the limits of {name}"))))?;
        }
        Ok(())
    }
}

/// Mode and time. The owner is who imports.
pub(super) fn attr_of(line: &MemberLine) -> Attr {
    Attr {
        mode: line.mode.and_then(|mode| u32::try_from(mode).ok()),
        mtime_ns: Some(line.mtime_ns).filter(|ns| *ns != 0),
        ..Attr::default()
    }
}

/// Whether an identity cannot be had: something has it, or had it until just now.
pub(super) fn is_taken(e: &Error) -> bool {
    use ioverbs::Clause::{O2, O10};
    (e.kind() == Kind::Exists && e.clause() == Some(O2)) || (e.kind() == Kind::NotFound && e.clause() == Some(O10))
}
