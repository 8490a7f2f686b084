//! Putting in place what was fetched: nothing is overwritten that an export has not put there.

use std::path::{Path, PathBuf};

use ioverbs::{Error, Stat, Uuid};
use serde_json::json;

use super::{
    fetch::Fetched,
    records::{Line, MemberLine},
    walk::{Walk, Wanted, as_bytes, note},
};
use crate::{
    ctx::Ctx,
    failure::{Done, Failure, Next, local},
    output::json_name,
};

impl Walk<'_> {
    /// Puts files in place that are complete.
    pub(super) fn place(&mut self, ctx: &mut Ctx, ready: Vec<(Wanted, Fetched)>) -> Done {
        let mut lines = Vec::with_capacity(ready.len());
        for (wanted, fetched) in ready {
            let Wanted { mut line, file, before } = wanted;
            note(&mut line, &fetched.stat);
            line.size = fetched.sum.len;
            line.crc32c = fetched.sum.crc;
            line.file_mtime_ns = (fetched.file_mtime_ns != line.mtime_ns).then_some(fetched.file_mtime_ns);
            line.file = Some(file.clone());
            if let Err(e) = self.may_replace(&file) {
                let _ = std::fs::remove_file(&fetched.path);
                self.failed(ctx, Wanted { line, file, before }, e)?;
                continue;
            }
            self.book.announce(&Line::Collection(Box::new(line.clone())))?;
            lines.push((line, file, fetched.path));
        }
        self.book.told()?;
        for (line, file, from) in lines {
            let to = self.path(&file);
            if let Err(e) = std::fs::rename(&from, &to) {
                let _ = std::fs::remove_file(&from);
                let error = local("the file", &to, e).into();
                self.failed(ctx, Wanted { line, file, before: None }, error)?;
                continue;
            }
            self.report.exported += 1;
            self.end(ctx, line, file, "exported")?;
        }
        Ok(())
    }

    pub(super) fn keep(&mut self, ctx: &mut Ctx, wanted: Wanted, stat: &Stat) -> Done {
        let Wanted { mut line, file, before } = wanted;
        let before = before.ok_or_else(|| Error::internal("a file that nobody knows was kept"))?;
        note(&mut line, stat);
        (line.size, line.crc32c, line.file_mtime_ns) = (before.size, before.crc32c, before.file_mtime_ns);
        line.file = Some(file.clone());
        self.report.unchanged += 1;
        self.end(ctx, line, file, "unchanged")
    }

    fn end(&mut self, ctx: &mut Ctx, line: MemberLine, file: PathBuf, outcome: &str) -> Done {
        let (uuid, bytes) = (line.uuid, line.size);
        self.placed.insert(uuid);
        self.book.add(&Line::Collection(Box::new(line)))?;
        self.tell_json(ctx, uuid, &file, bytes, outcome)?;
        self.files.insert(file);
        Ok(())
    }

    pub(super) fn tell_json(&mut self, ctx: &mut Ctx, uuid: Uuid, file: &Path, bytes: u64, outcome: &str) -> Done {
        if !ctx.global.json {
            return Ok(());
        }
        let item = json!({
            "workspace": json_name(self.ws.name().as_bytes()),
            "file": json_name(as_bytes(&self.path(file))),
            "uuid": uuid.to_string(),
            "bytes": bytes,
            "outcome": outcome,
        });
        self.report.json.item(&mut ctx.out, &item)
    }

    /// Tells what went wrong, and writes it down, so that nobody takes the export for more than it is. What an earlier one has
    /// of it, unharmed, stays.
    pub(super) fn failed(&mut self, ctx: &mut Ctx, wanted: Wanted, failure: Failure) -> Done {
        let Wanted { mut line, file, before } = wanted;
        let kind = failure.kind().map_or("", |kind| kind.c_name());
        match before {
            Some(before) => {
                self.files.insert(file.clone());
                self.placed.insert(line.uuid);
                self.book.add(&Line::Collection(Box::new(before)))?;
            }
            None => {
                (line.error, line.file) = (Some(kind.to_owned()), None);
                self.book.add(&Line::Collection(Box::new(line)))?;
            }
        }
        let address = self.address(&file);
        ctx.tell(failure.about(address))
    }

    /// Fails for a file that no export has put there, or that was changed since.
    pub(super) fn may_replace(&self, file: &Path) -> Done {
        let path = self.path(file);
        let facts = match std::fs::symlink_metadata(&path) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(local("the file", &path, e).into()),
            Ok(facts) => facts,
        };
        if !self.files.contains(file) && self.book.known.has(file, &facts) {
            return Ok(());
        }
        let why = match self.files.contains(file) {
            true => "is another collection's: this file system takes their names for one",
            false => "is there already, and is not as an export has left it",
        };
        Err(Error::exists(format!("{} {why}", path.display())))
            .next(|| "move it away, or export into another directory".into())
    }
}
