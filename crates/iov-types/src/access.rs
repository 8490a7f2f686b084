//! Who asks, and who may (A1, A2).

use crate::{Error, Result, Uuid};

/// The identity behind a request, as the transport proved it (A2), and the session it belongs to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Caller {
    /// User id.
    pub uid: u32,
    /// Primary group id.
    pub gid: u32,
    /// Supplementary group ids.
    pub groups: Vec<u32>,
    /// The session; exclusive holds, locks and open handles belong to it.
    pub session: Uuid,
    /// The holder that the session acts for: itself, or the one whose token it joined (X1).
    pub holder: Uuid,
}

/// What may be done.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Right {
    /// Look up, read, search.
    Read = 1,
    /// Create, write, delete, and read.
    Write = 2,
    /// Change the workspace itself, and all else.
    Admin = 3,
}

/// The highest right somebody has; `None` is none at all.
pub type Rights = Option<Right>;

/// Whom an access entry names.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Subject {
    /// A user id.
    User(u32),
    /// A group id.
    Group(u32),
    /// Everybody.
    Any,
}

/// One line of an access list.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AccessEntry {
    /// Who.
    pub subject: Subject,
    /// May do what.
    pub right: Right,
}

/// A workspace's access list; the owner has every right without being in it.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AccessList {
    /// Its entries, in the order given.
    pub entries: Vec<AccessEntry>,
}

impl AccessList {
    /// Reads `user:bob=read,group:cfd=write,any=read`; `lookup(is_group, name)` turns names into ids.
    pub fn parse(text: &str, lookup: &dyn Fn(bool, &str) -> Option<u32>) -> Result<AccessList> {
        let mut entries = Vec::new();
        for item in text.split(',').map(str::trim).filter(|s| !s.is_empty()) {
            let wrong = |why: &str| Error::invalid(format!("access entry {item:?} {why}, as in \"user:bob=read\""));
            let (who, right) = item.split_once('=').ok_or_else(|| wrong("has no '='"))?;
            let right = match right.trim() {
                "read" => Right::Read,
                "write" => Right::Write,
                "admin" => Right::Admin,
                other => return Err(wrong(&format!("grants {other:?}: it is one of read, write, admin"))),
            };
            let subject = match who.trim().split_once(':') {
                Some(("user", name)) => {
                    Subject::User(id(name, false, lookup).ok_or_else(|| wrong("names an unknown user"))?)
                }
                Some(("group", name)) => {
                    Subject::Group(id(name, true, lookup).ok_or_else(|| wrong("names an unknown group"))?)
                }
                None if who.trim() == "any" => Subject::Any,
                _ => return Err(wrong("does not begin with user:, group: or any")),
            };
            entries.push(AccessEntry { subject, right });
        }
        Ok(AccessList { entries })
    }

    /// The highest right of a caller who is not the owner.
    pub fn rights(&self, caller: &Caller) -> Rights {
        self.entries
            .iter()
            .filter(|e| match e.subject {
                Subject::User(u) => u == caller.uid,
                Subject::Group(g) => g == caller.gid || caller.groups.contains(&g),
                Subject::Any => true,
            })
            .map(|e| e.right)
            .max_by_key(|r| *r as u8)
    }
}

fn id(name: &str, group: bool, lookup: &dyn Fn(bool, &str) -> Option<u32>) -> Option<u32> {
    name.parse().ok().or_else(|| lookup(group, name))
}
