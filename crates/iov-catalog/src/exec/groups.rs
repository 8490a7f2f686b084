//! Names, the groups they are in, and the way up from them (O3).

use bytes::Bytes;
use iov_store::{Fact, KeyRange};
use iov_types::{Clause, EntryKind, Error, Layout, Name, Result, Uuid, limits};
use iov_wire::Wire;

use super::{Exec, Mode, Undo, records::missing};
use crate::{
    keys,
    record::{Lineage, NameIn},
    state::Touch,
};

/// Names read at a time while members are counted.
const PAGE: usize = 4096;

/// A group as a parent.
#[derive(Clone, PartialEq, Debug)]
pub(crate) struct Parent {
    /// The default layout of what is created in it.
    pub(crate) layout: Layout,
}

/// The UUID under which the root of a workspace is kept in memory and in names.
pub(crate) fn group_key(ws: Uuid, group: Uuid) -> Uuid {
    if group.is_nil() { ws } else { group }
}

fn too_deep() -> Error {
    Error::too_big(format!("groups nest at most {} deep: use a flatter tree", limits::GROUP_DEPTH))
        .with_clause(Clause::O3)
}

impl Exec<'_> {
    fn lineage(&mut self, ws: Uuid, group: Uuid) -> Result<Lineage> {
        let found = self.get(&keys::record(ws, group))?;
        let found = found.map(|bytes| Lineage::decode(&bytes)).transpose()?.filter(|l| !l.deleted);
        let found = found.ok_or_else(|| missing(format_args!("group {group}")).with_clause(Clause::O3))?;
        if found.kind != EntryKind::Group {
            return Err(Error::invalid(format!("{group} is a collection, not a group: it holds no names"))
                .with_clause(Clause::O3));
        }
        Ok(found)
    }

    /// A group that something is to be put in; `None` = the root. Fails unless it is one.
    pub(crate) fn parent(&mut self, ws: Uuid, group: Uuid) -> Result<Option<&Parent>> {
        if group.is_nil() {
            return Ok(None);
        }
        if self.parent.as_ref().is_none_or(|(known, _)| *known != (ws, group)) {
            let layout = self.lineage(ws, group)?.layout;
            self.parent = Some(((ws, group), Parent { layout }));
        }
        Ok(self.parent.as_ref().map(|(_, parent)| parent))
    }

    /// A group was changed: look at it again.
    pub(super) fn forget_parent(&mut self) {
        self.parent = None;
    }

    /// The groups from `group` up to and with the root, which appears as the workspace.
    pub(crate) fn way_up(&mut self, ws: Uuid, group: Uuid) -> Result<Vec<Uuid>> {
        let mut way = Vec::new();
        let mut at = group;
        while !at.is_nil() {
            if way.len() == limits::GROUP_DEPTH {
                return Err(too_deep());
            }
            way.push(at);
            let found = self.lineage(ws, at)?;
            at = found.names.first().map_or(Uuid::NIL, |n| n.parent);
        }
        way.push(ws);
        Ok(way)
    }

    /// Every group above the names of something, each once, with the root.
    pub(crate) fn above(&mut self, ws: Uuid, names: &[NameIn]) -> Result<Vec<Uuid>> {
        let mut all = self.way_up(ws, names.first().map_or(Uuid::NIL, |n| n.parent))?;
        for name in names.iter().skip(1) {
            for group in self.way_up(ws, name.parent)? {
                if !all.contains(&group) {
                    all.push(group);
                }
            }
        }
        Ok(all)
    }

    /// Fails where one more group below `parent` would be too deep.
    pub(crate) fn check_depth(&mut self, ws: Uuid, parent: Uuid) -> Result<()> {
        if self.way_up(ws, parent)?.len() > limits::GROUP_DEPTH { Err(too_deep()) } else { Ok(()) }
    }

    /// What a name stands for.
    pub(crate) fn find_name(&mut self, ws: Uuid, parent: Uuid, name: &Name) -> Result<Option<(Uuid, EntryKind)>> {
        match self.get(&keys::name(ws, parent, name))? {
            Some(value) => keys::read_name_value(&value).map(Some),
            None => Ok(None),
        }
    }

    /// The same as of now, whatever was read before.
    pub(crate) fn find_name_now(&mut self, ws: Uuid, parent: Uuid, name: &Name) -> Result<Option<(Uuid, EntryKind)>> {
        if self.mode != Mode::Read {
            // Nobody else writes meanwhile.
            return self.find_name(ws, parent, name);
        }
        self.core.count_keys(1);
        let found = self.core.store().get(&[&keys::name(ws, parent, name)])?.pop().flatten();
        found.map(|value| keys::read_name_value(&value.value)).transpose()
    }

    /// Names of a group are changed.
    fn touch(&mut self, ws: Uuid, group: Uuid) {
        let touch = Touch { ws, group, at_ns: Some(self.now_ns) };
        // Many in one group come one after the other, at one time.
        if self.after.touched.last().is_none_or(|last| (last.group, last.at_ns) != (group, touch.at_ns)) {
            self.after.touched.push(touch);
        }
    }

    /// When names of a group were last changed, if its record does not know.
    pub(crate) fn touched(&self, group: Uuid) -> Option<i64> {
        match self.after.touched.iter().rev().find(|touch| touch.group == group) {
            Some(touch) => touch.at_ns,
            None => self.shared().touched.get(group),
        }
    }

    /// Sets or (with `None`) removes a name, and counts members.
    pub(crate) fn set_name(&mut self, ws: Uuid, parent: Uuid, name: &Name, to: Option<(Uuid, EntryKind)>) {
        let key = keys::name(ws, parent, name);
        let group = group_key(ws, parent);
        self.touch(ws, group);
        if !self.shared().members.is_empty() {
            // Readers see the number before the commit, and another one if it comes to nothing.
            self.mark(Fact::Itself(group));
            let mut shared = self.shared_mut();
            if let Some(before) = shared.members.get(group) {
                let after = if to.is_some() { before + 1 } else { before.saturating_sub(1) };
                shared.members.set(group, Some(after));
                drop(shared);
                self.undo.push(Undo::Members(group, Some(before)));
            }
        }
        match to {
            Some((uuid, kind)) => self.put(key, Bytes::copy_from_slice(&keys::name_value(uuid, kind))),
            None => self.delete(key),
        }
    }

    /// Lets a name that exists stand for something else.
    pub(crate) fn replace_name(&mut self, ws: Uuid, parent: Uuid, name: &Name, to: (Uuid, EntryKind)) {
        let value = Bytes::copy_from_slice(&keys::name_value(to.0, to.1));
        self.touch(ws, group_key(ws, parent));
        self.put(keys::name(ws, parent, name), value);
    }

    /// The number of members of a group. Counted once, then kept up by whoever changes it.
    pub(crate) fn members(&mut self, ws: Uuid, group: Uuid) -> Result<u64> {
        let key = group_key(ws, group);
        if let Some(known) = self.shared().members.get(key) {
            return Ok(known);
        }
        // A number that is to be kept up must be counted in a writer's turn.
        let _turn = (self.mode == Mode::Read).then(|| self.core.writer());
        let range = KeyRange::prefix(&keys::names(ws, group));
        let (mut members, mut after) = (0, None);
        loop {
            let page = self.scan(&range, after.as_deref(), PAGE)?;
            members += page.len() as u64;
            match page.last() {
                Some((last, _)) if page.len() == PAGE => after = Some(last.clone()),
                _ => break,
            }
        }
        self.shared_mut().members.set(key, Some(members));
        if self.mode != Mode::Read {
            self.undo.push(Undo::Members(key, None));
        }
        Ok(members)
    }

    /// A group is new: its members need not be counted.
    pub(crate) fn is_without_members(&mut self, group: Uuid) {
        self.shared_mut().members.set(group, Some(0));
        self.undo.push(Undo::Members(group, None));
    }

    /// Whether a group has no members.
    pub(crate) fn is_empty_group(&mut self, ws: Uuid, group: Uuid) -> Result<bool> {
        if let Some(members) = self.shared().members.get(group_key(ws, group)) {
            return Ok(members == 0);
        }
        Ok(self.scan(&KeyRange::prefix(&keys::names(ws, group)), None, 1)?.is_empty())
    }
}
