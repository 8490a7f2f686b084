//! Rename: moves a name. A lookup sees one of the two or the other, never none (T22); a group moves as one record (O3).

use iov_types::{Clause, EntryKind, Error, Name, Result, Uuid, catalog::CatalogReply, catalog::RenameMode};

use super::{Reply, delete::check_removal};
use crate::{
    exec::{Exec, records::missing},
    record::{NameIn, Record},
};

/// One end of a move.
struct End<'a> {
    parent: Uuid,
    name: &'a Name,
}

impl End<'_> {
    fn place(&self) -> NameIn {
        NameIn { parent: self.parent, name: self.name.clone() }
    }
}

pub(crate) fn rename(x: &mut Exec<'_>, ws: Uuid, from: (Uuid, &Name), to: (Uuid, &Name), mode: RenameMode) -> Reply {
    let (from, to) = (End { parent: from.0, name: from.1 }, End { parent: to.0, name: to.1 });
    let at = x.writable(ws)?;
    x.parent(ws, from.parent)?;
    x.parent(ws, to.parent)?;
    let (uuid, mut record) = source(x, at, ws, &from)?;
    let there = x.find_name(ws, to.parent, to.name)?;
    if from.place() == to.place() {
        return match mode {
            RenameMode::NoReplace => Err(taken(to.name)),
            _ => Ok(CatalogReply::Done),
        };
    }
    x.may_change(ws, uuid, &record.names)?;
    x.cover_in(ws, to.parent, true)?;
    // What is below may lie below a held group from now on (X2).
    let is_group = record.kind == EntryKind::Group || mode == RenameMode::Exchange;
    x.after.all_changes |= is_group && x.shared().opens.may_cover();
    no_cycle(x, ws, uuid, &record, to.parent)?;
    match (mode, there) {
        (RenameMode::NoReplace, Some(_)) => return Err(taken(to.name)),
        (RenameMode::Exchange, Some(_)) => return exchange(x, at, ws, (uuid, record), &from, &to),
        (RenameMode::Exchange, None) => {
            return Err(missing(format_args!("{:?} to exchange with", to.name)).with_clause(Clause::O3));
        }
        // Both names are the collection's own: it keeps the new one.
        (_, Some((other, _))) if other == uuid => {}
        (_, Some((other, _))) => {
            let replaced = x.usable_record(at, other)?;
            let alike = (record.kind == EntryKind::Group) == (replaced.kind == EntryKind::Group);
            if mode == RenameMode::ReplaceAlike && !alike {
                return Err(unlike(to.name, replaced.kind));
            }
            let only = Some((to.parent, to.name));
            check_removal(x, ws, other, &replaced, only)?;
            x.unname(at, other, replaced, only)?;
        }
        (_, None) => {}
    }
    x.set_name(ws, from.parent, from.name, None);
    record.names.retain(|n| *n != from.place() && *n != to.place());
    if there.is_none_or(|(other, _)| other != uuid) {
        x.set_name(ws, to.parent, to.name, Some((uuid, record.kind)));
    }
    record.names.push(to.place());
    x.change_record(ws, uuid, &mut record);
    Ok(CatalogReply::Done)
}

fn unlike(name: &Name, kind: EntryKind) -> Error {
    let is = if kind == EntryKind::Group {
        "a group, and what is moved is none"
    } else {
        "no group, and what is moved is one"
    };
    Error::invalid(format!("{name:?} is {is}: choose another name, or remove it")).with_clause(Clause::O10)
}

fn taken(name: &Name) -> Error {
    Error::exists(format!("{name:?} is taken: choose another name, or let it be replaced")).with_clause(Clause::O3)
}

fn source(x: &mut Exec<'_>, at: usize, ws: Uuid, from: &End<'_>) -> Result<(Uuid, Record)> {
    let found = x.find_name(ws, from.parent, from.name)?;
    let (uuid, _) = found.ok_or_else(|| missing(format_args!("{:?} here", from.name)).with_clause(Clause::O3))?;
    Ok((uuid, x.usable_record(at, uuid)?))
}

/// A group must not become a member of itself, nor the tree too deep.
fn no_cycle(x: &mut Exec<'_>, ws: Uuid, uuid: Uuid, record: &Record, parent: Uuid) -> Result<()> {
    if record.kind != EntryKind::Group || record.names.first().is_some_and(|n| n.parent == parent) {
        return Ok(());
    }
    if x.way_up(ws, parent)?.contains(&uuid) {
        return Err(Error::invalid("the group would be inside itself: move it elsewhere").with_clause(Clause::O3));
    }
    x.check_depth(ws, parent)
}

fn exchange(x: &mut Exec<'_>, at: usize, ws: Uuid, one: (Uuid, Record), from: &End<'_>, to: &End<'_>) -> Reply {
    let (uuid, mut record) = one;
    let (other, mut replaced) = source(x, at, ws, to)?;
    if other == uuid {
        return Ok(CatalogReply::Done);
    }
    x.may_change(ws, other, &replaced.names)?;
    x.cover_in(ws, from.parent, true)?;
    no_cycle(x, ws, other, &replaced, from.parent)?;
    let swap = |record: &mut Record, old: &End<'_>, new: &End<'_>| {
        record.names.iter_mut().filter(|n| **n == old.place()).for_each(|n| *n = new.place());
    };
    swap(&mut record, from, to);
    swap(&mut replaced, to, from);
    x.replace_name(ws, to.parent, to.name, (uuid, record.kind));
    x.replace_name(ws, from.parent, from.name, (other, replaced.kind));
    x.change_record(ws, uuid, &mut record);
    x.change_record(ws, other, &mut replaced);
    Ok(CatalogReply::Done)
}
