//! Creates: under which identity, and born with what later operations of the batch say.

use std::{
    collections::HashMap,
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use iov_store::seam;
use iov_types::Uuid;

use super::facts::Birth;
use crate::Op;

/// The UUID of the collection that operation `i` creates. With a batch id it follows from that, so that a retry means
/// the same collection (B3).
pub(super) fn uuid_for(batch: Option<Uuid>, i: usize) -> Uuid {
    let Some(batch) = batch else { return seam::new_uuid() };
    let mut random = [0; 10];
    for (n, part) in random.chunks_mut(8).enumerate() {
        // Not a security boundary: whoever can create under this id may as well choose the UUID.
        let mut hasher = DefaultHasher::new();
        (batch, i, n).hash(&mut hasher);
        part.copy_from_slice(&hasher.finish().to_be_bytes()[..part.len()]);
    }
    Uuid::v7(batch.unix_ms(), random)
}

/// Collects `set` and `setattr` on what the same batch creates: by create, and from those operations to their create.
pub(super) fn collect(ops: &[Op]) -> (HashMap<usize, Birth>, HashMap<usize, usize>) {
    let mut creates = HashMap::new();
    let mut births: HashMap<usize, Birth> = HashMap::new();
    let mut born_with = HashMap::new();
    for (i, op) in ops.iter().enumerate() {
        match op {
            Op::Create { out, .. } => drop(creates.insert(Arc::as_ptr(&out.0), i)),
            Op::Set { c, controls, layout } => {
                if let Some(create) = creates.get(&Arc::as_ptr(&c.0)) {
                    let birth = births.entry(*create).or_default();
                    birth.controls = controls.clone().or(birth.controls.take());
                    birth.layout = layout.clone().or(birth.layout.take());
                    born_with.insert(i, *create);
                }
            }
            Op::SetAttr { c, attr } => {
                if let Some(create) = creates.get(&Arc::as_ptr(&c.0)) {
                    let birth = &mut births.entry(*create).or_default().attr;
                    birth.mode = attr.mode.or(birth.mode);
                    birth.uid = attr.uid.or(birth.uid);
                    birth.gid = attr.gid.or(birth.gid);
                    birth.lifetime = attr.lifetime.or(birth.lifetime);
                    birth.mtime_ns = attr.mtime_ns.or(birth.mtime_ns);
                    birth.atime_ns = attr.atime_ns.or(birth.atime_ns);
                    born_with.insert(i, *create);
                }
            }
            // Once bytes or other changes follow, "born as" has ended: the operation is one of its own.
            Op::Write { c, .. } | Op::Append { c, .. } | Op::Truncate { c, .. } | Op::Close { c } | Op::Seal { c } => {
                creates.remove(&Arc::as_ptr(&c.0));
            }
            _ => {}
        }
    }
    (births, born_with)
}
