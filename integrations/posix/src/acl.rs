//! Access control lists of POSIX (`acl(5)`): who may do what, besides the owner, the group and others.
//!
//! Programs read and write them as the attributes `system.posix_acl_access` and `system.posix_acl_default`, in the form of the kernel
//! (`linux/posix_acl_xattr.h`). A list is kept in the metadata as text, as `getfacl` abbreviates it, with numbers, so that it can be
//! searched and goes along in exports: `u::rw-,u:1000:r--,g::r--,m::r--,o::---`. The catalog says in a mode that there is one
//! ([`ioverbs::posix`]), so nobody asks where there is none. What `chmod` can say as well, which is what the owner, the mask (without one, the group) and others
//! may do, is as the mode says: whoever reads a list reads it so, and `chmod` has nothing to do with it.

use std::{sync::Arc, time::Duration};

use ioverbs::{
    Attr, Metadata, Op, Output, Value,
    posix::{ACL_KEY, DEFAULT_ACL_KEY},
    seam,
};

use crate::{Attributes, Caller, Change, Errno, Kind, Node, Outcome, fs::lock};

/// The attribute of a file or directory.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The attribute of a directory: what is made in it gets that list.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";

/// The version of the kernel's form that there is.
const VERSION: u32 = 2;
/// Most bytes of that form, as many as the kernel takes from a mount.
const MOST: usize = 4096;
/// Whose an entry is where its tag says that already.
const NOBODY: u32 = u32::MAX;
/// Whom an entry is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Tag {
    Owner,
    User(u32),
    Group,
    NamedGroup(u32),
    /// Nobody but owner and others may do more than this.
    Mask,
    Other,
}

impl Tag {
    /// As the kernel numbers it.
    fn number(self) -> (u16, u32) {
        match self {
            Tag::Owner => (0x01, NOBODY),
            Tag::User(uid) => (0x02, uid),
            Tag::Group => (0x04, NOBODY),
            Tag::NamedGroup(gid) => (0x08, gid),
            Tag::Mask => (0x10, NOBODY),
            Tag::Other => (0x20, NOBODY),
        }
    }

    fn of(number: u16, id: u32) -> Option<Tag> {
        let tags = [Tag::Owner, Tag::User(id), Tag::Group, Tag::NamedGroup(id), Tag::Mask, Tag::Other];
        let tag = tags.into_iter().find(|tag| tag.number().0 == number)?;
        // The kernel knows nobody of this number.
        (!matches!(tag, Tag::User(NOBODY) | Tag::NamedGroup(NOBODY))).then_some(tag)
    }
}

/// An access control list: whom each entry is about, and what they may do (4 read, 2 write, 1 run or go through), in the order of the kernel.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Acl(Vec<(Tag, u32)>);

/// What is known of the lists of something.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Lists {
    /// That of itself, with what its mode said then.
    pub(crate) access: Option<Arc<Acl>>,
    /// That of what is made in it.
    pub(crate) default: Option<Arc<Acl>>,
}

/// Lists as they were.
pub(crate) struct Known {
    lists: Lists,
    /// The `ctime` and the mode of what has them.
    ctime_ns: i64,
    mode: u32,
    /// When, on the monotonic clock.
    at_ns: i64,
}

impl Acl {
    /// Entries that make up a list: one each for owner, group and others, a mask if there are others than those, each kind behind the one before.
    fn new(entries: Vec<(Tag, u32)>) -> Option<Acl> {
        let rank = |tag: Tag| match tag {
            Tag::Owner => 0,
            Tag::User(_) => 1,
            Tag::Group => 2,
            Tag::NamedGroup(_) => 3,
            Tag::Mask => 4,
            Tag::Other => 5,
        };
        let count = |of: usize| entries.iter().filter(|(tag, _)| rank(*tag) == of).count();
        let named = count(1) + count(3) > 0;
        let well_formed = entries.len() <= (MOST - 4) / 8
            && entries.is_sorted_by_key(|(tag, _)| rank(*tag))
            && entries.iter().all(|(_, may)| *may <= 7)
            && [0, 2, 5].iter().all(|of| count(*of) == 1)
            && (count(4) == 1 || (count(4) == 0 && !named));
        well_formed.then_some(Acl(entries))
    }

