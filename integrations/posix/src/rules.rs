//! What is promised of files by where they are made.

use std::{ffi::OsStr, os::unix::ffi::OsStrExt, path::Path, sync::Arc};

use globset::{GlobBuilder, GlobMatcher};
use ioverbs::{Controls, Error, Result, Status, fill};

use crate::{
    FileSystem, Kind, Node,
    fs::{lock, stat_of},
    promised,
};

/// A pattern of paths, and what is promised of the files that are made there.
#[derive(Clone, Debug)]
pub struct Rule {
    matcher: GlobMatcher,
    controls: Controls,
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
            return Err(wrong("begins at no root"));
        }
        let glob = GlobBuilder::new(pattern).literal_separator(true).build();
        let matcher = glob.map_err(|e| wrong(&format!("has a pattern that cannot be read ({e})")))?.compile_matcher();
        Ok(Rule { matcher, controls: promised::parse(promises)? })
    }
}

/// Where a directory is: in which one, and under which name.
pub(crate) type Place = Option<(Arc<Node>, Box<[u8]>)>;

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
            let place = (self.node(parent.uuid(), parent.kind()), name.into());
            let before = lock(&node.place).replace(place);
            // Not under the lock: it may be the last to have its parent.
            drop(before);
        } else {
            *lock(&node.found_in) = Some(parent.uuid());
        }
    }

    /// A name was moved, and looked at there: what is below it is elsewhere now.
    pub(crate) fn moved(&self, (parent, name): (&Node, &[u8]), looked: &Status) {
        // Where that failed it is placed when somebody looks next.
        if let (true, Ok(stat)) = (looked.result().is_ok(), stat_of(Some(looked))) {
            self.placed(&self.node(stat.uuid, Kind::of(stat.kind, stat.mode)), parent, name);
        }
    }
}

impl Node {
    /// Where a directory is, and where those above it are, as far as that is known.
    fn places(&self) -> impl Iterator<Item = (Arc<Node>, Box<[u8]>)> {
        let first = lock(&self.place).clone();
        // Two that were moved into each other's place while somebody looked: nobody's path is so long.
        std::iter::successors(first, |(parent, _)| lock(&parent.place).clone()).take(ioverbs::limits::GROUP_DEPTH)
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
