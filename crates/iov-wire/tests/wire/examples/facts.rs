//! Every operation on facts and every reply, each field with a value of its own that is not its default.

use iov_types::catalog::*;
use iov_types::*;

use super::{COLLECTION, WS, controls, effective, layout, metadata, range};

const GROUP: Uuid = Uuid([0x66; 16]);
const CURSOR: Uuid = Uuid([0x77; 16]);

fn name(text: &str) -> Name {
    Name::new(text).expect("a good name")
}

fn attr() -> Attr {
    Attr {
        mode: Some(0o640),
        uid: Some(1001),
        gid: Some(2000),
        mtime_ns: Some(-1),
        atime_ns: Some(7),
        lifetime: Some(Lifetime::lease(60_000_000_000)),
    }
}

fn workspace_attr() -> WorkspaceAttr {
    let entry = |subject, right| AccessEntry { subject, right };
    WorkspaceAttr {
        controls: Some(controls()),
        layout: Some(layout()),
        metadata: metadata(),
        owner: Some(0),
        access: Some(AccessList {
            entries: vec![
                entry(Subject::User(1001), Right::Read),
                entry(Subject::Group(2000), Right::Write),
                entry(Subject::Any, Right::Admin),
            ],
        }),
        indexes: vec!["temperature".into(), "step".into()],
        quota_bytes: Some(u64::MAX),
        quota_collections: Some(1000),
        expires_ns: Some(i64::MAX),
    }
}

fn search() -> SearchSpec {
    SearchSpec {
        predicate: Some("temperature > ?".into()),
        params: vec![Value::F64(273.15), Value::Str(String::new())],
        group: Some(Uuid::NIL),
        deep: true,
        order: Some("temperature desc".into()),
        limit: 10,
        keys: vec!["*".into()],
        count: true,
        names: true,
        page: 100,
    }
}

pub(super) fn lock() -> LockSpec {
    LockSpec { exclusive: true, try_only: true, range: range(), owner: 7, lease_ns: 30_000_000_000 }
}

fn published() -> Published {
    Published { size: 4096, allocated: 8192, mtime_ns: 1_790_000_000_000_000_000 }
}

pub(crate) fn operations() -> Vec<CatalogOp> {
    use CatalogOp::*;
    let (ws, uuid, parent, which, kind) =
        (WS, COLLECTION, GROUP, Which::Name(name("run-1.dat")), EntryKind::Collection);
    vec![
        WorkspaceCreate { uuid: WS, name: name("climate"), attr: workspace_attr() },
        WorkspaceLoad { which: Which::Uuid(WS) },
        WorkspaceSearch { spec: search() },
        WorkspaceDelete { which: which.clone() },
        WorkspaceStat { ws },
        WorkspaceSet { ws, attr: workspace_attr() },
        WorkspaceRename { ws, name: name("weather") },
        WorkspacePersist { ws, durable: true },
        Create {
            ws,
            uuid,
            kind,
            parent,
            name: Some(name("run-1.dat")),
            metadata: metadata(),
            controls: controls(),
            layout: Some(layout()),
            attr: attr(),
            tell: true,
        },
        Open { ws, parent, which: which.clone(), kind: EntryKind::Group, controls: controls(), tell: Some(4096) },
        Close { ws, uuid, published: Some(published()) },
        Delete { ws, parent, which },
        Stat { ws, uuid },
        Set { ws, uuid, controls: Some(controls()), layout: Some(layout()) },
        SetAttr { ws, uuid, attr: attr() },
        Rename {
            ws,
            from_parent: GROUP,
            from: name("a"),
            to_parent: Uuid([0x67; 16]),
            to: name("b"),
            mode: RenameMode::Exchange,
        },
        Link { ws, uuid, parent, name: name("c") },
        Search { ws, spec: search() },
        SearchNext { cursor: CURSOR, page: 50 },
        SearchClose { cursor: CURSOR },
        MetaGet { ws, uuid, key: "step".into() },
        MetaPut { ws, uuid, pairs: metadata() },
        MetaRemove { ws, uuid, key: "step".into() },
        MetaList { ws, uuid },
        Publish { ws, uuid, published: published() },
        Seal { ws, uuid, published: published() },
        Lock { ws, uuid, lock: lock() },
        Unlock { ws, uuid, lock: lock() },
        LockQuery { ws, uuid, lock: lock() },
        TokenExport,
        TokenJoin { token: vec![1, 2, 3] },
        Renew,
        Goodbye,
        Read { ws, uuid, offset: 4096, len: 100 },
        Write { ws, uuid, offset: 4096, data: vec![1, 2, 3] },
        MoveOut { ws, uuid },
        Map { from: 3 },
        Ticket { uuid },
        Look { ws, parent, which: Which::Name(name("d")), ahead: 16, tell: 512 },
        Truncate { ws, uuid, size: 100 },
        Unlink { ws, parent: GROUP, name: name("e"), group: true },
        Append { ws, uuid, data: vec![6, 7] },
        Discard { ws, uuid },
    ]
}

