//! What the plan needs to know of each operation: its class and what it touches.

use std::{
    collections::{HashMap, HashSet},
    hash::{DefaultHasher, Hash, Hasher},
    sync::Arc,
};

use iov_semantics::plan::{Class, PlanOp};
use iov_types::{Name, OnError, Persistence, Uuid, Which};

use crate::{
    Collection, Op, Workspace,
    collection::Ready,
    op::{Parent, parent_uuid},
};

fn token(parts: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    parts.hash(&mut hasher);
    hasher.finish()
}

/// A handle's identity: the UUID where it is known, so that two handles of one collection meet; else the handle.
fn collection_token(c: &Collection) -> u64 {
    match c.uuid() {
        Ok(uuid) => token((1u8, uuid)),
        Err(_) => token((2u8, Arc::as_ptr(&c.0) as usize)),
    }
}

fn parent_token(w: Uuid, parent: &Parent) -> (Uuid, u64) {
    (w, parent.as_ref().map_or(0, |g| if parent_uuid(parent) == Ok(Uuid::NIL) { 0 } else { collection_token(g) }))
}

fn name_token(w: &Workspace, parent: &Parent, name: &Name) -> u64 {
    token((3u8, parent_token(w.uuid(), parent), name.as_bytes()))
}

/// Everything in a workspace: what a search sees.
fn workspace_token(w: &Workspace) -> u64 {
    token((4u8, w.uuid()))
}

fn which_token(w: &Workspace, parent: &Parent, which: &Which) -> u64 {
    match which {
        Which::Name(name) => name_token(w, parent, name),
        Which::Uuid(uuid) => token((1u8, uuid)),
    }
}

/// Whether a commit or a close of it only tells the catalog of its bytes: none have to be made to last, or to be published, before.
fn only_tells(c: &Collection) -> bool {
    let lasts = |ready: &Ready| ready.contract.durability >= Persistence::Durable;
    !c.has_stage() && c.broken().is_ok() && c.ready().is_ok_and(|ready| !lasts(ready))
}

