//! `iov get`: collections and groups into local files.

use std::{
    ffi::OsStr,
    os::unix::{ffi::OsStrExt, fs::DirBuilderExt},
    path::{Path, PathBuf},
};

use ioverbs::{Error, Uuid, Which, Workspace, posix};

use crate::{
    address::Address,
    commands::ws,
    ctx::Ctx,
    facts::{self, Facts, members},
    failure::{Done, Failure, Next, local},
    locate::{Spot, What},
    modes,
    options::IfExists,
    output::Out,
    quantity::Span,
    transfer::{
        download::{self, Way},
        fetch::Fetcher,
    },
};

/// Fetch a collection, or a group with all that is in it
///
/// The file takes its name when it is complete; until then it has none, or is FILE.*.part where the file system wants one. Holes stay holes, links links, and modes what the umask
/// leaves of them.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// WS/NAME; with -r also WS or WS/GROUP
    #[arg(value_parser = Address::parser())]
    address: Address,

    /// Where to; - is standard output. Default: the name, here
    file: Option<PathBuf>,

    /// A group becomes a directory
    #[arg(short, long)]
    recursive: bool,

    /// Only a part: FROM..TO, FROM.., ..TO or FROM+LENGTH, as in 1MiB+4KiB
    #[arg(long, conflicts_with = "recursive")]
    range: Option<String>,

    /// What to do where the file is there
    #[arg(long, value_enum, default_value = "replace", value_name = "WHAT")]
    if_exists: IfExists,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let span = args.range.as_deref().map_or(Ok(Span::default()), Span::parse)?;
    let located = ctx.locate(&args.address)?;
    let group = located.as_group();
    if group.is_some() && !args.recursive {
        let error = Error::invalid(format!("{} is no collection", args.address));
        return Err(error).next(|| format!("iov get -r {} fetches all that is in it", args.address.quoted()));
    }
    if let Some(path) = args.file.as_deref().filter(|path| Way::to(path) != Way::File) {
        located.collection()?;
        let spot = located.spot(ctx)?;
        let done = if Way::to(path) == Way::Out {
            download::to_out(ctx, &spot, span).map(drop)
        } else {
            let file = download::open_stream(path)?;
            let stdout = std::mem::replace(&mut ctx.out, Out::new(Box::new(file), false));
            let done = download::to_out(ctx, &spot, span).and_then(|_| ctx.out.flush());
            ctx.out = stdout;
            done
        };
        return done.map_err(|e| e.about(&args.address));
    }
    let label = match group {
        Some(_) => args.address.path.last().unwrap_or(&args.address.workspace).clone(),
        None => located.facts()?.name.clone().map_or(Which::Uuid(located.facts()?.uuid), Which::Name),
    };
    let target = target(args.file.as_deref(), &label)?;
    let mut fetcher = Fetcher::new(ctx, "get", args.if_exists);
    match group {
        None if modes::kind(located.facts()?) == modes::Kind::Other => {
            let why = format!("{} is a pipe, a socket or a device, and no file", args.address);
            return Err(Error::invalid(why)).next(|| "iov cp copies it within the store".into());
        }
        None => {
            let spot = located.spot(ctx)?;
            fetcher.add(ctx, spot, located.facts()?, args.address.clone(), target, span)?;
        }
        Some(group) => {
            let facts = match located.what {
                What::Root => ws::facts_of(&located.ws)?,
                _ => Some(located.facts()?.clone()),
            };
            make_directory(&target, facts.as_ref())?;
            tree(ctx, &mut fetcher, &located.ws, group, &args.address, &target)?
        }
    }
    fetcher.end(ctx)
}

/// The file or directory to write: the given one, in it if it is a directory, or the name itself.
fn target(file: Option<&Path>, label: &Which) -> Done<PathBuf> {
    match file {
        Some(file) if file.is_dir() => Ok(file.join(local_name(label)?)),
        Some(file) => Ok(file.to_owned()),
        None => local_name(label),
    }
}

/// A name as a local one. The two that lead elsewhere are not taken from a store.
fn local_name(label: &Which) -> Done<PathBuf> {
    match label {
        Which::Name(name) if matches!(name.as_bytes(), b"." | b"..") => {
            Err(Error::invalid(format!("{name:?} cannot be the name of a local file: name a file to write to")).into())
        }
        Which::Name(name) => Ok(PathBuf::from(OsStr::from_bytes(name.as_bytes()))),
        Which::Uuid(uuid) => Ok(PathBuf::from(uuid.to_string())),
    }
}

/// Makes a directory that is not there, for no more people than the group is for.
fn make_directory(path: &Path, facts: Option<&Facts>) -> Done {
    let failed = |e| local("the directory", path, e);
    if let Some(above) = path.parent().filter(|above| !above.as_os_str().is_empty()) {
        std::fs::create_dir_all(above).map_err(failed)?;
    }
    let mut builder = std::fs::DirBuilder::new();
    builder.mode(facts.map_or(0o777, modes::for_directory));
    match builder.create(path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => Ok(made.map_err(failed)?),
    }
}

fn tree(ctx: &mut Ctx, fetcher: &mut Fetcher, ws: &Workspace, group: Uuid, address: &Address, target: &Path) -> Done {
    let parent = ctx.open_group(ws, group)?;
    let mut groups = Vec::new();
    let mut results = facts::search(ws, members(group, &["iov.size", "iov.mode", posix::ACL_KEY]))?;
    while let Some(entry) = results.next()? {
        ctx.stop.check()?;
        let facts = Facts::new(entry);
        let Some(name) = facts.name.clone() else { continue };
        let which = Which::Name(name);
        let added = local_name(&which).and_then(|name| {
            let (address, target) = (address.join(which.clone()), target.join(name));
            if facts.is_group() {
                groups.push((facts.clone(), address, target));
                return Ok(());
            }
            let spot = Spot { ws: ws.clone(), parent: parent.clone(), which: which.clone() };
            fetcher.add(ctx, spot, &facts, address, target, Span::default())
        });
        added.or_else(|e| ctx.tell(e))?;
    }
    drop(results);
    for (facts, address, target) in groups {
        // It may have been fetched with what it leads to elsewhere.
        if target.is_symlink() {
            let error =
                Error::exists(format!("{} is a link, and is to be a directory: move it away", target.display()));
            ctx.tell(Failure::from(error).about(&address))?;
            continue;
        }
        make_directory(&target, Some(&facts))?;
        tree(ctx, fetcher, ws, facts.uuid, &address, &target)?;
    }
    Ok(())
}