fn stat() -> Stat {
    Stat {
        kind: EntryKind::Workspace,
        state: Some(State::Sealed),
        uuid: COLLECTION,
        bytes: 1,
        allocated: 2,
        entries: 3,
        abandoned: 4,
        ctime_ns: 5,
        mtime_ns: 6,
        atime_ns: 17,
        changed_ns: 18,
        staleness_ns: 7,
        revision: 8,
        version: 9,
        mode: 10,
        links: 11,
        uid: 12,
        gid: 13,
        quota_bytes: 14,
        quota_collections: 15,
        expires_ns: 16,
        lifetime: Some(Lifetime::PROCESS),
    }
}

fn map() -> StoreMap {
    StoreMap { targets: vec![target()], patterns: vec![Pattern { number: 7, targets: vec![1, 0] }] }
}

pub(super) fn target() -> Target {
    Target {
        number: 1,
        uuid: Uuid([0x99; 16]),
        capability: Capability {
            medium: Capability::FILES,
            durability: Persistence::Durable,
            max_unit: 1 << 20,
            staging: true,
            stage_bytes: 1 << 30,
            once: true,
            bursty: true,
            targets: 1,
            incarnation: 5,
        },
        storage: "files".into(),
        host: "node7".into(),
        domain: "rack2".into(),
        addresses: vec!["node7-ib:4867".into()],
        capacity: 1 << 40,
        free: 1 << 39,
        reach: Reach::ProbablyOffline,
        health: Health::NeedsResync,
        local: "host:/dir".into(),
    }
}

pub(crate) fn replies() -> Vec<CatalogReply> {
    let opened = Opened {
        ws: WS,
        uuid: COLLECTION,
        kind: EntryKind::Collection,
        state: State::Staging,
        effective: effective(),
        layout: layout(),
        epoch: 2,
        writable: true,
        inline: true,
        size: Some(3),
        told: Some(Box::new(Told { stat: stat(), bytes: Some(vec![8, 9]), group: Some(stat()), may_keep: true })),
    };
    let workspace = OpenedWorkspace {
        uuid: WS,
        name: name("climate"),
        controls: controls(),
        layout: Some(layout()),
        writable: true,
        indexes: vec!["temperature".into()],
    };
    let entry = Entry {
        kind: EntryKind::Group,
        uuid: COLLECTION,
        group: GROUP,
        name: Some(name("run-1.dat")),
        metadata: Some(vec![("iov.size".into(), Value::I64(1))]),
    };
    vec![
        CatalogReply::Done,
        CatalogReply::Workspace(Box::new(workspace)),
        CatalogReply::Opened(Box::new(opened)),
        CatalogReply::Stat(Box::new(stat())),
        CatalogReply::Value(Value::Bool(false)),
        CatalogReply::Metadata(metadata()),
        CatalogReply::Page(Page { entries: vec![entry], cursor: Some(CURSOR), count: Some(0) }),
        CatalogReply::Lock(lock()),
        CatalogReply::Token(vec![1, 2, 3]),
        CatalogReply::Bytes(vec![4, 5, 6]),
        CatalogReply::Moved,
        CatalogReply::Map(Box::new(map())),
        CatalogReply::Ticket(Box::new(SignedTicket {
            bytes: vec![7, 8, 9],
            lasts_ns: 600_000_000_000,
            writable: true,
        })),
        CatalogReply::Looked(Looked {
            entries: vec![Named { name: name("d"), stat: stat(), bytes: Some(vec![5]), writable: true }],
        }),
        CatalogReply::Removed(Box::new(Removed { uuid: COLLECTION, mode: 0o644, links: 1, group: Some(stat()) })),
        CatalogReply::Appended(300),
    ]
}
