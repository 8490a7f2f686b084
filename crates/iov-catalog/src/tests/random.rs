//! Random operations by several sessions, under every kind of submission, with crashes in between: whatever happens,
//! names, records, indexes, usage and memory agree.

use std::collections::{BTreeMap, BTreeSet};

use iov_store::seam;
use iov_types::{
    EntryKind, Uuid, Value, Which, WorkspaceAttr,
    catalog::{CatalogOp, RenameMode, Submission},
};
use iov_wire::Wire;
use proptest::prelude::*;

use super::rig::{Client, Rig, exclusive, immutable, name};
use crate::{
    changes::tests::Mindful,
    index, keys,
    record::{Record, Usage},
};

/// An operation in terms of what a run has made so far.
#[derive(Clone, Debug)]
enum Act {
    Create { group: bool, parent: usize, name: u8, how: u8 },
    Open { what: usize, exclusive: bool },
    Close { what: usize, written: bool },
    Delete { parent: usize, name: u8 },
    DeleteUuid { what: usize },
    Rename { from: (usize, u8), to: (usize, u8), mode: u8 },
    Link { what: usize, parent: usize, name: u8 },
    Put { what: usize, value: i64 },
    Publish { what: usize },
    Seal { what: usize },
    Write { what: usize, len: usize },
    Goodbye,
}

fn act() -> impl Strategy<Value = Act> {
    let what = 0usize..12;
    let place = (0usize..6, 0u8..4);
    prop_oneof![
        4 => (any::<bool>(), 0usize..6, 0u8..5, 0u8..4)
            .prop_map(|(group, parent, name, how)| Act::Create { group, parent, name, how }),
        3 => (what.clone(), any::<bool>()).prop_map(|(what, exclusive)| Act::Open { what, exclusive }),
        4 => (what.clone(), any::<bool>()).prop_map(|(what, written)| Act::Close { what, written }),
        2 => place.clone().prop_map(|(parent, name)| Act::Delete { parent, name }),
        1 => what.clone().prop_map(|what| Act::DeleteUuid { what }),
        3 => (place.clone(), place.clone(), 0u8..4).prop_map(|(from, to, mode)| Act::Rename { from, to, mode }),
        1 => (what.clone(), 0usize..6, 0u8..4).prop_map(|(what, parent, name)| Act::Link { what, parent, name }),
        2 => (what.clone(), 0i64..4).prop_map(|(what, value)| Act::Put { what, value }),
        1 => what.clone().prop_map(|what| Act::Publish { what }),
        1 => what.clone().prop_map(|what| Act::Seal { what }),
        2 => (what.clone(), 1usize..50).prop_map(|(what, len)| Act::Write { what, len }),
        1 => Just(Act::Goodbye),
    ]
}

#[derive(Clone, Copy, Debug)]
enum How {
    Each,
    UntilFailure,
    Dry,
    All,
    Crash,
}

/// What a run has made: places that later operations point into.
struct World {
    made: Vec<(Uuid, EntryKind)>,
    groups: Vec<Uuid>,
}

impl World {
    fn what(&self, n: usize) -> (Uuid, EntryKind) {
        self.made.get(n % self.made.len().max(1)).copied().unwrap_or((Uuid([1; 16]), EntryKind::Collection))
    }

    fn parent(&self, n: usize) -> Uuid {
        self.groups[n % self.groups.len()]
    }

