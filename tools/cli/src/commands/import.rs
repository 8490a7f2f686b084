//! `iov import`: an export, or a plain directory, into workspaces.

use std::path::{Path, PathBuf};

use ioverbs::{Error, Name, Which};

use crate::{
    address::Address,
    archive::{
        book::Export,
        names::SIDECARS,
        restore::{How, Report, Restore, wait_for_age},
        tree::Tree,
    },
    ctx::Ctx,
    failure::{Done, Failure, Next},
    options::{ControlArgs, IfExists},
    output::{JsonList, printable},
};

/// Bring back what iov export has written, or store a plain directory
///
/// Workspaces, groups and collections come back with their names, metadata, controls, seals, times and, where nothing has them,
/// UUIDs. What differs from the checksums of the export is not stored. Of a plain directory files become collections,
/// directories groups.
#[derive(clap::Args, Debug)]
pub(crate) struct Args {
    /// The directory
    dir: PathBuf,

    /// The workspace: of an export one that is in it, or a new name if it holds one only; for a plain directory where to. Default: all
    /// that are in the export
    #[arg(value_parser = Address::parser())]
    workspace: Option<Address>,

    /// Put what is imported in the place of what has its name, each in one step
    #[arg(long)]
    replace: bool,

    /// Leave what has its name, and go on
    #[arg(long, conflicts_with = "replace")]
    skip_existing: bool,

    #[command(flatten)]
    controls: ControlArgs,
}

pub(crate) fn run(ctx: &mut Ctx, args: &Args) -> Done {
    let if_exists = match (args.replace, args.skip_existing) {
        (true, _) => IfExists::Replace,
        (_, true) => IfExists::Skip,
        _ => IfExists::Fail,
    };
    // What is written wrong is told before a byte is read.
    args.controls.read()?;
    let how = How { if_exists, controls: &args.controls };
    if !args.dir.is_dir() {
        return Err(Error::not_found(format!("there is no directory {}", args.dir.display())).into());
    }
    let asked = match &args.workspace {
        Some(address) => {
            address.only_workspace()?;
            ctx.use_store(address)?;
            match &address.workspace {
                Which::Name(name) => Some(name.clone()),
                Which::Uuid(_) => return Err(Error::invalid("name the workspace: its UUID is given to it").into()),
            }
        }
        None => None,
    };
    let progress = ctx.progress("import", None);
    let mut report = Report { progress, json: JsonList::default(), stored: 0, skipped: 0, renewed: 0 };
    match Export::read(&args.dir)? {
        Some(export) => {
            for (sidecar, name) in chosen(ctx, &export, asked)? {
                let tree = Tree::of_sidecar(&args.dir, &sidecar);
                let done = tree.map_err(Failure::from).and_then(|tree| one(ctx, &how, &mut report, &tree, name, false));
                done.or_else(|e| if is_fatal(&e) { Err(e) } else { ctx.tell(e) })?;
            }
        }
        None => {
            let name = asked.ok_or_else(|| plain(&args.dir))?;
            let tree = Tree::of_directory(ctx, &args.dir)?;
            one(ctx, &how, &mut report, &tree, Some(name), true)?;
        }
    }
    let done = report.progress.end();
    if ctx.global.json {
        return ctx.end_list(&report.json);
    }
    if report.renewed > 0 {
        ctx.warn(format_args!("{} have new UUIDs, as something in the store has the old ones", report.renewed));
    }
    let skipped = if report.skipped > 0 { format!(", {} skipped", report.skipped) } else { String::new() };
    ctx.summary(format_args!("{} stored{skipped}, {done}", report.stored));
    Ok(())
}

fn is_fatal(failure: &Failure) -> bool {
    matches!(failure.kind(), None | Some(ioverbs::Kind::Cancelled))
}

fn plain(dir: &Path) -> Failure {
    let error = Error::invalid(format!("{} is no export, and no workspace is named to store it in", dir.display()));
    let above = std::path::absolute(dir).ok().and_then(|dir| dir.parent().map(Path::to_owned));
    let next = match above.filter(|above| above.join(SIDECARS).is_dir()) {
        Some(above) => {
            format!("it is in an export: iov import {} WS", crate::output::quoted(above.as_os_str().as_encoded_bytes()))
        }
        None => "iov import DIR WS".into(),
    };
    Failure::Error { error: Box::new(error), next: Some(next) }
}

/// The sidecars to import, and under which name; `None`: its own.
fn chosen(ctx: &mut Ctx, export: &Export, asked: Option<Name>) -> Done<Vec<(PathBuf, Option<Name>)>> {
    let (sidecars, parts) = export.sidecars()?;
    if parts {
        ctx.warn(format_args!(
            "an export to {} was interrupted; what it had not ended is left out: repeat it",
            export.root.display()
        ));
    }
    if sidecars.is_empty() {
        return Err(Error::not_found(format!("{} holds no export that is complete", export.root.display())))
            .next(|| "repeat the export".into());
    }
    let Some(asked) = asked else { return Ok(sidecars.into_iter().map(|path| (path, None)).collect()) };
    let mut names = Vec::new();
    for path in &sidecars {
        // The others may well be damaged.
        let name = Tree::of_sidecar(&export.root, path).ok().and_then(|tree| tree.workspace).map(|line| line.name);
        if name.as_ref() == Some(&asked) {
            return Ok(vec![(path.clone(), None)]);
        }
        names.extend(name);
    }
    match <[PathBuf; 1]>::try_from(sidecars) {
        Ok([only]) => Ok(vec![(only, Some(asked))]),
        Err(_) => {
            let names: Vec<String> = names.iter().map(|name| printable(name.as_bytes())).collect();
            let why =
                format!("there is no workspace {asked:?} in the export, and it holds several: {}", names.join(", "));
            Err(Error::not_found(why)).next(|| "name one of them, or none for all".into())
        }
    }
}

fn one(ctx: &mut Ctx, how: &How<'_>, report: &mut Report, tree: &Tree, name: Option<Name>, may_be: bool) -> Done {
    let own = tree.workspace.as_ref().map(|line| line.name.clone());
    let name = name.or(own).ok_or_else(|| Error::internal("a tree without a name"))?;
    if tree.is_export() {
        wait_for_age(ctx, tree)?;
        let unlisted = tree.unlisted(ctx)?;
        if let Some(first) = unlisted.first() {
            ctx.warn(format_args!(
                "{} files are not of the export, and are left out: {}{}",
                unlisted.len(),
                tree.root.join(first).display(),
                if unlisted.len() > 1 { ", …" } else { "" }
            ));
        }
    }
    Restore::begin(ctx, how, report, tree, &name, may_be)?.finish(ctx)
}
