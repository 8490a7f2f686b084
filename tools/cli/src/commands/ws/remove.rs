//! Removing workspaces, and what a later release will do with them.

use ioverbs::{Clause, Error, Kind, Uuid, catalog::SearchSpec};

use crate::{
    address::Address,
    commands::rm,
    ctx::Ctx,
    facts::{self, everything},
    failure::{Done, Next},
    transfer::publish::discard,
};

pub(super) fn rm(ctx: &mut Ctx, names: &[Address], recursive: bool) -> Done {
    for name in names {
        one(ctx, name, recursive).or_else(|e| ctx.tell(e))?;
    }
    Ok(())
}

fn one(ctx: &mut Ctx, address: &Address, recursive: bool) -> Done {
    address.only_workspace()?;
    let ws = ctx.workspace(address)?;
    if recursive {
        rm::empty(ctx, &ws, Uuid::NIL)?;
        // What has no name is in no group.
        loop {
            ctx.stop.check()?;
            let page = facts::search(&ws, SearchSpec { limit: 1000, ..everything(&[]) })?.next_page(1000)?;
            let uuids: Vec<Uuid> = page.iter().map(|e| e.uuid).collect();
            discard(ctx, &ws, &uuids);
            if uuids.len() < 1000 {
                break;
            }
        }
    }
    let session = ws.session().clone();
    ws.close();
    match session.delete_workspace(address.workspace.clone()) {
        Err(e) if e.kind() == Kind::NotEmpty && !recursive => {
            Err(e).next(|| format!("iov ws rm -r {} removes it with all that is in it", address.quoted()))
        }
        done => Ok(done?),
    }
}

/// Release and restore move a workspace between tiers, and there is one tier so far.
pub(super) fn released(address: &Address, what: &str) -> Done {
    let error = Error::unsupported(format!(
        "{what} {address}: this release keeps every workspace on one tier; release and restore need a second one to move \
         its bytes to and from, which comes with campaigns"
    ))
    .with_clause(Clause::O1);
    let address = address.quoted();
    Err(error).next(|| {
        format!("iov get -r {address} DIR keeps a copy outside, iov ws rm -r {address} gives the space back, iov put -r brings it back")
    })
}
