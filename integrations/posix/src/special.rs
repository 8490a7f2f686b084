//! Symbolic links, named pipes, sockets and devices.

use std::sync::Arc;

use ioverbs::{Attr, Kind as Failure, Lent, Lifetime, Metadata, Op, Output, Uuid, Value, Which, seam};

use crate::{
    Attributes, Create, Errno, FileSystem, Kind, Node, Outcome,
    fs::{name, stat_of},
    making::New,
};

/// Longest target of a symbolic link, as for paths.
const TARGET: usize = 4095;
/// The metadata key for the number of a device.
pub(crate) const RDEV: &str = "posix.rdev";

impl FileSystem {
    /// Makes a symbolic link.
    pub fn symlink(
        &self,
        parent: &Node,
        bytes: &[u8],
        target: &[u8],
        born: Create,
    ) -> Outcome<(Arc<Node>, Attributes)> {
        if target.is_empty() {
            return Err(Errno::ENOENT);
        }
        if target.len() > TARGET {
            return Err(Errno::ENAMETOOLONG);
        }
        let born = Create { mode: 0o777, ..born };
        let (group, name) = (parent.group()?, name(bytes)?);
        parent.may_have(bytes);
        let uuid = seam::new_uuid();
        // Its name comes behind its bytes, so that nobody finds it without.
        let new = New { parent, name: None, kind: Kind::Symlink, born, metadata: Metadata::new(), uuid };
        let made = self.make(new, &|c| {
            let write = Lent::Write { c: c.clone(), offset: 0, data: target };
            let kept = Attr { lifetime: Some(Lifetime::KEPT), ..Attr::default() };
            let ops = [
                Op::Commit { c: c.clone() },
                Op::SetAttr { c: c.clone(), attr: kept },
                Op::Link { c: c.clone(), parent: Some(group.clone()), name: name.clone() },
                Op::Stat { c: c.clone() },
                Op::Close { c: c.clone() },
            ];
            std::iter::once(write).chain(ops.into_iter().map(Lent::from)).collect()
        });
        let attributes = match made {
            Ok(made) => self.attributes(stat_of(made.statuses.get(6))?)?,
            Err(e) => match self.lookup(parent, bytes) {
                // By an attempt that was not answered.
                Ok((there, attributes)) if e == Errno::EEXIST && there.uuid() == uuid => attributes,
                _ => {
                    let w = self.workspace().clone();
                    // What cannot be removed now has no name, and goes with this process if it has not come as far as that.
                    let _ = ioverbs::run(self.session(), Op::Discard { w, uuid });
                    return Err(e);
                }
            },
        };
        let node = self.node(attributes.uuid, Kind::Symlink);
        let _ = node.target.set(target.to_vec());
        node.tell(&attributes);
        Ok((node, attributes))
    }

    /// Makes a named pipe, a socket, a device or a regular file, without opening it.
    pub fn mknod(
        &self,
        parent: &Node,
        bytes: &[u8],
        kind: Kind,
        rdev: u64,
        born: Create,
    ) -> Outcome<(Arc<Node>, Attributes)> {
        let mut metadata = Metadata::new();
        if kind.is_device() {
            metadata.set(RDEV, Value::I64(rdev as i64)).map_err(|e| self.errno("mknod", &e))?;
        }
        if matches!(kind, Kind::Directory | Kind::Symlink) {
            return Err(Errno::EINVAL);
        }
        let new = New { parent, name: Some(bytes), kind, born, metadata, uuid: seam::new_uuid() };
        let mut made = self.make(new, &|c| vec![Op::Close { c: c.clone() }.into()])?;
        let attributes = Attributes { rdev, ..self.attributes_of(&mut made)? };
        let node = self.node(attributes.uuid, kind);
        if kind != Kind::File {
            // Who has it open needs that behind its end.
            node.tell(&attributes);
        }
        Ok((node, attributes))
    }

    /// The number of a device.
    pub(crate) fn device_number(&self, uuid: Uuid) -> Outcome<u64> {
        let out = self.workspace().pending(ioverbs::EntryKind::Collection);
        let which = Which::Uuid(uuid);
        let open = Op::Open { out: out.clone(), parent: None, which, controls: Default::default() };
        let get = Op::MetaGet { c: out.clone(), key: RDEV.to_owned() };
        let statuses = self.all_of(vec![open.into(), get.into(), Op::Close { c: out }.into()]);
        match statuses {
            Ok(statuses) => match statuses.get(1).map(|status| &status.output) {
                Some(Output::Value(Value::I64(number))) => Ok(*number as u64),
                _ => Ok(0),
            },
            // One that somebody made otherwise has none.
            Err(e) if e.kind() == Failure::NotFound => Ok(0),
            Err(e) => Err(self.errno("stat", &e)),
        }
    }
}

impl Node {
    /// Where a symbolic link leads.
    pub fn read_link(&self) -> Outcome<Vec<u8>> {
        if self.kind() != Kind::Symlink {
            return Err(Errno::EINVAL);
        }
        if let Some(target) = self.target.get() {
            return Ok(target.clone());
        }
        let fs = self.file_system();
        let mut target = fs.again("readlink", || {
            let c = fs.workspace().pending_told(TARGET as u64 + 1);
            fs.all_of(vec![self.open_op(&c).into()])?;
            // Mostly its bytes came along, and nobody waits for the close.
            if let Some(target) = c.take_told().and_then(|told| told.bytes)
                && c.close_unheard()
            {
                return Ok(target);
            }
            let mut target = vec![0; TARGET + 1];
            let read = Lent::Read { c: c.clone(), offset: 0, buf: &mut target };
            let read = fs.all_of(vec![read, Op::Close { c: c.clone() }.into()])?;
            target.truncate(read.first().map_or(0, |status| status.bytes as usize));
            Ok(target)
        })?;
        target.truncate(TARGET + 1);
        if target.is_empty() {
            return Err(Errno::EIO);
        }
        Ok(self.target.get_or_init(|| target).clone())
    }
}
