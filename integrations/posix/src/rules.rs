//! What is promised of files by where they are made.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc, time::Duration};

use globset::{GlobBuilder, GlobMatcher};
use ioverbs::{Controls, Error, Op, Output, Result, Status, Uuid, Value, fill, seam};

use crate::{
    FileSystem, Kind, Node, Outcome,
    fs::{lock, stat_of},
    promised,
};

/// A pattern of paths, and what is promised of the files that are made there.
#[derive(Clone, Debug)]
pub struct Rule {
    matcher: GlobMatcher,
    pub(crate) controls: Controls,
}

impl Rule {
    /// Reads `PATTERN=PROFILE`, as `/checkpoints/**=checkpoint`, or `PATTERN=CONTROL=VALUE[,CONTROL=VALUE…]`. Paths begin at the
    /// root of the file system; `*` and `?` stay within a name, `**` does not.
    pub fn parse(rule: &str) -> Result<Rule> {
        let wrong = |why: &str| {
            Error::invalid(format!("{rule:?} {why}: a rule is PATTERN=PROFILE, as /checkpoints/**=checkpoint"))
        };
        let (pattern, promises) = rule.split_once('=').ok_or_else(|| wrong("says no profile"))?;
        if !pattern.starts_with('/') {
            return Err(wrong("does not begin with / (patterns of paths begin at the root of the workspace)"));
        }
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        let matcher = glob.map_err(|e| wrong(&format!("has a pattern that cannot be read ({e})")))?.compile_matcher();
        Ok(Rule { matcher, controls: promised::parse(promises)? })
    }
}

/// Where a directory is: in which one, under which name, and when that was found (monotonic clock).
#[derive(Clone)]
pub(crate) struct Place {
    parent: Arc<Node>,
    name: Box<[u8]>,
    at_ns: i64,
}

impl FileSystem {
    /// What the rules say of a file of this name: of several that fit the last one, where that says nothing the one before, and
    /// so on.
    pub(crate) fn ruled(&self, parent: &Node, name: Option<&[u8]>) -> Controls {
        let mut controls = Controls::default();
        let rules = &self.0.options.rules;
        if !rules.is_empty() {
            let mut path = path_of(parent);
            path.push(b'/');
            path.extend_from_slice(name.unwrap_or_default());
            let path = Path::new(OsStr::from_bytes(&path));
            rules
                .iter()
                .rev()
                .filter(|rule| rule.matcher.is_match(path))
                .for_each(|rule| fill(&mut controls, &rule.controls));
        }
        controls
    }

    /// A directory was found in another one.
    pub(crate) fn placed(&self, node: &Node, parent: &Node, name: &[u8]) {
        if node.kind() == Kind::Directory {
            self.place(node, parent, name, seam::monotonic_ns());
        } else {
            *lock(&node.found_in) = Some(parent.uuid());
        }
    }

    /// Where a directory was at a time; where it has been moved since it is known better.
    pub(crate) fn place(&self, node: &Node, parent: &Node, name: &[u8], at_ns: i64) {
        let place = Place { parent: self.node(parent.uuid(), parent.kind()), name: name.into(), at_ns };
        let mut known = lock(&node.place);
        let older = known.as_ref().is_none_or(|known| known.at_ns <= at_ns);
        let before = if older { known.replace(place) } else { Some(place) };
        drop(known);
        // Not under the lock: it may be the last to have its parent.
        drop(before);
    }

    /// A name was moved, and looked at there: what is below it is elsewhere now.
    pub(crate) fn moved(&self, (parent, name): (&Node, &[u8]), looked: &Status) {
        // Where that failed it is placed when somebody looks next.
        if let (true, Ok(stat)) = (looked.result().is_ok(), stat_of(Some(looked))) {
            self.placed(&self.node(stat.uuid, Kind::of(stat.kind, stat.mode)), parent, name);
        }
    }
}

impl FileSystem {
    /// Looks where a directory is, and those above it up to `levels`, as far as that was not found within this time: others may have
    /// moved them. Of what is gone it is known where it was.
    pub(crate) fn place_anew(&self, node: &Node, levels: usize, within: Duration) -> Outcome<()> {
        // Those that one look has placed may be below others than before.
        for _ in 0..levels.min(ioverbs::limits::GROUP_DEPTH) {
            let now_ns = seam::monotonic_ns();
            let is_stale = |node: &Arc<Node>| {
                let age = lock(&node.place).as_ref().map(|place| now_ns - place.at_ns);
                !node.uuid().is_nil()
                    && age.is_none_or(|age| u128::try_from(age).is_ok_and(|age| age >= within.as_nanos()))
            };
            let all = std::iter::once(self.node(node.uuid(), node.kind())).chain(node.above()).take(levels);
            let stale: Vec<_> = all.filter(is_stale).collect();
            if stale.is_empty() || !self.look_where(&stale)? {
                break;
            }
        }
        Ok(())
    }

    /// Asks where directories are; whether any is in another one than was known, or in one of which that is not known.
    fn look_where(&self, dirs: &[Arc<Node>]) -> Outcome<bool> {
        let asked_ns = seam::monotonic_ns();
        let statuses = self.again("..", || {
            let ask = |dir: &Arc<Node>| {
                let c = dir.group().map_err(|_| Error::internal("a directory is above a file"))?;
                let get = |key: &str| Op::MetaGet { c: c.clone(), key: key.to_owned() }.into();
                Ok([get("iov.group"), get("iov.name")])
            };
            self.try_all(dirs.iter().map(ask).collect::<Result<Vec<_>>>()?.into_iter().flatten().collect())
        })?;
        let mut moved = false;
        for (dir, told) in dirs.iter().zip(statuses.chunks_exact(2)) {
            let [Status { output: Output::Value(Value::Str(group)), .. }, Status { output: Output::Value(name), .. }] =
                told
            else {
                // It is gone, or nobody can tell.
                if let Some(place) = &mut *lock(&dir.place) {
                    place.at_ns = place.at_ns.max(asked_ns);
                }
                continue;
            };
            let (Ok(group), Some(name)) = (Uuid::parse(group), bytes_of(name)) else { continue };
            let parent = self.node(group, Kind::Directory);
            moved |= dir.above().next().is_none_or(|known| known.uuid() != group)
                || (!group.is_nil() && lock(&parent.place).is_none());
            self.place(dir, &parent, name, asked_ns);
        }
        Ok(moved)
    }
}

/// A name as the store tells it.
fn bytes_of(name: &Value) -> Option<&[u8]> {
    match name {
        Value::Str(text) => Some(text.as_bytes()),
        Value::Bytes(bytes) => Some(bytes),
        _ => None,
    }
}

impl Node {
    /// Where a directory is, and where those above it are, as far as that is known.
    fn places(&self) -> impl Iterator<Item = (Arc<Node>, Box<[u8]>)> {
        let first = lock(&self.place).clone();
        // Two that were moved into each other's place while somebody looked: nobody's path is so long.
        let places = std::iter::successors(first, |place| lock(&place.parent.place).clone());
        places.map(|place| (place.parent, place.name)).take(ioverbs::limits::GROUP_DEPTH)
    }

    /// The directories above it, the nearest first.
    pub(crate) fn above(&self) -> impl Iterator<Item = Arc<Node>> {
        self.places().map(|(parent, _)| parent)
    }
}

/// The path of a directory, as far as it is known: the root's is empty.
pub(crate) fn path_of(node: &Node) -> Vec<u8> {
    let names: Vec<Box<[u8]>> = node.places().map(|(_, name)| name).collect();
    names.iter().rev().flat_map(|name| std::iter::once(b'/').chain(name.iter().copied())).collect()
}