    /// Reads the form of the kernel; `None`: it has no entries, which takes the list away.
    fn from_xattr(bytes: &[u8]) -> Outcome<Option<Acl>> {
        let Some((version, entries)) = bytes.split_at_checked(4) else {
            return if bytes.is_empty() { Ok(None) } else { Err(Errno::EINVAL) };
        };
        if u32::from_le_bytes(version.try_into().unwrap_or_default()) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if bytes.len() > MOST {
            return Err(Errno::ENOSPC);
        }
        let (entries, []) = entries.as_chunks::<8>() else { return Err(Errno::EINVAL) };
        if entries.is_empty() {
            return Ok(None);
        }
        let entry = |[a, b, c, d, id @ ..]: &[u8; 8]| {
            let tag = Tag::of(u16::from_le_bytes([*a, *b]), u32::from_le_bytes(*id))?;
            Some((tag, u32::from(u16::from_le_bytes([*c, *d]))))
        };
        let entries: Option<Vec<_>> = entries.iter().map(entry).collect();
        entries.and_then(Acl::new).map(Some).ok_or(Errno::EINVAL)
    }

    /// The form of the kernel.
    fn to_xattr(&self) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, may) in &self.0 {
            let (number, id) = tag.number();
            bytes.extend_from_slice(&number.to_le_bytes());
            bytes.extend_from_slice(&(*may as u16).to_le_bytes());
            bytes.extend_from_slice(&id.to_le_bytes());
        }
        bytes
    }

    /// Reads the text that is kept.
    fn parse(text: &str) -> Option<Acl> {
        let entry = |entry: &str| {
            let mut parts = entry.split(':');
            let (tag, id, may) = (parts.next()?, parts.next()?, parts.next()?);
            let tag = match (tag, id) {
                ("u", "") => Tag::Owner,
                ("g", "") => Tag::Group,
                ("m", "") => Tag::Mask,
                ("o", "") => Tag::Other,
                ("u", uid) => Tag::User(uid.parse().ok()?),
                ("g", gid) => Tag::NamedGroup(gid.parse().ok()?),
                _ => return None,
            };
            let [r, w, x] = may.as_bytes() else { return None };
            let bit = |is: u8, letter: u8| if is == b'-' { Some(0) } else { (is == letter).then_some(1) };
            let may = bit(*r, b'r')? << 2 | bit(*w, b'w')? << 1 | bit(*x, b'x')?;
            parts.next().is_none().then_some((tag, may))
        };
        Acl::new(text.split(',').map(entry).collect::<Option<_>>()?)
    }

    /// The text that is kept.
    fn text(&self) -> String {
        let entry = |(tag, may): &(Tag, u32)| {
            let letters: String =
                [(4, 'r'), (2, 'w'), (1, 'x')].iter().map(|(bit, c)| if may & bit != 0 { *c } else { '-' }).collect();
            match tag {
                Tag::Owner => format!("u::{letters}"),
                Tag::User(uid) => format!("u:{uid}:{letters}"),
                Tag::Group => format!("g::{letters}"),
                Tag::NamedGroup(gid) => format!("g:{gid}:{letters}"),
                Tag::Mask => format!("m::{letters}"),
                Tag::Other => format!("o::{letters}"),
            }
        };
        self.0.iter().map(entry).collect::<Vec<_>>().join(",")
    }

    fn value(&self) -> Value {
        Value::Str(self.text())
    }

    /// Whether it says no more than a mode does.
    fn is_minimal(&self) -> bool {
        self.0.iter().all(|(tag, _)| matches!(tag, Tag::Owner | Tag::Group | Tag::Other))
    }

    /// What the group's bits of a mode are about.
    fn class(&self) -> Tag {
        if self.0.iter().any(|(tag, _)| *tag == Tag::Mask) { Tag::Mask } else { Tag::Group }
    }

    /// What a mode says of an entry, if it says anything.
    fn said(&self, tag: Tag, mode: u32) -> Option<u32> {
        match tag {
            Tag::Owner => Some(mode >> 6 & 7),
            Tag::Other => Some(mode & 7),
            tag => (tag == self.class()).then_some(mode >> 3 & 7),
        }
    }

    /// The permission bits of a mode that say the same, as far as a mode can.
    fn mode(&self) -> u32 {
        let of = |wanted: Tag| self.0.iter().find(|(tag, _)| *tag == wanted).map_or(0, |(_, may)| *may);
        of(Tag::Owner) << 6 | of(self.class()) << 3 | of(Tag::Other)
    }

    /// The same with what a mode says.
    fn under(&self, mode: u32) -> Acl {
        Acl(self.0.iter().map(|(tag, may)| (*tag, self.said(*tag, mode).unwrap_or(*may))).collect())
    }

    /// What is made where this is the list for that, with a mode, gets that mode and that list: both give what either gives (POSIX 1003.1e, 23.1.2).
    fn for_new(&self, mode: u32) -> (u32, Option<Acl>) {
        let both = |(tag, may): &(Tag, u32)| (*tag, may & self.said(*tag, mode).unwrap_or(7));
        let acl = Acl(self.0.iter().map(both).collect());
        (mode & !0o777 | acl.mode(), Some(acl).filter(|acl| !acl.is_minimal()))
    }

    /// Whether it lets somebody who is not its owner do all that is wanted.
    pub(crate) fn lets(&self, caller: &Caller, gid: u32, wanted: u32) -> bool {
        let mask = self.0.iter().find(|(tag, _)| *tag == Tag::Mask).map_or(7, |(_, may)| *may);
        let grants = |may: u32| may & wanted == wanted;
        if let Some((_, may)) = self.0.iter().find(|(tag, _)| *tag == Tag::User(caller.uid)) {
            return grants(may & mask);
        }
        let is_in = |tag: &Tag| match tag {
            Tag::Group => caller.is_in(gid),
            Tag::NamedGroup(gid) => caller.is_in(*gid),
            _ => false,
        };
        let mut groups = self.0.iter().filter(|(tag, _)| is_in(tag)).peekable();
        match groups.peek() {
            // One of them must grant all of it.
            Some(_) => groups.any(|(_, may)| grants(*may)) && grants(mask),
            None => self.0.iter().any(|(tag, may)| *tag == Tag::Other && grants(*may)),
        }
    }
}