/// Descriptions of all operations of a batch; `promises`: it promises more of the bytes than their handles do.
pub(super) fn describe(ops: &[Op], policy: OnError, promises: bool) -> Vec<PlanOp> {
    // Where it ends with a failure, what was to be told is to be left as it was.
    let plain = policy == OnError::Continue && !promises;
    // Handles that this batch makes by a lookup, and whether it is by name: then their UUID is unknown until it has completed.
    let mut looked_up: HashMap<*const crate::collection::CollectionInner, bool> = HashMap::new();
    let mut written: HashMap<u64, ()> = HashMap::new();
    // What is committed, persisted or sealed.
    let mut told: HashSet<u64> = HashSet::new();
    let mut out = Vec::with_capacity(ops.len());
    for op in ops {
        let mut uses = Vec::with_capacity(4);
        let mut strict = false;
        // Facts of what is opened by its UUID can be asked for along with the open.
        let asks = matches!(op, Op::Stat { .. } | Op::MetaGet { .. } | Op::MetaList { .. });
        for c in op.handle().into_iter().chain(op.parents()) {
            strict |= looked_up.get(&Arc::as_ptr(&c.0)).is_some_and(|by_name| *by_name || !asks);
            // Operations on members need the group, but do not change it.
            uses.push((token((2u8, Arc::as_ptr(&c.0) as usize)), false));
        }
        let class = match op {
            Op::Read { c, .. } | Op::Extents { c, .. } => {
                uses.push((collection_token(c), false));
                Class::Data
            }
            Op::Write { c, .. }
            | Op::Append { c, .. }
            | Op::Truncate { c, .. }
            | Op::Punch { c, .. }
            | Op::Allocate { c, .. } => {
                uses.push((collection_token(c), true));
                written.insert(collection_token(c), ());
                Class::Data
            }
            Op::Copy { src, dst, .. } => {
                for c in [src, dst] {
                    uses.push((token((2u8, Arc::as_ptr(&c.0) as usize)), false));
                }
                uses.extend([(collection_token(src), false), (collection_token(dst), true)]);
                written.insert(collection_token(dst), ());
                strict = true;
                Class::Data
            }
            Op::Close { c } => {
                uses.push((collection_token(c), true));
                // What was told to the catalog, by a commit or a seal, may be unsynced still (P5).
                let clean = !c.is_dirty() && !c.is_unsynced() && !c.has_stage();
                // Behind a commit it has to tell what that could not.
                let told = told.contains(&collection_token(c));
                let clean = (clean || plain && !told && only_tells(c)) && !written.contains_key(&collection_token(c));
                strict |= !clean;
                if clean { Class::Catalog } else { Class::DataThenCatalog }
            }
            Op::Commit { c } | Op::Persist { c } | Op::Seal { c } => {
                let token = collection_token(c);
                let tells = plain && only_tells(c) && !written.contains_key(&token) && told.insert(token);
                uses.push((token, true));
                if matches!(op, Op::Commit { .. }) && tells {
                    Class::Catalog
                } else {
                    strict = true;
                    Class::DataThenCatalog
                }
            }
            Op::WorkspacePersist { w } => {
                uses.push((workspace_token(w), true));
                strict = true;
                Class::DataThenCatalog
            }
            Op::Create { out, parent, name, .. } => {
                let w = out.workspace();
                uses.extend(name.iter().map(|n| (name_token(w, parent, n), true)));
                uses.extend([(collection_token(out), true), (workspace_token(w), false)]);
                uses.push((token((2u8, Arc::as_ptr(&out.0) as usize)), true));
                Class::Catalog
            }
            Op::Open { out, parent, which, .. } => {
                let w = out.workspace();
                uses.extend([(which_token(w, parent, which), false), (workspace_token(w), false)]);
                uses.push((token((2u8, Arc::as_ptr(&out.0) as usize)), true));
                looked_up.insert(Arc::as_ptr(&out.0), matches!(which, Which::Name(_)));
                Class::Catalog
            }
            Op::Search { w, .. } => {
                uses.push((workspace_token(w), true));
                Class::Catalog
            }
            Op::Delete { w, parent, which } => {
                uses.extend([(which_token(w, parent, which), true), (workspace_token(w), false)]);
                Class::Catalog
            }
            Op::Discard { w, uuid } => {
                uses.extend([(which_token(w, &None, &Which::Uuid(*uuid)), true), (workspace_token(w), false)]);
                Class::Catalog
            }
            Op::Unlink { w, parent, name, .. } => {
                uses.extend([(name_token(w, parent, name), true), (workspace_token(w), false)]);
                Class::Catalog
            }
            Op::Look { w, parent, which, .. } => {
                uses.extend([(which_token(w, parent, which), false), (workspace_token(w), false)]);
                Class::Catalog
            }
            Op::Rename { w, from_parent, from, to_parent, to, .. } => {
                uses.extend([(name_token(w, from_parent, from), true), (name_token(w, to_parent, to), true)]);
                uses.push((workspace_token(w), false));
                Class::Catalog
            }
            Op::Link { c, parent, name } => {
                uses.push((name_token(c.workspace(), parent, name), true));
                uses.extend([(collection_token(c), true), (workspace_token(c.workspace()), false)]);
                Class::Catalog
            }
            Op::Stat { c } | Op::MetaGet { c, .. } | Op::MetaList { c } | Op::LockQuery { c, .. } => {
                uses.push((collection_token(c), false));
                Class::Catalog
            }
            Op::Set { c, .. } | Op::SetAttr { c, .. } | Op::MetaPut { c, .. } | Op::MetaRemove { c, .. } => {
                uses.extend([(collection_token(c), true), (workspace_token(c.workspace()), false)]);
                Class::Catalog
            }
            Op::Lock { c, .. } => {
                uses.push((collection_token(c), true));
                Class::Alone
            }
            Op::Unlock { c, .. } => {
                uses.push((collection_token(c), true));
                Class::Catalog
            }
            Op::WorkspaceStat { w } => {
                uses.push((workspace_token(w), true));
                Class::Catalog
            }
            Op::WorkspaceSet { w, .. } | Op::WorkspaceRename { w, .. } | Op::WorkspaceCommit { w } => {
                uses.push((workspace_token(w), true));
                Class::Catalog
            }
        };
        out.push(PlanOp { class, uses, strict });
    }
    out
}
