//! Giving names to what is complete: a reader sees the old collection or the new one, never half of one.

use std::collections::HashSet;

use ioverbs::{
    BatchAttr, Clause, Collection, Consistency, EntryKind, Error, Kind, Lent, Name, OnError, Op, Outcome as Applied,
    Parent, Result, Status, Uuid, Which, Workspace, catalog::RenameMode, seam,
};

use crate::{ctx::Ctx, facts::close_op, failure::Failure, options::IfExists, output::quoted};

/// A complete collection without a name, and the name it is to have.
pub(crate) struct Unnamed {
    pub(crate) uuid: Uuid,
    pub(crate) parent: Parent,
    pub(crate) name: Name,
}

/// How it went.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Outcome {
    /// It has its name, which was free.
    Stored,
    /// It has its name, and what had it before is gone.
    Replaced,
    /// The name was taken, and that was to be left.
    Skipped,
}

impl Outcome {
    /// The word for it.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Outcome::Stored => "stored",
            Outcome::Replaced => "replaced",
            Outcome::Skipped => "skipped",
        }
    }
}

/// Gives each its name. What certainly does not get one is deleted again; of what nobody can tell, nothing is deleted: it may
/// be all that there is under its name by now.
pub(crate) fn publish(ctx: &mut Ctx, ws: &Workspace, items: &[Unnamed], if_exists: IfExists) -> Vec<Result<Outcome>> {
    let handles: Vec<Collection> = items.iter().map(|_| ws.pending(EntryKind::Collection)).collect();
    let mut ops: Vec<Lent<'_>> = Vec::with_capacity(items.len() * 2);
    for (item, c) in items.iter().zip(&handles) {
        let which = Which::Uuid(item.uuid);
        ops.push(Op::Open { out: c.clone(), parent: None, which, controls: Default::default() }.into());
    }
    for (item, c) in items.iter().zip(&handles) {
        ops.push(Op::Link { c: c.clone(), parent: item.parent.clone(), name: item.name.clone() }.into());
    }
    let linked = each(ctx, ops).split_off(items.len());
    let mut looks = Looks::default();
    // Nothing gives way to a plain link, whenever it comes: what is not named is deleted, so that it comes to nothing.
    let unsure = items.iter().zip(&linked).filter(|(_, linked)| is_unsure(linked)).map(|(item, _)| item.uuid).collect();
    let named = looks.named(ctx, ws, unsure);
    let (mut results, mut left) = (Vec::with_capacity(items.len()), Vec::new());
    for ((item, c), linked) in items.iter().zip(&handles).zip(linked) {
        let (result, is_left) = match linked {
            Ok(()) => (Ok(Outcome::Stored), false),
            Err(e) if e.kind() == Kind::Exists && if_exists == IfExists::Skip => (Ok(Outcome::Skipped), true),
            Err(e) if e.kind() == Kind::Exists && if_exists == IfExists::Replace => {
                let replaced = looks.replace(ctx, ws, item, c);
                looks.settled(ctx, ws, item, replaced)
            }
            Err(_) if named.contains(&item.uuid) => (Ok(Outcome::Stored), false),
            Err(e) => (Err(e), true),
        };
        left.extend((is_left && !is_named(&result)).then_some(item.uuid));
        results.push(result);
    }
    let closed = each(ctx, handles.iter().map(close_op).collect());
    for ((item, result), closed) in items.iter().zip(&mut results).zip(closed) {
        // A promise that close keeps (persistence at close) is part of being stored.
        match closed {
            // What was there before is gone: this is all that there is.
            Err(e) if matches!(result, Ok(Outcome::Replaced)) => {
                *result = Err(e.context(format!("{:?} is replaced, and the new one stays, but", item.name)));
            }
            Err(e) if is_named(result) => {
                left.push(item.uuid);
                *result = Err(e);
            }
            _ => {}
        }
    }
    discard(ctx, ws, &left);
    results
}

fn is_named(result: &Result<Outcome>) -> bool {
    matches!(result, Ok(Outcome::Stored | Outcome::Replaced))
}

/// Runs operations; of each how it ended, and whether it may have taken effect.
fn each(ctx: &mut Ctx, ops: Vec<Lent<'_>>) -> Vec<Result<()>> {
    let n = ops.len();
    match ctx.batch(ops) {
        Ok(statuses) => statuses.iter().map(ended).collect(),
        Err(failure) => {
            let e = error(failure);
            (0..n).map(|_| Err(e.clone())).collect()
        }
    }
}