impl Lists {
    fn of(metadata: &Metadata, mode: u32) -> Lists {
        let read = |key: &str| match metadata.get(key) {
            // What somebody else has put there, and is none, gives nobody anything.
            Some(Value::Str(text)) => Acl::parse(text),
            _ => None,
        };
        let access = read(ACL_KEY).map(|acl| Arc::new(acl.under(mode)));
        Lists { access, default: read(DEFAULT_ACL_KEY).map(Arc::new) }
    }

    fn get(&self, name: &[u8]) -> Option<&Arc<Acl>> {
        if name == ACCESS { self.access.as_ref() } else { self.default.as_ref() }
    }
}

/// Whether an attribute is a list.
pub fn is_list(name: &[u8]) -> bool {
    [ACCESS, DEFAULT].contains(&name)
}

/// The attribute of which a list is kept under a key.
pub(crate) fn attribute(key: &str) -> Option<&'static [u8]> {
    match key {
        ACL_KEY => Some(ACCESS),
        DEFAULT_ACL_KEY => Some(DEFAULT),
        _ => None,
    }
}

impl Node {
    /// Its lists, as of these attributes; `lately`: those of a directory may be those of a moment ago.
    pub(crate) fn lists(&self, attributes: &Attributes, lately: bool) -> Outcome<Lists> {
        if !attributes.acl && !attributes.default_acl {
            return Ok(Lists::default());
        }
        let now_ns = seam::monotonic_ns();
        if let Some(known) = &*lock(&self.lists) {
            // Each name that is made in a directory is a change of it, and what somebody else does to its rights may be a moment old.
            let lately = lately
                && self.kind() == Kind::Directory
                && known.mode == attributes.mode
                && now_ns - known.at_ns < self.file_system().0.options.unseen.as_nanos() as i64;
            if known.ctime_ns == attributes.ctime_ns || lately {
                return Ok(known.lists.clone());
            }
        }
        let list = self.with_handle("getxattr", |c| vec![Op::MetaList { c: c.clone() }])?;
        let Some(Output::Metadata(pairs)) = list.into_iter().next().map(|status| status.output) else {
            return Err(Errno::EIO);
        };
        let lists = Lists::of(&pairs, attributes.mode);
        let known = Known { lists: lists.clone(), ctime_ns: attributes.ctime_ns, mode: attributes.mode, at_ns: now_ns };
        *lock(&self.lists) = Some(known);
        Ok(lists)
    }

