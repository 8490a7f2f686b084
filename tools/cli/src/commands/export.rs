//! `iov export`: workspaces as plain files, with all that is known of them.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use ioverbs::{Error, Uuid, Which};

use crate::{
    address::Address,
    archive::{
        book::Export,
        walk::{Report, Walk},
    },
    ctx::Ctx,
    facts::{self, Facts, everything},
    failure::{Done, Failure, Next},
    locate::{What, find_in},
    output::JsonList,
};

/// Write workspaces to plain files, with all that is known of them beside
///
/// Each workspace becomes a directory, groups directories in it, collections files under their names; DIR/.iov-export says what files cannot
/// (metadata, controls, checksums), and iov import brings all of it back. An export that was interrupted is repeated into the
/// same DIR: what is there and unchanged is skipped. Nothing that an export has not put there is overwritten.
#[derive(clap::Args, Debug)]
#[command(override_usage = "iov export [OPTIONS] <ADDRESS>... <DIR>\n       iov export [OPTIONS] --all <DIR>")]
pub(crate) struct Args {
    /// What to export: WS, WS/GROUP or WS/NAME. Last where to
    #[arg(required = true, num_args = 1.., value_name = "ADDRESS… DIR")]
    what: Vec<OsString>,

    /// Every workspace that you may see
    #[arg(long)]
    all: bool,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let Some((dir, what)) = args.what.split_last() else {
        return Err(Error::invalid("there is no DIR: export takes what to export, and last where to").into());
    };
    let dir = Path::new(dir);
    if args.all != what.is_empty() {
        let why = match args.all {
            true => "--all exports everything: name nothing else, or leave it out",
            false => "name what to export before where to, or give --all",
        };
        return Err(Error::invalid(why).into());
    }
    let what = what.iter().map(|text| Address::parse(text)).collect::<ioverbs::Result<Vec<_>>>()?;
    // A store that cannot be read leaves nothing behind.
    let session = ctx.session_of(&what)?;
    check_place(ctx, dir)?;
    let mut addresses = what;
    if args.all {
        let mut results = facts::search_workspaces(&session, everything(&[]))?;
        while let Some(entry) = results.next()? {
            let workspace = Which::Uuid(entry.uuid);
            addresses.push(Address { store: None, workspace, path: Vec::new(), slash: false });
        }
    }
    let mut groups: Vec<(Uuid, Vec<Address>)> = Vec::new();
    for address in addresses {
        match ctx.workspace(&address) {
            Ok(ws) => match groups.iter_mut().find(|(uuid, _)| *uuid == ws.uuid()) {
                Some((_, list)) => list.push(address),
                None => groups.push((ws.uuid(), vec![address])),
            },
            Err(e) => ctx.tell(e)?,
        }
    }
    if groups.is_empty() && !args.all {
        // Each of them was told.
        return Ok(());
    }
    let mut export = Export::write(dir)?;
    let progress = ctx.progress("export", None);
    let mut report = Report { progress, json: JsonList::default(), exported: 0, unchanged: 0 };
    for (_, addresses) in &groups {
        let done = workspace(ctx, &mut export, &mut report, addresses);
        done.or_else(|e| if is_fatal(&e) { Err(e) } else { ctx.tell(e) })?;
    }
    let how = report.progress.end();
    if ctx.global.json {
        return ctx.end_list(&report.json);
    }
    ctx.summary(format_args!("{} exported, {} unchanged, {how}", report.exported, report.unchanged));
    Ok(())
}

/// Whether going on makes no sense.
fn is_fatal(failure: &Failure) -> bool {
    matches!(failure.kind(), None | Some(ioverbs::Kind::Cancelled))
}

/// A store is not exported into itself.
fn check_place(ctx: &mut Ctx, dir: &Path) -> Done {
    let url = ctx.url()?;
    let Some(store) = url.strip_prefix("file:") else { return Ok(()) };
    let Ok(store) = std::fs::canonicalize(store) else { return Ok(()) };
    let mut at: Option<PathBuf> = std::path::absolute(dir).ok();
    while let Some(path) = at {
        if std::fs::canonicalize(&path).is_ok_and(|path| path.starts_with(&store)) {
            let error = Error::invalid(format!("{} is in the store's own directory", dir.display()));
            return Err(error).next(|| "export into another directory".into());
        }
        at = path.parent().filter(|_| !path.exists()).map(Path::to_owned);
    }
    Ok(())
}

/// What was asked for of one workspace.
fn workspace(ctx: &mut Ctx, export: &mut Export, report: &mut Report, addresses: &[Address]) -> Done {
    let Some(first) = addresses.first() else { return Ok(()) };
    let ws = ctx.workspace(first)?;
    let whole = addresses.iter().any(|address| address.path.is_empty());
    let mut walk = Walk::begin(ctx, export, report, &ws)?;
    if whole {
        walk.everything(ctx)?;
    } else {
        for address in addresses {
            let done = path_of(ctx, address).and_then(|path| walk.part(ctx, &path));
            done.or_else(|e| if is_fatal(&e) { Err(e) } else { ctx.tell(e) })?;
        }
    }
    walk.finish(ctx)
}

/// The groups that lead to what an address names, and that itself.
fn path_of(ctx: &mut Ctx, address: &Address) -> Done<Vec<Facts>> {
    let located = ctx.locate(address)?;
    if let What::Missing(_) | What::Root = located.what {
        return located.facts().map(|_| Vec::new());
    }
    let last = located.facts()?.clone();
    if last.name.is_none() {
        let error = Error::invalid(format!("{address} has no name, and is exported with its whole workspace only"));
        return Err(error).next(|| format!("iov export {} DIR", address.workspace_quoted()));
    }
    let mut path = vec![last.clone()];
    let mut group = last.group;
    while !group.is_nil() {
        let found = find_in(&located.ws, Uuid::NIL, &Which::Uuid(group), facts::KEYS)?;
        let found = found.ok_or_else(|| Error::not_found(format!("{address}: its group is gone")))?;
        group = found.group;
        path.push(found);
    }
    path.reverse();
    Ok(path)
}