fn ended(status: &Status) -> Result<()> {
    status.result().map_err(|e| if status.outcome == Applied::NotApplied { e } else { e.with_outcome(status.outcome) })
}

/// Whether it failed, and may have taken effect all the same.
fn is_unsure<T>(result: &Result<T>) -> bool {
    result.as_ref().is_err_and(|e| e.outcome() != Applied::NotApplied)
}

fn is_unanswered(kind: Option<Kind>) -> bool {
    matches!(kind, Some(Kind::Timeout | Kind::Unavailable))
}

/// How often the store is asked for what it has not answered: each time takes as long as a request may.
const LOOKS: usize = 3;

/// What a store is asked for again while things get their names. Once it has left so many unanswered in a row it is not asked
/// for the others any more: all together they would take hours.
#[derive(Default)]
struct Looks {
    unanswered: usize,
}

impl Looks {
    fn heard(&mut self, is_answered: bool) {
        self.unanswered = if is_answered { 0 } else { self.unanswered + 1 };
    }

    fn is_over(&self, ctx: &Ctx) -> bool {
        // Who wants to go does not wait for a store that hangs.
        self.unanswered >= if ctx.stop.is_set() { 1 } else { LOOKS }
    }

    /// Where the answer of a store came too late to know what it has done: looks which of them have a name.
    fn named(&mut self, ctx: &Ctx, ws: &Workspace, uuids: Vec<Uuid>) -> HashSet<Uuid> {
        for _ in 0..LOOKS {
            // Looking is no use any more to who wants to go.
            if uuids.is_empty() || ctx.stop.is_set() || self.is_over(ctx) {
                break;
            }
            let found = crate::locate::find_uuids(ws, &uuids);
            self.heard(!is_unanswered(found.as_ref().err().and_then(Failure::kind)));
            if let Ok(found) = found {
                // The others may come yet.
                return found.into_iter().filter(|facts| facts.name.is_some()).map(|facts| facts.uuid).collect();
            }
        }
        HashSet::new()
    }

    /// The same of one that is to replace another; whether it is surely without a name.
    fn settled(
        &mut self,
        ctx: &mut Ctx,
        ws: &Workspace,
        item: &Unnamed,
        replaced: Result<Outcome>,
    ) -> (Result<Outcome>, bool) {
        if !is_unsure(&replaced) {
            let is_left = replaced.is_err();
            return (replaced, is_left);
        }
        if !self.named(ctx, ws, vec![item.uuid]).is_empty() {
            return (Ok(Outcome::Replaced), false);
        }
        let address = [ws.name().as_bytes(), b"/", item.uuid.to_string().as_bytes()].concat();
        ctx.warn(format_args!(
            "the new {:?} is {}: whether it has that name the store has not said. Look with iov ls -l before you remove either",
            item.name,
            quoted(&address)
        ));
        (replaced, false)
    }
}

/// How often another command may get in between before this one gives up.
const TRIES: usize = 16;

/// Takes the name from what has it, and gives it to the new one, at one point.
pub(crate) fn replace(ctx: &mut Ctx, ws: &Workspace, item: &Unnamed, c: &Collection) -> Result<Outcome> {
    Looks::default().replace(ctx, ws, item, c)
}

impl Looks {
    fn replace(&mut self, ctx: &mut Ctx, ws: &Workspace, item: &Unnamed, c: &Collection) -> Result<Outcome> {
        let group = item.parent.as_ref().map_or(Ok(Uuid::NIL), Collection::uuid)?;
        for _ in 0..TRIES {
            if self.is_over(ctx) {
                return Err(Error::unavailable("the store does not answer: this one was not tried"));
            }
            // Who only looks changes nothing, whether the answer comes or not.
            let there = crate::locate::find_in(ws, group, &Which::Name(item.name.clone()), &[])
                .map_err(|e| error(e).with_outcome(Applied::NotApplied));
            self.heard(!is_unanswered(there.as_ref().err().map(Error::kind)));
            let there = there?;
            if there.as_ref().is_some_and(|there| there.is_group()) {
                return Err(Error::exists(format!("{:?} is a group, which a collection cannot replace", item.name))
                    .with_clause(Clause::O3));
            }
            let result = if there.is_some() && c.effective()?.consistency != Consistency::Eventual {
                self.at_once(ctx, ws, item, c)
            } else {
                let result = match there {
                    None => link(ws, item, c, &item.name).map(|()| Outcome::Stored),
                    // No rollback batches there (B3): a rename over the old name is one step too.
                    Some(_) => over(ctx, ws, item, c).map(|()| Outcome::Replaced),
                };
                self.heard(!is_unanswered(result.as_ref().err().map(Error::kind)));
                result
            };
            match result {
                // Somebody else took or gave up the name meanwhile.
                Err(e) if matches!(e.kind(), Kind::Exists | Kind::NotFound | Kind::Conflict) => {}
                other => return other,
            }
        }
        Err(Error::conflict(format!("others keep changing {:?}: try again later", item.name)))
    }