    /// The value of the attribute that is a list, by what was told of this within a time.
    pub fn list_within(&self, name: &[u8], span: Duration) -> Outcome<Vec<u8>> {
        if self.kind() == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        let told = self.told_before(span).filter(|_| !span.is_zero() && !self.is_open());
        let lists = self.lists(&told.map_or_else(|| self.attributes(), Ok)?, false)?;
        lists.get(name).map(|acl| acl.to_xattr()).ok_or(Errno::ENODATA)
    }

    /// What the mode and the metadata of something new are that is made in this directory. `mode`: as it was asked for, `umask`: what nobody gets where this has no list for it.
    pub(crate) fn born_with(
        &self,
        attributes: &Attributes,
        kind: Kind,
        (mode, umask): (u32, u32),
        metadata: &mut Metadata,
    ) -> Outcome<u32> {
        if kind == Kind::Symlink {
            return Ok(mode);
        }
        // Not asked for because of a list of the directory's own.
        let default = if attributes.default_acl { self.lists(attributes, true)?.default } else { None };
        let Some(default) = default else { return Ok(mode & !umask) };
        let (mode, acl) = default.for_new(mode);
        let access = acl.map(|acl| (ACL_KEY, acl.value()));
        let further = (kind == Kind::Directory).then(|| (DEFAULT_ACL_KEY, default.value()));
        for (key, value) in access.into_iter().chain(further) {
            metadata.set(key, value).map_err(|e| self.file_system().errno("create", &e))?;
        }
        Ok(mode)
    }

    /// Sets a list; whether there is one makes no difference (`XATTR_CREATE`).
    pub(crate) fn set_list(&self, name: &[u8], bytes: &[u8]) -> Outcome<()> {
        if self.kind() == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        if name == DEFAULT && self.kind() != Kind::Directory && !bytes.is_empty() {
            return Err(Errno::EACCES);
        }
        let acl = Acl::from_xattr(bytes)?;
        let attributes = self.attributes()?;
        let is_there = self.lists(&attributes, false)?.get(name).is_some();
        let Some(acl) = acl else { return self.remove_list(name) };
        if name == DEFAULT {
            return self.put_list(DEFAULT_ACL_KEY, Some(&acl), None);
        }
        let mode = attributes.mode & 0o7000 | acl.mode();
        // What a mode says as well is not kept beside it.
        let kept = Some(&acl).filter(|acl| !acl.is_minimal());
        if kept.is_none() && !is_there {
            return self.change(&Change { mode: Some(mode), ..Change::default() }).map(drop);
        }
        self.put_list(ACL_KEY, kept, Some(mode))
    }

    /// It runs with the rights of its group no more: somebody who is not in it says anew who may do what.
    pub fn take_group_right(&self) -> Outcome<()> {
        let mode = self.attributes()?.mode;
        if mode & 0o2000 == 0 {
            return Ok(());
        }
        self.change(&Change { mode: Some(mode & !0o2000), ..Change::default() }).map(drop)
    }

    /// Takes a list away. The mode stays what it is, so the group may do what the mask has said.
    pub(crate) fn remove_list(&self, name: &[u8]) -> Outcome<()> {
        if self.kind() == Kind::Symlink {
            return Err(Errno::EOPNOTSUPP);
        }
        match self.lists(&self.attributes()?, false)?.get(name) {
            Some(_) => self.put_list(if name == ACCESS { ACL_KEY } else { DEFAULT_ACL_KEY }, None, None),
            None => Ok(()),
        }
    }

    /// Puts a list there, or takes it away, and sets a mode, in one request.
    fn put_list(&self, key: &str, acl: Option<&Acl>, mode: Option<u32>) -> Outcome<()> {
        let mut pairs = Metadata::new();
        if let Some(acl) = acl {
            pairs.set(key, acl.value()).map_err(|_| Errno::E2BIG)?;
        }
        let put = self.with_handle("setxattr", |c| {
            let change = match acl {
                Some(_) => Op::MetaPut { c: c.clone(), pairs: pairs.clone() },
                None => Op::MetaRemove { c: c.clone(), key: key.to_owned() },
            };
            let attr = mode.map(|mode| Attr { mode: Some(mode), ..Attr::default() });
            let set = attr.map(|attr| Op::SetAttr { c: c.clone(), attr });
            std::iter::once(change).chain(set).collect()
        });
        *lock(&self.lists) = None;
        self.untell();
        self.was_changed();
        put.map(drop).map_err(|e| if e == Errno::EFBIG { Errno::E2BIG } else { e })
    }
}

#[cfg(test)]
mod tests;
