use std::collections::BTreeMap;

use iov_types::{Capability, Lifetime, Value};
use proptest::{prelude::*, strategy::ValueTree};

use super::*;

fn effective() -> Effective {
    let capability: Capability = iov_semantics::stores::mem(1);
    iov_semantics::resolve::create(&Controls::default(), &Controls::default(), &capability).unwrap()
}

prop_compose! {
    fn record()(
        numbers in prop::array::uniform8(any::<u64>()),
        times in prop::array::uniform6(any::<i64>()),
        modes in prop::array::uniform3(any::<u32>()),
        names in prop::collection::vec(("[a-z]{1,8}", any::<[u8; 16]>()), 0..3),
        pairs in prop::collection::btree_map("[a-z]{1,8}", any::<i64>(), 0..4),
        flags in any::<(bool, bool)>(),
    ) -> Record {
        let mut metadata = Metadata::new();
        for (key, value) in pairs {
            metadata.set(key, Value::I64(value)).unwrap();
        }
        Record {
            kind: if flags.0 { EntryKind::Group } else { EntryKind::Collection },
            state: State::Open,
            links: names.len() as u32,
            names: names.into_iter().map(|(n, p)| NameIn { parent: Uuid(p), name: Name::new(n).unwrap() }).collect(),
            metadata: pack(&metadata),
            effective: effective(),
            asked: Controls { eventual_ns: numbers[0], ..Controls::default() },
            layout: Layout { revision: numbers[1], chunk_size: numbers[2], ..Layout::default() },
            mode: modes[0],
            uid: modes[1],
            gid: modes[2],
            ctime_ns: times[0],
            mtime_ns: times[1],
            mtime_base_ns: times[2],
            size: numbers[3],
            allocated: numbers[4],
            version: numbers[5],
            revision: numbers[6],
            epoch: numbers[7],
            pending: Uuid([numbers[0] as u8; 16]),
            deleted: flags.1,
            opened_in: numbers[1],
            abandoned_ns: times[3],
            inline: flags.0 != flags.1,
            lifetime: flags.1.then_some(Lifetime::lease(numbers[2])),
            bound_to: Uuid([numbers[3] as u8; 16]),
            changed_ns: times[4],
            atime_ns: times[5],
        }
    }
}

proptest! {
    #[test]
    fn a_record_reads_back_and_its_parts_agree_with_it(record in record()) {
        let bytes = record.to_bytes();
        prop_assert_eq!(&Record::parse(&bytes).unwrap(), &record);
        let facts = Facts::parse(&bytes).unwrap();
        let expected = Facts {
            kind: record.kind,
            state: record.state,
            links: record.links,
            layout: record.layout.clone(),
            mode: record.mode,
            uid: record.uid,
            gid: record.gid,
            ctime_ns: record.ctime_ns,
            mtime_ns: record.mtime_ns,
            mtime_base_ns: record.mtime_base_ns,
            size: record.size,
            allocated: record.allocated,
            version: record.version,
            deleted: record.deleted,
            opened_in: record.opened_in,
            abandoned_ns: record.abandoned_ns,
            inline: record.inline,
            lifetime: record.lifetime,
            changed_ns: record.changed_ns,
            atime_ns: record.atime_ns,
        };
        prop_assert_eq!(facts, expected);
        let lineage = Lineage::decode(&bytes).unwrap();
        let expected =
            Lineage { kind: record.kind, names: record.names.clone(), layout: record.layout.clone(), deleted: record.deleted };
        prop_assert_eq!(lineage, expected);
        prop_assert_eq!(pairs_of(&bytes).unwrap(), record.pairs().unwrap());
        for cut in 0..bytes.len() {
            let _ = Record::parse(&bytes[..cut]);
        }
    }
}

fn workspace() -> WorkspaceRecord {
    WorkspaceRecord {
        name: Name::new("w").unwrap(),
        owner: 1,
        gid: 1,
        mode: 0o750,
        access: Default::default(),
        metadata: Metadata::new(),
        controls: Controls::default(),
        layout: None,
        indexes: vec!["k".into()],
        quota_bytes: u64::MAX,
        quota_collections: u64::MAX,
        expires_ns: i64::MAX,
        ctime_ns: 1,
        mtime_ns: 1,
        revision: 1,
        epoch: 0,
        pending: Uuid::NIL,
        changed_ns: 0,
    }
}