    /// Does both or nothing. Where the answer is lost it is asked for again, which does nothing twice (B3).
    fn at_once(&mut self, ctx: &Ctx, ws: &Workspace, item: &Unnamed, c: &Collection) -> Result<Outcome> {
        let (id, mut looks) = (seam::new_uuid(), 0);
        loop {
            let which = Which::Name(item.name.clone());
            let delete = Op::Delete { w: ws.clone(), parent: item.parent.clone(), which };
            let link = Op::Link { c: c.clone(), parent: item.parent.clone(), name: item.name.clone() };
            let attr = BatchAttr { on_error: Some(OnError::Rollback), id: Some(id), ..BatchAttr::default() };
            let statuses = ioverbs::run_batch(ws.session(), attr, vec![delete.into(), link.into()])?;
            let done = first_failure(&statuses);
            self.heard(!is_unanswered(done.as_ref().err().map(Error::kind)));
            looks += 1;
            if !is_unsure(&done) || looks == LOOKS || ctx.stop.is_set() || self.is_over(ctx) {
                return done.map(|()| Outcome::Replaced);
            }
        }
    }
}

fn link(ws: &Workspace, item: &Unnamed, c: &Collection, name: &Name) -> Result<()> {
    let link = Op::Link { c: c.clone(), parent: item.parent.clone(), name: name.clone() };
    ioverbs::run(ws.session(), link).map(drop)
}

fn over(ctx: &mut Ctx, ws: &Workspace, item: &Unnamed, c: &Collection) -> Result<()> {
    let aside = Name::new(format!(".iov-{}", &seam::new_uuid().to_string()[5..]))?;
    let rename = Op::Rename {
        w: ws.clone(),
        from_parent: item.parent.clone(),
        from: aside.clone(),
        to_parent: item.parent.clone(),
        to: item.name.clone(),
        mode: RenameMode::Replace,
    };
    link(ws, item, c, &aside)?;
    let renamed = ioverbs::run(ws.session(), rename).map(drop);
    if renamed.is_err() {
        let delete = Op::Delete { w: ws.clone(), parent: item.parent.clone(), which: Which::Name(aside.clone()) };
        let deleted = ioverbs::run(ws.session(), delete);
        // It is not there any more where it has its name after all.
        if deleted.is_err_and(|e| e.kind() != Kind::NotFound) {
            ctx.warn(format_args!("{aside} was left behind: remove it with iov rm"));
        }
    }
    renamed
}

fn first_failure(statuses: &[Status]) -> Result<()> {
    let failed = statuses.iter().find(|s| s.state == ioverbs::OpState::Failed);
    failed.or(statuses.iter().find(|s| s.state != ioverbs::OpState::Ok)).map_or(Ok(()), ended)
}

fn error(failure: Failure) -> Error {
    match failure {
        Failure::Error { error, .. } => *error,
        _ => Error::internal("a lookup ended without an error"),
    }
}

/// Deletes collections that did not get a name. What cannot be deleted is told by its UUID.
pub(crate) fn discard(ctx: &mut Ctx, ws: &Workspace, uuids: &[Uuid]) {
    if uuids.is_empty() {
        return;
    }
    let delete = |uuid: &Uuid| Op::Delete { w: ws.clone(), parent: None, which: Which::Uuid(*uuid) }.into();
    let statuses = ctx.batch(uuids.iter().map(delete).collect());
    let failed = |i: usize| match &statuses {
        Ok(statuses) => statuses[i].result().err().filter(|e| e.kind() != Kind::NotFound),
        Err(_) => Some(Error::unavailable("the store did not answer")),
    };
    for (i, uuid) in uuids.iter().enumerate() {
        if let Some(e) = failed(i) {
            let address = [ws.name().as_bytes(), b"/", uuid.to_string().as_bytes()].concat();
            ctx.warn(format_args!("an incomplete collection was left behind: iov rm {} ({e})", quoted(&address)));
        }
    }
}
