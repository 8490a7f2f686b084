//! `iov put`: local files into a workspace or group.

use std::{
    ffi::OsStr,
    os::unix::ffi::OsStrExt,
    path::{Path, PathBuf},
};

use ioverbs::{
    Clause, Collection, Controls, EntryKind, Error, Kind, Metadata, Name, Op, Parent, Uuid, Which, Workspace,
};

use crate::{
    address::Address,
    ctx::Ctx,
    failure::{Done, Next, local},
    locate::{Located, What, find_in},
    modes,
    options::{ControlArgs, IfExists, MetadataArgs},
    transfer::store::{Content, Item, Place, Storer},
};

/// Store files
///
/// In a workspace or group they keep their own names; one file may get a name of its own. A reader sees nothing of a file until all of it is stored; a put that fails leaves nothing behind. With
/// --if-exists replace a reader sees the old collection or the new one, never half of one. Holes stay holes.
#[derive(clap::Args, Debug)]
#[command(override_usage = "iov put [OPTIONS] <FILE>... <TARGET>")]
pub(crate) struct Args {
    /// What to store; - is standard input. Last where to: WS, WS/GROUP or WS/NAME
    // One list: behind `--` clap would still look for options between a list and what follows it.
    #[arg(required = true, num_args = 1.., value_name = "FILE… TARGET")]
    files: Vec<PathBuf>,

    #[command(flatten)]
    metadata: MetadataArgs,

    #[command(flatten)]
    controls: ControlArgs,

    /// Directories become groups
    #[arg(short, long)]
    recursive: bool,

    /// Make the groups of the target that are not there
    #[arg(short, long)]
    parents: bool,

    /// What to do where the name is taken
    #[arg(long, value_enum, default_value_t, value_name = "WHAT")]
    if_exists: IfExists,

    /// Say what was stored
    #[arg(short, long)]
    verbose: bool,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let Some((last, files @ [_, ..])) = args.files.split_last() else {
        return Err(Error::invalid("there is no TARGET: put takes files, and last where to put them").into());
    };
    let address = Address::parse(last.as_os_str()).map_err(|e| e.context("the target"))?;
    let metadata = args.metadata.read()?;
    let controls = args.controls.read()?;
    let (to, name) = target(ctx, args, &address, files.len())?;
    // A promise that cannot be given is refused before a byte is read.
    ctx.session()?.check_controls(Some(&to.ws), &controls)?;
    let storer = Storer::new(ctx, &to.ws, "put", files.len(), args.if_exists, args.verbose);
    let mut put = Put { args, ws: to.ws.clone(), metadata, controls, storer };
    for file in files {
        put.one(ctx, file, &to, name.clone()).or_else(|e| ctx.tell(e))?;
    }
    put.storer.end(ctx)
}

/// An open group and its address.
#[derive(Clone)]
struct Into {
    ws: Workspace,
    parent: Parent,
    group: Uuid,
    at: Address,
}

impl Into {
    fn place(&self, name: Name) -> Place {
        Place { parent: self.parent.clone(), at: self.at.clone(), name }
    }
}

/// Where the files go, and under which name, if that is given.
fn target(ctx: &mut Ctx, args: &Args, target: &Address, files: usize) -> Done<(Into, Option<Name>)> {
    let several = files > 1 || target.slash;
    if args.parents {
        let groups = if several { target.path.len() } else { target.path.len().saturating_sub(1) };
        make_groups(ctx, target, groups)?;
    }
    let located = ctx.locate(target)?;
    if let Some(group) = located.as_group() {
        let parent = ctx.open_group(&located.ws, group)?;
        let at = Address { slash: false, ..target.clone() };
        return Ok((Into { ws: located.ws, parent, group, at }, None));
    }
    if several && let What::Missing(name) = &located.what {
        let error =
            Error::not_found(format!("there is no group {name:?} in {}", target.parent())).with_clause(Clause::O3);
        return Err(error).next(|| "--parents (-p) makes it".into());
    }
    if several {
        return Err(Error::invalid(format!("{target} is no group: several files go into one"))
            .with_clause(Clause::O3)
            .into());
    }
    named(ctx, located)
}

fn named(ctx: &mut Ctx, located: Located) -> Done<(Into, Option<Name>)> {
    let name = match &located.what {
        What::Missing(name) => name.clone(),
        _ => located
            .facts()?
            .name
            .clone()
            .ok_or_else(|| Error::invalid("the target has no name: give it one as WS/NAME"))?,
    };
    let parent = ctx.open_group(&located.ws, located.group)?;
    Ok((Into { ws: located.ws, parent, group: located.group, at: located.address.parent() }, Some(name)))
}

/// Makes the first `n` components of an address, where they are not there.
fn make_groups(ctx: &mut Ctx, target: &Address, n: usize) -> Done {
    let top = Address { path: Vec::new(), slash: false, ..target.clone() };
    let ws = ctx.workspace(&top)?;
    let mut into = Into { ws, parent: None, group: Uuid::NIL, at: top };
    for part in &target.path[..n] {
        let Which::Name(name) = part else {
            return Err(Error::invalid(format!("{part} is no name: --parents makes groups by name")).into());
        };
        into = group(ctx, &into, name, None)?;
    }
    Ok(())
}