    /// The operation for the catalog; `None` for one on bytes, which is done at once.
    fn op(&mut self, client: &Client, act: &Act) -> Option<CatalogOp> {
        let ws = client.ws;
        let text = |n: u8| format!("n{n}");
        Some(match act {
            Act::Create { group, parent, name, how } => {
                let kind = if *group { EntryKind::Group } else { EntryKind::Collection };
                let controls = match how {
                    0 => exclusive(),
                    1 => immutable(),
                    _ => Default::default(),
                };
                let text = if *name == 4 { String::new() } else { text(*name) };
                let (uuid, mut op) = client.create_with(kind, self.parent(*parent), &text, controls);
                if let CatalogOp::Create { tell, .. } = &mut op {
                    *tell = *how == 3;
                }
                self.made.push((uuid, kind));
                if *group {
                    self.groups.push(uuid);
                }
                op
            }
            Act::Open { what, exclusive: alone } => {
                let (uuid, kind) = self.what(*what);
                let controls = if *alone { exclusive() } else { Default::default() };
                CatalogOp::Open { ws, parent: Uuid::NIL, which: Which::Uuid(uuid), kind, controls, tell: None }
            }
            Act::Close { what, written } => {
                let published = written.then(Default::default);
                CatalogOp::Close { ws, uuid: self.what(*what).0, published }
            }
            Act::Delete { parent, name } => client.delete_op(self.parent(*parent), &text(*name)),
            Act::DeleteUuid { what } => {
                CatalogOp::Delete { ws, parent: Uuid::NIL, which: Which::Uuid(self.what(*what).0) }
            }
            Act::Rename { from, to, mode } => CatalogOp::Rename {
                ws,
                from_parent: self.parent(from.0),
                from: name(&text(from.1)),
                to_parent: self.parent(to.0),
                to: name(&text(to.1)),
                mode: [RenameMode::Replace, RenameMode::NoReplace, RenameMode::Exchange, RenameMode::ReplaceAlike]
                    [usize::from(*mode)],
            },
            Act::Link { what, parent, name: n } => {
                let (uuid, parent) = (self.what(*what).0, self.parent(*parent));
                CatalogOp::Link { ws, uuid, parent, name: name(&text(*n)) }
            }
            Act::Put { what, value } => client.put_op(self.what(*what).0, "t", Value::I64(*value)),
            Act::Publish { what } => client.publish_op(self.what(*what).0),
            Act::Seal { what } => CatalogOp::Seal { ws, uuid: self.what(*what).0, published: Default::default() },
            Act::Write { what, len } => {
                let (uuid, kind) = self.what(*what);
                // An engine writes through an open handle.
                let is_open = client.service.core.shared().opens.get(uuid).is_some();
                if kind == EntryKind::Collection && is_open && client.stat(uuid).is_ok() {
                    let _ = client.bytes(uuid).write(0, &vec![1; *len]);
                }
                return None;
            }
            Act::Goodbye => CatalogOp::Goodbye,
        })
    }
}

/// What is remembered of names and of what they stand for, and is said to hold, is so.
fn look_around(mindful: &mut Mindful, client: &Client, world: &World) {
    for group in &world.groups {
        for n in 0..4 {
            let _ = mindful.look(client, *group, Some(&format!("n{n}")));
        }
    }
    for (uuid, _) in &world.made {
        let _ = mindful.look(client, *uuid, None);
    }
}