#[test]
fn a_field_of_a_newer_release_is_an_update_and_not_lost() {
    let mut bytes = WorkspaceRecord::to_bytes(&workspace());
    iov_wire::codec::put_key(200, iov_wire::codec::WireType::Varint, &mut bytes);
    bytes.push(1);
    assert_eq!(WorkspaceRecord::decode(&bytes).unwrap_err().kind(), iov_types::Kind::Version);
}

#[test]
fn a_record_that_miscounts_its_names_is_corrupt() {
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    let mut record = record().new_tree(&mut runner).unwrap().current();
    record.links += 1;
    assert_eq!(Record::parse(&record.to_bytes()).unwrap_err().kind(), iov_types::Kind::Corrupt);
}

/// Tag and field of every message that a source defines, by type.
fn defined(source: &str) -> BTreeMap<String, Vec<(u32, String)>> {
    let mut all = BTreeMap::new();
    for block in source.split("message! {").skip(1) {
        let (head, fields) = block.split_once('{').unwrap();
        let fields = fields.split_once('}').unwrap().0;
        let field = |part: &str| {
            let (tag, rest) = part.trim().split_once(" => ").unwrap();
            (tag.parse().unwrap(), rest.split_once(':').unwrap().0.to_owned())
        };
        let fields = fields.split(',').filter(|part| part.contains("=>")).map(field).collect();
        all.insert(head.trim().trim_start_matches("strict ").to_owned(), fields);
    }
    all
}

/// Tag and field of every row under each heading of a type.
fn documented(page: &str) -> BTreeMap<String, Vec<(u32, String)>> {
    let mut all: BTreeMap<String, Vec<(u32, String)>> = BTreeMap::new();
    let mut heading = String::new();
    for line in page.lines() {
        if let Some(rest) = line.strip_prefix("##") {
            heading = rest.trim_matches(['#', ' ', '`']).to_owned();
        }
        let cells: Vec<&str> = line.split('|').map(str::trim).collect();
        if let [_, tag, field, ..] = cells[..]
            && let Ok(tag) = tag.parse()
        {
            all.entry(heading.clone()).or_default().push((tag, field.to_owned()));
        }
    }
    all
}

#[test]
fn the_page_on_the_format_lists_every_field() {
    let sources =
        [include_str!("mod.rs"), include_str!("workspace.rs"), include_str!("store.rs"), include_str!("batch.rs")];
    let mut defined: BTreeMap<_, _> = sources.into_iter().flat_map(defined).collect();
    // Parts of a record as readers take them, and the envelope of its metadata.
    for part in ["Facts", "Lineage", "MetadataOf", "Pairs"] {
        assert!(defined.remove(part).is_some());
    }
    assert_eq!(documented(include_str!("../../../../docs/format.md")), defined);
}

#[test]
fn the_bytes_of_a_record_are_for_ever() {
    let mut metadata = Metadata::new();
    metadata.set("step", Value::I64(-3)).unwrap();
    let record = Record {
        kind: EntryKind::Collection,
        state: State::Staging,
        links: 1,
        names: vec![NameIn { parent: Uuid([1; 16]), name: Name::new("a").unwrap() }],
        metadata: pack(&metadata),
        effective: effective(),
        asked: Controls::default(),
        layout: Layout { revision: 1, ..Layout::default() },
        mode: 0o640,
        uid: 1000,
        gid: 100,
        ctime_ns: 1,
        mtime_ns: -1,
        mtime_base_ns: 2,
        size: 300,
        allocated: 4096,
        version: 5,
        revision: 6,
        epoch: 7,
        pending: Uuid([2; 16]),
        deleted: true,
        opened_in: 8,
        abandoned_ns: 9,
        inline: false,
        lifetime: Some(Lifetime::lease(60)),
        bound_to: Uuid([3; 16]),
        changed_ns: 10,
        atime_ns: -11,
    };
    let hex: String = record.to_bytes().iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(hex, GOLDEN);
}

const GOLDEN: &str = concat!(
    "080410011a150a100101010101010101010101010101010112016120012a0e0a0c0a0a0a047374657012021005321308",
    "0118012001280138014001480158018001014202300148a00350e80758646002680170ac027880208001058801069001",
    "079a011002020202020202020202020202020202a00101a80108b00104b80112ca01040803103cd2011003030303030303030303030303030303",
    "d80114e00115",
);