/// Opens a group of a group, or makes it with this mode.
fn group(ctx: &mut Ctx, into: &Into, name: &Name, mode: Option<u32>) -> Done<Into> {
    let which = Which::Name(name.clone());
    let out = into.ws.pending(EntryKind::Group);
    let create = Op::Create {
        out: out.clone(),
        parent: into.parent.clone(),
        name: Some(name.clone()),
        metadata: Metadata::new(),
        controls: Controls::default(),
    };
    let at = into.at.join(which.clone());
    let opened: Collection = match find_in(&into.ws, into.group, &which, &[])? {
        Some(facts) if !facts.is_group() => {
            return Err(Error::invalid(format!("{at} is a collection: it holds no names")).with_clause(Clause::O3))
                .next(|| "choose another name for the group".into());
        }
        Some(facts) => ctx.open(&into.ws, EntryKind::Group, facts.uuid).map_err(|e| e.about(&at))?,
        None => match modes::make(ctx, create, &out, mode)? {
            Ok(()) => out,
            // Somebody else was faster.
            Err(e) if e.kind() == Kind::Exists => {
                let out = into.ws.pending(EntryKind::Group);
                let open =
                    Op::Open { out: out.clone(), parent: into.parent.clone(), which, controls: Controls::default() };
                ioverbs::run(into.ws.session(), open)?;
                out
            }
            Err(e) => return Err(e.context(&at).into()),
        },
    };
    Ok(Into { ws: into.ws.clone(), group: opened.uuid()?, parent: Some(opened), at })
}

struct Put<'a> {
    args: &'a Args,
    ws: Workspace,
    metadata: Metadata,
    controls: Controls,
    storer: Storer,
}

impl Put<'_> {
    fn one(&mut self, ctx: &mut Ctx, file: &Path, to: &Into, name: Option<Name>) -> Done {
        if file.as_os_str() == "-" {
            let name = name.ok_or_else(|| Error::invalid("standard input has no name: give it one as WS/NAME"))?;
            let content = Content::Stream(ctx.stdin()?);
            let (metadata, controls) = (self.metadata.clone(), self.controls.clone());
            let source = file.to_owned();
            let item = Item { source, place: to.place(name), content, metadata, controls, mode: None };
            return self.storer.add(ctx, item);
        }
        let facts = file.metadata().map_err(|e| local("the file", file, e))?;
        let directory = facts.is_dir();
        let name = match name {
            Some(name) => name,
            None => base_name(file)?,
        };
        match (directory, self.args.recursive) {
            (false, _) => self.file(ctx, file, to, name),
            (true, true) => {
                let below = group(ctx, to, &name, Some(modes::of_local(&facts)))?;
                self.directory(ctx, file, &below)
            }
            (true, false) => Err(Error::invalid(format!("{} is a directory", file.display())))
                .next(|| "-r stores it as a group".into()),
        }
    }

    fn file(&mut self, ctx: &mut Ctx, file: &Path, to: &Into, name: Name) -> Done {
        debug_assert_eq!(self.ws.uuid(), to.ws.uuid());
        self.storer.add_file(ctx, file, to.place(name), self.metadata.clone(), self.controls.clone())
    }

    fn directory(&mut self, ctx: &mut Ctx, directory: &Path, to: &Into) -> Done {
        let failed = |e| local("the directory", directory, e);
        let entries = std::fs::read_dir(directory).map_err(failed)?.collect::<Result<Vec<_>, _>>();
        let mut entries = entries.map_err(failed)?;
        entries.sort_by_key(|e| e.file_name());
        for entry in entries {
            ctx.stop.check()?;
            self.entry(ctx, &entry, to).or_else(|e| ctx.tell(e))?;
        }
        Ok(())
    }

    fn entry(&mut self, ctx: &mut Ctx, entry: &std::fs::DirEntry, to: &Into) -> Done {
        use rustix::io::Errno;
        let path = entry.path();
        let name = Name::new(entry.file_name().as_bytes())?;
        let failed = |e| local("the file", &path, e);
        let kind = entry.file_type().map_err(failed)?;
        // A link to a file is its bytes; a link to a directory might lead in circles.
        let is_file = match path.metadata() {
            _ if !kind.is_symlink() => kind.is_file(),
            Ok(there) => there.is_file(),
            Err(e) if matches!(Errno::from_io_error(&e), Some(Errno::NOENT | Errno::NOTDIR | Errno::LOOP)) => {
                ctx.warn(format_args!("{} is a link that leads nowhere: left out", path.display()));
                return Ok(());
            }
            Err(e) => return Err(failed(e).into()),
        };
        if is_file {
            self.file(ctx, &path, to, name)
        } else if kind.is_dir() {
            let mode = path.metadata().map_err(failed)?;
            let below = group(ctx, to, &name, Some(modes::of_local(&mode)))?;
            self.directory(ctx, &path, &below)
        } else {
            ctx.warn(format_args!("{} is no file and no directory: left out", path.display()));
            Ok(())
        }
    }
}

/// The last part of a path, as a name.
fn base_name(path: &Path) -> Done<Name> {
    let name: Option<&OsStr> = path.file_name();
    let whole = || path.canonicalize().ok().and_then(|p| p.file_name().map(OsStr::to_owned));
    match name.map(OsStr::to_owned).or_else(whole) {
        Some(name) => Ok(Name::new(name.as_bytes())?),
        None => Err(Error::invalid(format!("{} has no name: give it one as WS/NAME", path.display())).into()),
    }
}