/// Everything that must hold between any two submissions.
fn check(rig: &Rig, ws: Uuid) {
    let value = |key: &[u8]| rig.store.get(&[key]).unwrap().remove(0).map(|r| r.value);
    let mut records = BTreeMap::new();
    for key in rig.keys(b'R') {
        let uuid = keys::uuid_at(&key, 17).unwrap();
        records.insert(uuid, Record::parse(&value(&key).unwrap()).unwrap());
    }
    let (mut names, mut entries, mut usage) = (BTreeMap::new(), BTreeSet::new(), Usage::default());
    let mut members = BTreeMap::<Uuid, u64>::new();
    for (uuid, record) in &records {
        for n in &record.names {
            names.insert(keys::name(ws, n.parent, &n.name), (*uuid, record.kind));
            *members.entry(if n.parent.is_nil() { ws } else { n.parent }).or_default() += 1;
            let parent = records.get(&n.parent);
            assert!(n.parent.is_nil() || parent.is_some_and(|p| p.kind == EntryKind::Group && !p.deleted));
        }
        usage.bytes += record.size;
        assert_eq!(value(&keys::removed(*uuid)).is_some(), record.deleted);
        if record.deleted {
            assert!(record.names.is_empty());
            let shared = rig.service.core.shared();
            assert!(shared.opens.get(*uuid).is_some_and(|e| e.deleted && !e.is_unused()), "nobody has it open");
        } else {
            usage.collections += 1;
            entries.extend(index::keys(ws, &["t".into()], *uuid, &record.pairs().unwrap()));
        }
        // No group is inside itself.
        let mut at = *uuid;
        for _ in 0..=records.len() {
            at = records.get(&at).and_then(|r| r.names.first()).map_or(Uuid::NIL, |n| n.parent);
        }
        assert!(at.is_nil());
    }
    let stored: BTreeMap<Vec<u8>, _> =
        rig.keys(b'N').into_iter().map(|k| (k.clone(), keys::read_name_value(&value(&k).unwrap()).unwrap())).collect();
    assert_eq!(stored, names, "names and records");
    assert_eq!(rig.keys(b'I').into_iter().collect::<BTreeSet<_>>(), entries, "index and records");
    assert_eq!(Usage::decode(&value(&keys::usage(ws)).unwrap_or_default()).unwrap(), usage, "usage and records");
    let shared = rig.service.core.shared();
    assert_eq!(shared.workspaces.get(ws).unwrap().usage, usage, "memory and store");
    for group in records.keys().chain([&ws]) {
        let counted = members.get(group).copied().unwrap_or(0);
        assert!(shared.members.get(*group).is_none_or(|n| n == counted), "members of {group} that are remembered");
    }
    for (uuid, entry) in shared.opens.iter() {
        assert!(!entry.is_unused() && (uuid == ws || records.contains_key(&uuid)), "what is open exists");
        assert!(entry.hold.is_none_or(|h| entry.slots().any(|s| s.holder == h.holder && !s.fenced)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(150))]

    #[test]
    fn o3_o5_whatever_happens_records_names_indexes_and_use_agree(
        steps in prop::collection::vec(
            (
                prop::sample::select(vec![How::Each, How::Each, How::UntilFailure, How::Dry, How::All, How::All, How::Crash]),
                0usize..3,
                prop::collection::vec(act(), 1..7),
            ),
            1..25,
        ),
    ) {
        let mut rig = Rig::new();
        let attr = WorkspaceAttr { indexes: vec!["t".into()], ..WorkspaceAttr::default() };
        let mut mindful = Mindful::of(&rig);
        let mut clients = vec![rig.in_workspace_with(attr)];
        let ws = clients[0].ws;
        clients.extend([clients[0].other(), clients[0].other()]);
        let mut world = World { made: Vec::new(), groups: vec![Uuid::NIL] };
        for (how, who, acts) in steps {
            let client = clients[who].clone();
            let ops: Vec<CatalogOp> = acts.iter().filter_map(|act| world.op(&client, act)).collect();
            let keys = || [b'R', b'N', b'I', b'U', b'D', b'A'].map(|tag| rig.keys(tag));
            let before = keys();
            let n = ops.len();
            match how {
                How::Each => assert_eq!(client.submit(ops, Submission::Each).unwrap().len(), n),
                How::UntilFailure => drop(client.submit(ops, Submission::UntilFailure).unwrap()),
                How::Dry => {
                    client.submit(ops, Submission::DryRun).unwrap();
                    prop_assert_eq!(keys(), before);
                }
                How::All => {
                    let replies = client.all(ops, seam::new_uuid(), &[]).unwrap();
                    if replies.iter().any(Result::is_err) {
                        prop_assert_eq!(keys(), before);
                    }
                }
                How::Crash => {
                    drop(client);
                    clients.clear();
                    rig = rig.crash();
                    mindful.goes_on(&rig);
                    let again = Client { ws, ..rig.client() };
                    clients.extend([again.clone(), again.other(), again.other()]);
                }
            }
            check(&rig, ws);
            look_around(&mut mindful, &clients[0], &world);
        }
        for client in &clients {
            client.ask(CatalogOp::Goodbye).unwrap();
        }
        check(&rig, ws);
        prop_assert!(rig.service.core.shared().opens.iter().next().is_none());
        prop_assert!(!rig.service.core.shared().opens.may_cover());
    }
}
