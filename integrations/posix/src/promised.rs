//! What directories say of the files that are made in them and below: the attribute `user.posix.controls`, as `profile=checkpoint`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use ioverbs::{Controls, Kind as Failure, Op, Output, Result, Uuid, Value, fill, seam, text};

use crate::{Errno, FileSystem, Node, Outcome, fs::lock};

/// The metadata key of a group that says it.
pub(crate) const CONTROLS: &str = "posix.controls";
/// How long what a directory has said holds: as long as a name.
const FRESH: Duration = Duration::from_secs(1);

/// What a directory has said, when (monotonic clock), and how often that was changed here.
#[derive(Default)]
pub(crate) struct Said {
    now: Option<(Controls, i64)>,
    changes: u64,
}

/// Reads a profile's name, or `CONTROL=VALUE[,CONTROL=VALUE…]`.
pub(crate) fn parse(promised: &str) -> Result<Controls> {
    let mut controls = Controls::default();
    match promised.contains('=') {
        true => promised.split(',').try_for_each(|control| text::parse(&mut controls, control))?,
        false => text::parse(&mut controls, &format!("profile={promised}"))?,
    }
    Ok(controls)
}

/// Reads what a directory has under [`CONTROLS`].
fn read(value: &Value) -> Result<Controls> {
    match value {
        Value::Str(text) => parse(text),
        _ => Err(ioverbs::Error::invalid("it is no text")),
    }
    .map_err(|e| e.context(format!("{CONTROLS} of a directory")))
}

impl Node {
    /// It has just been made: nobody has given it controls.
    pub(crate) fn says_nothing(&self) {
        lock(&self.said).now = Some((Controls::default(), seam::monotonic_ns()));
    }

    /// What it says has changed.
    pub(crate) fn unsay(&self) {
        let mut said = lock(&self.said);
        (said.now, said.changes) = (None, said.changes + 1);
    }

    fn said(&self) -> Option<Controls> {
        let fresh = |(_, at_ns): &(Controls, i64)| seam::monotonic_ns() - at_ns < FRESH.as_nanos() as i64;
        lock(&self.said).now.as_ref().filter(|said| fresh(said)).map(|(controls, _)| controls.clone())
    }
}

impl FileSystem {
    /// What a directory and those above it say of what is made in it, the nearest first. The root says nothing: that is what the
    /// workspace's controls are for.
    pub(crate) fn promised(&self, parent: &Node) -> Outcome<Controls> {
        self.place_anew(parent, usize::MAX, FRESH)?;
        let mut dirs = vec![self.node(parent.uuid(), parent.kind())];
        dirs.extend(parent.above());
        dirs.retain(|dir| !dir.uuid().is_nil());
        let mut known: HashMap<Uuid, Controls> =
            dirs.iter().filter_map(|dir| dir.said().map(|said| (dir.uuid(), said))).collect();
        let asked = self.ask(&dirs.iter().filter(|dir| !known.contains_key(&dir.uuid())).collect::<Vec<_>>())?;
        known.extend(asked);
        let mut controls = Controls::default();
        dirs.iter().filter_map(|dir| known.get(&dir.uuid())).for_each(|said| fill(&mut controls, said));
        Ok(controls)
    }

    /// Asks directories what they say, in one request.
    fn ask(&self, dirs: &[&Arc<Node>]) -> Outcome<Vec<(Uuid, Controls)>> {
        if dirs.is_empty() {
            return Ok(Vec::new());
        }
        let mut all = Vec::new();
        let get = |dir: &&Arc<Node>| Ok(Op::MetaGet { c: dir.group()?, key: CONTROLS.to_owned() }.into());
        let at_ns = seam::monotonic_ns();
        let before: Vec<u64> = dirs.iter().map(|dir| lock(&dir.said).changes).collect();
        let statuses = self.again("getxattr", || {
            let ops = dirs.iter().map(get).collect::<Outcome<Vec<_>>>();
            self.try_all(ops.map_err(|_| ioverbs::Error::internal("a directory is above a file"))?)
        })?;
        for ((dir, status), before) in dirs.iter().zip(&statuses).zip(before) {
            let said = match (status.result(), &status.output) {
                // It, or what it said, is gone.
                (Err(e), _) if e.kind() == Failure::NotFound => Ok(Controls::default()),
                (Err(e), _) => Err(e),
                (Ok(()), Output::Value(value)) => read(value),
                _ => return Err(Errno::EIO),
            };
            let told = said.map_err(|e| self.errno("controls", &e))?;
            all.push((dir.uuid(), told.clone()));
            let mut said = lock(&dir.said);
            // What is set meanwhile is asked for next time.
            if said.changes == before {
                said.now = Some((told, at_ns));
            }
        }
        Ok(all)
    }
}
