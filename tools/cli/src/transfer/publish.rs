//! Giving names to what is complete: a reader sees the old collection or the new one, never half of one.

use ioverbs::{
    BatchAttr, Clause, Collection, Consistency, EntryKind, Error, Kind, Lent, Name, OnError, Op, Parent, Result,
    Status, Uuid, Which, Workspace, catalog::RenameMode, seam,
};

use crate::{ctx::Ctx, facts::close_op, failure::Done, options::IfExists, output::quoted};

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

/// Gives each its name. What does not get one is deleted again.
pub(crate) fn publish(
    ctx: &mut Ctx,
    ws: &Workspace,
    items: &[Unnamed],
    if_exists: IfExists,
) -> Done<Vec<Result<Outcome>>> {
    let handles: Vec<Collection> = items.iter().map(|_| ws.pending(EntryKind::Collection)).collect();
    let mut ops: Vec<Lent<'_>> = Vec::with_capacity(items.len() * 2);
    for (item, c) in items.iter().zip(&handles) {
        let which = Which::Uuid(item.uuid);
        ops.push(Op::Open { out: c.clone(), parent: None, which, controls: Default::default() }.into());
    }
    for (item, c) in items.iter().zip(&handles) {
        ops.push(Op::Link { c: c.clone(), parent: item.parent.clone(), name: item.name.clone() }.into());
    }
    let linked = ctx.batch(ops)?.split_off(items.len());
    let mut results = Vec::with_capacity(items.len());
    for ((item, c), status) in items.iter().zip(&handles).zip(linked) {
        results.push(match status.result() {
            Ok(()) => Ok(Outcome::Stored),
            Err(e) if e.kind() == Kind::Exists => match if_exists {
                IfExists::Skip => Ok(Outcome::Skipped),
                IfExists::Replace => replace(ctx, ws, item, c),
                IfExists::Fail => Err(e),
            },
            Err(e) => Err(e),
        });
    }
    let closed = ctx.batch(handles.iter().map(close_op).collect())?;
    let named = |r: &Result<Outcome>| matches!(r, Ok(Outcome::Stored | Outcome::Replaced));
    for (result, status) in results.iter_mut().zip(closed) {
        // A promise that close keeps (persistence at close) is part of being stored.
        if named(result)
            && let Err(e) = status.result()
        {
            *result = Err(e);
        }
    }
    let left: Vec<Uuid> = items.iter().zip(&results).filter(|(_, r)| !named(r)).map(|(item, _)| item.uuid).collect();
    discard(ctx, ws, &left);
    Ok(results)
}

/// How often another command may get in between before this one gives up.
const TRIES: usize = 16;

/// Takes the name from what has it, and gives it to the new one, at one point.
pub(crate) fn replace(ctx: &mut Ctx, ws: &Workspace, item: &Unnamed, c: &Collection) -> Result<Outcome> {
    let group = item.parent.as_ref().map_or(Ok(Uuid::NIL), Collection::uuid)?;
    for _ in 0..TRIES {
        let there = crate::locate::find_in(ws, group, &Which::Name(item.name.clone()), &[]).map_err(error)?;
        if there.as_ref().is_some_and(|there| there.is_group()) {
            return Err(Error::exists(format!("{:?} is a group, which a collection cannot replace", item.name))
                .with_clause(Clause::O3));
        }
        let link = Op::Link { c: c.clone(), parent: item.parent.clone(), name: item.name.clone() };
        let result = if there.is_none() {
            ioverbs::run(ws.session(), link).map(|_| Outcome::Stored)
        } else if c.effective()?.consistency == Consistency::Eventual {
            // No rollback batches there (B3): a rename over the old name is one step too.
            over(ctx, ws, item, c).map(|()| Outcome::Replaced)
        } else {
            let delete =
                Op::Delete { w: ws.clone(), parent: item.parent.clone(), which: Which::Name(item.name.clone()) };
            let attr = BatchAttr { on_error: Some(OnError::Rollback), ..BatchAttr::default() };
            let statuses = ioverbs::run_batch(ws.session(), attr, vec![delete.into(), link.into()])?;
            first_failure(&statuses).map(|()| Outcome::Replaced)
        };
        match result {
            // Somebody else took or gave up the name meanwhile.
            Err(e) if matches!(e.kind(), Kind::Exists | Kind::NotFound | Kind::Conflict) => {}
            other => return other,
        }
    }
    Err(Error::conflict(format!("others keep changing {:?}: try again later", item.name)))
}

fn over(ctx: &mut Ctx, ws: &Workspace, item: &Unnamed, c: &Collection) -> Result<()> {
    let aside = Name::new(format!(".iov-{}", &seam::new_uuid().to_string()[5..]))?;
    let link = Op::Link { c: c.clone(), parent: item.parent.clone(), name: aside.clone() };
    let rename = Op::Rename {
        w: ws.clone(),
        from_parent: item.parent.clone(),
        from: aside.clone(),
        to_parent: item.parent.clone(),
        to: item.name.clone(),
        mode: RenameMode::Replace,
    };
    ioverbs::run(ws.session(), link)?;
    let renamed = ioverbs::run(ws.session(), rename).map(drop);
    if renamed.is_err() {
        let delete = Op::Delete { w: ws.clone(), parent: item.parent.clone(), which: Which::Name(aside.clone()) };
        if ioverbs::run(ws.session(), delete).is_err() {
            ctx.warn(format_args!("{aside} was left behind: remove it with iov rm"));
        }
    }
    renamed
}

fn first_failure(statuses: &[Status]) -> Result<()> {
    let failed = statuses.iter().find(|s| s.state == ioverbs::OpState::Failed);
    failed.or(statuses.iter().find(|s| s.state != ioverbs::OpState::Ok)).map_or(Ok(()), Status::result)
}

fn error(failure: crate::failure::Failure) -> Error {
    match failure {
        crate::failure::Failure::Error { error, .. } => *error,
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
