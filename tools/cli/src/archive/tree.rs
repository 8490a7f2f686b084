//! What is to be imported: a workspace of an export, as its sidecar tells, or a plain directory.

use std::path::{Path, PathBuf};

use ioverbs::{Error, Result, Uuid, seam};

use super::{
    book::{read_lines, time_of},
    names::{SIDECARS, name_of},
    records::{Line, LinkLine, MemberLine, WorkspaceLine},
};
use crate::{
    ctx::Ctx,
    failure::{Done, local},
    modes,
};

/// A workspace to be.
pub(crate) struct Tree {
    /// Of an export.
    pub(crate) workspace: Option<WorkspaceLine>,
    /// Where its files are.
    pub(crate) root: PathBuf,
    /// Each behind the one that holds it.
    pub(crate) groups: Vec<MemberLine>,
    pub(crate) collections: Vec<MemberLine>,
    pub(crate) links: Vec<LinkLine>,
}

impl Tree {
    /// Reads a sidecar.
    pub(crate) fn of_sidecar(export: &Path, sidecar: &Path) -> Result<Tree> {
        let (mut workspace, mut groups, mut collections, mut links) = (None, Vec::new(), Vec::new(), Vec::new());
        let mut head = false;
        let ended = read_lines(sidecar, |line| {
            match line {
                Line::Head => head = true,
                _ if !head => return Err(Error::corrupt("it does not begin as the sidecar of an export")),
                Line::Workspace(line) => workspace = Some(*line),
                Line::Group(line) => groups.push(*line),
                Line::Collection(line) => collections.push(*line),
                Line::Link(line) => links.push(line),
                Line::End(_) => {}
            }
            Ok(())
        })?;
        let wrong = |why: &str| Err(Error::corrupt(format!("{}: {why}", sidecar.display())));
        if !ended {
            return wrong("its end is missing: copy it again, or export again");
        }
        let Some(line) = workspace else { return wrong("it tells of no workspace") };
        let root = export.join(&line.directory);
        Ok(Tree { workspace: Some(line), root, groups, collections, links })
    }

    /// Files that are there and not listed.
    pub(crate) fn unlisted(&self, ctx: &mut Ctx) -> Done<Vec<PathBuf>> {
        use std::collections::HashSet;
        let listed = self.collections.iter().filter_map(|line| line.file.as_deref());
        let listed: HashSet<&Path> = listed.chain(self.links.iter().filter_map(|line| line.file.as_deref())).collect();
        let (mut out, mut folders) = (Vec::new(), vec![PathBuf::new()]);
        while let Some(folder) = folders.pop() {
            ctx.stop.check()?;
            let path = self.root.join(&folder);
            let wrong = |e| local("the directory", &path, e);
            for entry in std::fs::read_dir(&path).map_err(wrong)? {
                let entry = entry.map_err(wrong)?;
                let file = folder.join(entry.file_name());
                match entry.file_type().map_err(wrong)?.is_dir() {
                    true => folders.push(file),
                    false if listed.contains(&*file) => {}
                    false => out.push(file),
                }
            }
        }
        out.sort();
        Ok(out)
    }

    /// Takes a plain directory: directories become groups, files collections. What is neither is left out, and told.
    pub(crate) fn of_directory(ctx: &mut Ctx, root: &Path) -> Done<Tree> {
        let (groups, collections, links) = (Vec::new(), Vec::new(), Vec::new());
        let mut tree = Tree { workspace: None, root: root.to_owned(), groups, collections, links };
        let mut folders = vec![(PathBuf::new(), Uuid::NIL)];
        while let Some((folder, parent)) = folders.pop() {
            ctx.stop.check()?;
            let path = root.join(&folder);
            let wrong = |e| local("the directory", &path, e);
            let entries = std::fs::read_dir(&path).map_err(wrong)?.collect::<std::io::Result<Vec<_>>>();
            let mut entries = entries.map_err(wrong)?;
            entries.sort_by_key(|entry| entry.file_name());
            for entry in entries {
                tree.entry(ctx, &entry, &folder, parent, &mut folders).or_else(|e| ctx.tell(e))?;
            }
        }
        Ok(tree)
    }

    fn entry(
        &mut self,
        ctx: &mut Ctx,
        entry: &std::fs::DirEntry,
        folder: &Path,
        parent: Uuid,
        folders: &mut Vec<(PathBuf, Uuid)>,
    ) -> Done {
        let path = entry.path();
        let Some(name) = name_of(&entry.file_name())? else {
            if entry.file_name() != SIDECARS {
                ctx.warn(format_args!("{} is of an export: left out", path.display()));
            }
            return Ok(());
        };
        let is_link = entry.file_type().map_err(|e| local("the file", &path, e))?.is_symlink();
        let facts = match path.metadata() {
            Ok(facts) => facts,
            Err(_) if is_link => {
                ctx.warn(format_args!("{} is a link that leads nowhere: left out", path.display()));
                return Ok(());
            }
            Err(e) => return Err(local("the file", &path, e).into()),
        };
        // For others to refer to; what it will be is not known yet.
        let uuid = seam::new_uuid();
        let file = folder.join(entry.file_name());
        let mode = Some(i64::from(modes::of_local(&facts)));
        let line =
            MemberLine { uuid, parent, name: Some(name), file: Some(file.clone()), mode, ..MemberLine::default() };
        if facts.is_file() {
            self.collections.push(MemberLine { size: facts.len(), mtime_ns: time_of(&facts), ..line });
        } else if facts.is_dir() && !is_link {
            self.groups.push(line);
            folders.push((file, uuid));
        } else {
            // A link to a directory might lead in circles.
            ctx.warn(format_args!("{} is no file and no directory: left out", path.display()));
        }
        Ok(())
    }

    /// Whether it is of an export: then every identity and checksum is known.
    pub(crate) fn is_export(&self) -> bool {
        self.workspace.is_some()
    }
}
