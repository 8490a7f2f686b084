//! The view of metadata, as the kernel sees it: directories that nobody can write to, and symbolic links.

use std::sync::Arc;

use iov_fuse_kernel::Attr;
use iov_posix::{Errno, Kind, Outcome, Tag, View};

use crate::{convert, door::Door, folders::Stream, inodes::Known};

/// What kind of file a part of the view is.
pub(crate) fn kind(tag: &Tag) -> Kind {
    match tag {
        Tag::View(_) => Kind::Directory,
        Tag::Link(..) => Kind::Symlink,
    }
}

/// The number of the root.
pub(crate) const ROOT: u64 = 1;

impl Door {
    /// The part of the view that a name stands for; `None`: the name is none of the view's.
    pub(crate) fn find_tag(&self, parent: u64, name: &[u8]) -> Option<Outcome<Arc<Tag>>> {
        let tags = self.tags.as_ref()?;
        if parent == ROOT {
            return (name == tags.name()).then(|| Ok(Arc::new(Tag::View(tags.root()))));
        }
        let Tag::View(view) = &*self.tag(parent)? else { return Some(Err(Errno::ENOTDIR)) };
        Some(tags.find(view, name).map(Arc::new))
    }

    /// The attributes of a part of the view. It is the root's owner's.
    pub(crate) fn attributes_of(&self, tag: &Tag, ino: u64) -> Outcome<Attr> {
        let root = self.fs.root();
        let attributes = match root.told_within(self.ttl) {
            Some((attributes, _)) => attributes,
            None => root.attributes()?,
        };
        let attributes = convert::attr(ino, &attributes);
        Ok(match tag {
            Tag::View(_) => Attr { mode: Kind::Directory.bits() | 0o555, ..attributes },
            Tag::Link(_, to) => {
                Attr { mode: Kind::Symlink.bits() | 0o777, size: to.len() as u64, blocks: 0, ..attributes }
            }
        })
    }

    /// Tells the kernel of a part of the view.
    pub(crate) fn tell_tag(&self, tag: Arc<Tag>) -> Outcome<Attr> {
        // Its number comes with it.
        let ino = self.known.inodes.tell_of(Known::Tag(tag.clone()));
        self.attributes_of(&tag, ino).inspect_err(|_| self.known.inodes.forget(ino, 1))
    }

    /// Opens a directory of the view.
    pub(crate) fn open_view(&self, view: &View) -> Outcome<Stream> {
        let Some(tags) = &self.tags else { return Err(Errno::ESTALE) };
        Ok(Stream::View(tags.entries(view)?.into_iter().collect()))
    }

    /// A stream is read from its beginning: from now on it is that of this moment.
    pub(crate) fn rewound(&self, stream: &Stream, offset: u64) {
        if let (Stream::Directory(stream), 0) = (stream, offset) {
            stream.rewind();
        }
    }
}
