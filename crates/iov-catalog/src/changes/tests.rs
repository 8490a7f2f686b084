use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
};

use iov_store::{
    ChangePage, ChangeView, Commit, Fact, KeyRange, MemoryStore, MetadataStore, Moment, Record, Snapshot, Txn,
};
use iov_types::{
    EntryKind, Kind, Result, Stat, Uuid, Which,
    catalog::{CatalogOp, CatalogReply},
};

use crate::tests::rig::{Client, Rig, SECOND, name};

/// What a look says.
type Looked = std::result::Result<Stat, Kind>;

/// Somebody who remembers what he has been told, for as long as it is said to hold.
pub(crate) struct Mindful {
    view: Arc<ChangeView>,
    file: std::fs::File,
    known: HashMap<(Uuid, Option<String>), (Moment, Looked)>,
    /// How often something that was remembered was compared with what is.
    pub(crate) compared: usize,
}

fn look(client: &Client, parent: Uuid, text: Option<&str>) -> Looked {
    let (ws, which) = (client.ws, text.map_or(Which::Uuid(parent), |text| Which::Name(name(text))));
    let parent = if text.is_some() { parent } else { Uuid::NIL };
    match client.ask(CatalogOp::Look { ws, parent, which, ahead: 0, tell: 0 }) {
        Ok(CatalogReply::Stat(stat)) => Ok(*stat),
        Ok(other) => panic!("a look was answered by {other:?}"),
        Err(e) => Err(e.kind()),
    }
}

impl Mindful {
    /// From now on the catalog tells what changes.
    pub(crate) fn of(rig: &Rig) -> Mindful {
        let file = tempfile::tempfile().unwrap();
        rig.service.tell_changes(ChangePage::open(&file, 1).unwrap());
        let view = ChangeView::map(&file, 1).unwrap();
        Mindful { view, file, known: HashMap::new(), compared: 0 }
    }

    /// The same with the next catalog of the store.
    pub(crate) fn goes_on(&mut self, rig: &Rig) {
        rig.service.tell_changes(ChangePage::open(&self.file, 1).unwrap());
    }

    /// Looks at a name in a group, or (without one) at what has an identity; what holds must be so.
    pub(crate) fn look(&mut self, client: &Client, parent: Uuid, text: Option<&str>) -> Looked {
        let at = |uuid: Uuid| if uuid.is_nil() { client.ws } else { uuid };
        let key = (parent, text.map(str::to_owned));
        if let Some((since, known)) = self.known.get(&key) {
            let named = text.map(|_| Fact::Names(at(parent)));
            let of_it = match (known, text) {
                (Ok(stat), _) => Some(Fact::Itself(at(stat.uuid))),
                (Err(_), Some(_)) => None,
                (Err(_), None) => Some(Fact::Itself(at(parent))),
            };
            let facts: Vec<Fact> = named.into_iter().chain(of_it).collect();
            if self.view.holds(*since, &facts) {
                self.compared += 1;
                assert_eq!(*known, look(client, parent, text), "{key:?} is remembered");
                return known.clone();
            }
        }
        let since = self.view.now();
        let looked = look(client, parent, text);
        self.known.insert(key, (since, looked.clone()));
        looked
    }

    /// Whether what is known of a name holds.
    fn holds(&self, client: &Client, parent: Uuid, text: &str) -> bool {
        let (since, known) = &self.known[&(parent, Some(text.to_owned()))];
        let group = if parent.is_nil() { client.ws } else { parent };
        let of_it = known.as_ref().ok().map(|stat| Fact::Itself(stat.uuid));
        let facts: Vec<Fact> = [Fact::Names(group)].into_iter().chain(of_it).collect();
        self.view.holds(*since, &facts)
    }
}

fn create(client: &Client, parent: Uuid, text: &str) -> Result<Uuid> {
    let (uuid, op) = client.create_op(parent, text);
    client.ask(op).map(|_| uuid)
}

#[test]
fn c1_what_is_remembered_holds_until_it_changes_and_not_while_it_is_open() {
    let rig = Rig::new();
    let mut mindful = Mindful::of(&rig);
    let writer = rig.in_workspace();
    let reader = writer.other();
    let root = Uuid::NIL;

    assert_eq!(mindful.look(&reader, root, Some("a")), Err(Kind::NotFound));
    assert!(mindful.holds(&reader, root, "a"), "that it is not there is remembered as well");
    let a = create(&writer, root, "a").unwrap();
    assert!(!mindful.holds(&reader, root, "a"));
    assert!(mindful.look(&reader, root, Some("a")).is_ok());
    assert!(!mindful.holds(&reader, root, "a"), "somebody has it open, and may write");
    writer.close(a).unwrap();
    mindful.look(&reader, root, Some("a")).unwrap();
    assert!(mindful.holds(&reader, root, "a"));

    let b = create(&writer, root, "b").unwrap();
    assert!(!mindful.holds(&reader, root, "a"), "another name in the group, perhaps this one");
    writer.close(b).unwrap();
    mindful.look(&reader, root, Some("a")).unwrap();
    writer.ask(writer.put_op(b, "t", iov_types::Value::I64(1))).unwrap();
    assert!(mindful.holds(&reader, root, "a"), "of another");
    writer.ask(writer.put_op(a, "t", iov_types::Value::I64(1))).unwrap();
    assert!(!mindful.holds(&reader, root, "a"));

    // A session that ends has closed what it had.
    mindful.look(&reader, root, Some("b")).unwrap();
    let third = writer.other();
    third.open(b).unwrap();
    assert!(!mindful.holds(&reader, root, "b"));
    rig.service.end_session(third.caller.session);
    mindful.look(&reader, root, Some("b")).unwrap();
    assert!(mindful.holds(&reader, root, "b"));
}

#[test]
fn c1_what_only_the_catalog_changes_holds_also_while_it_is_open() {
    let inline = crate::Options { inline_bytes: 8192, ..crate::tests::rig::options() };
    let heap = Arc::new(crate::tests::rig::durable_heap());
    let rig = Rig::over(Arc::new(iov_store::MemoryStore::new()), heap, inline).unwrap();
    let mut mindful = Mindful::of(&rig);
    let writer = rig.in_workspace();
    let reader = writer.other();
    let (root, ws) = (Uuid::NIL, writer.ws);
    let a = create(&writer, root, "a").unwrap();
    mindful.look(&reader, root, Some("a")).unwrap();
    assert!(mindful.holds(&reader, root, "a"), "its bytes lie in its record");
    reader.open(a).unwrap();
    assert!(mindful.holds(&reader, root, "a"));
    let write = |len: usize| CatalogOp::Write { ws, uuid: a, offset: 0, data: vec![1; len] };
    writer.ask(write(10)).unwrap();
    assert!(!mindful.holds(&reader, root, "a"), "it was written");
    mindful.look(&reader, root, Some("a")).unwrap();
    assert!(mindful.holds(&reader, root, "a"));
    // At its target it is written past the catalog, until nobody does so any more.
    assert_eq!(writer.ask(write(9000)).unwrap(), CatalogReply::Moved);
    mindful.look(&reader, root, Some("a")).unwrap();
    assert!(!mindful.holds(&reader, root, "a"));
    reader.close(a).unwrap();
    writer.close_written(a).unwrap();
    mindful.look(&reader, root, Some("a")).unwrap();
    assert!(mindful.holds(&reader, root, "a"));
}

#[test]
fn c1_nothing_is_relied_upon_while_those_may_come_back_who_have_something_open() {
    let rig = Rig::new();
    let mut mindful = Mindful::of(&rig);
    let writer = rig.in_workspace();
    let a = create(&writer, Uuid::NIL, "a").unwrap();
    writer.close(a).unwrap();
    mindful.look(&writer, Uuid::NIL, Some("a")).unwrap();
    assert!(mindful.holds(&writer, Uuid::NIL, "a"));

    let (store, heap, ws) = (rig.store.clone(), rig.heap.clone(), writer.ws);
    drop((writer, rig));
    let options = crate::tests::rig::options();
    let service = crate::Service::open_after(store.clone(), heap.clone(), options, 30 * SECOND).unwrap();
    let rig = Rig { store, heap, service: Arc::new(service) };
    mindful.goes_on(&rig);
    let reader = Client { ws, ..rig.client() };
    assert!(!mindful.holds(&reader, Uuid::NIL, "a"), "it was told by the catalog before");
    mindful.look(&reader, Uuid::NIL, Some("a")).unwrap();
    assert!(!mindful.holds(&reader, Uuid::NIL, "a"), "somebody may have it open and not have come back yet");
    rig.service.end_grace().unwrap();
    mindful.look(&reader, Uuid::NIL, Some("a")).unwrap();
    assert!(mindful.holds(&reader, Uuid::NIL, "a"));
}

#[test]
fn o10_what_has_no_name_is_not_remembered_by_who_closes_it() {
    let rig = Rig::new();
    let mut mindful = Mindful::of(&rig);
    let one = rig.in_workspace();
    let other = one.other();
    // A group: of a collection that is open for writing nothing is remembered.
    for closes in [Client::close, |one: &Client, _: Uuid| one.ask(CatalogOp::Goodbye)] {
        let group = one.group(Uuid::NIL, "d");
        for client in [&one, &other] {
            client.open_with(Which::Uuid(group), EntryKind::Group, Default::default()).unwrap();
        }
        one.delete(Uuid::NIL, "d").unwrap();
        mindful.look(&one, group, None).unwrap();
        let before = mindful.compared;
        mindful.look(&one, group, None).unwrap();
        assert!(mindful.compared > before, "as long as it is open");
        closes(&one, group).unwrap();
        assert_eq!(mindful.look(&one, group, None), Err(Kind::NotFound));
        assert!(other.stat(group).is_ok());
        other.close(group).unwrap();
    }
}

#[test]
fn o10_who_alone_may_write_is_told_of_others_who_may() {
    let rig = Rig::new();
    let mindful = Mindful::of(&rig);
    let one = rig.in_workspace();
    let (other, third) = (one.other(), one.other());
    let a = create(&one, Uuid::NIL, "a").unwrap();
    let alone = |since: Moment| mindful.view.holds(since, &[Fact::Writers(a)]);
    let now = || mindful.view.now();

    let first = now();
    assert!(alone(first));
    one.open(a).unwrap();
    one.close(a).unwrap();
    one.ask(one.put_op(a, "t", iov_types::Value::I64(1))).unwrap();
    create(&other, Uuid::NIL, "b").unwrap();
    assert!(alone(first), "nobody else has it open");
    other.open(a).unwrap();
    assert!(!alone(first) && !alone(now()), "two may write");
    third.open(a).unwrap();
    other.close(a).unwrap();
    assert!(!alone(now()), "still two");
    rig.service.end_session(third.caller.session);
    assert!(!alone(first) && alone(now()), "one again, behind what others may have written");

    // Another one, alone.
    let second = now();
    one.close(a).unwrap();
    other.open(a).unwrap();
    assert!(!alone(second) && alone(now()));
    other.close(a).unwrap();
    one.open(a).unwrap();

    // What the next catalog finds open.
    other.open(a).unwrap();
    let mut mindful = mindful;
    mindful.goes_on(&rig);
    assert!(!mindful.view.holds(mindful.view.now(), &[Fact::Writers(a)]));
    other.close(a).unwrap();
    assert!(mindful.view.holds(mindful.view.now(), &[Fact::Writers(a)]));
}

/// A store that notes the moment of each commit, before it.
struct Noted {
    inner: MemoryStore,
    view: Mutex<Option<Arc<ChangeView>>>,
    moments: Mutex<Vec<Moment>>,
}

impl MetadataStore for Noted {
    fn get(&self, keys: &[&[u8]]) -> Result<Vec<Option<Record>>> {
        self.inner.get(keys)
    }

    fn scan(&self, range: &KeyRange, after: Option<&[u8]>, limit: usize) -> Result<Vec<(bytes::Bytes, Record)>> {
        self.inner.scan(range, after, limit)
    }

    fn snapshot(&self) -> Result<Box<dyn Snapshot>> {
        self.inner.snapshot()
    }

    fn commit(&self, txns: Vec<Txn>) -> Result<Vec<Commit>> {
        let view = self.view.lock().unwrap().clone();
        self.moments.lock().unwrap().extend(view.map(|view| view.now()));
        self.inner.commit(txns)
    }

    fn persist(&self) -> Result<()> {
        self.inner.persist()
    }

    fn bytes(&self) -> u64 {
        self.inner.bytes()
    }
}

#[test]
fn c3_who_reads_before_the_commit_of_another_ones_close_is_not_alone_since_then() {
    let inline = crate::Options { inline_bytes: 8192, ..crate::tests::rig::options() };
    let store = Arc::new(Noted { inner: MemoryStore::new(), view: Mutex::default(), moments: Mutex::default() });
    let rig = Rig::over(store.clone(), Arc::new(crate::tests::rig::durable_heap()), inline).unwrap();
    let mindful = Mindful::of(&rig);
    let one = rig.in_workspace();
    let other = one.other();
    let a = create(&one, Uuid::NIL, "a").unwrap();
    other.open(a).unwrap();
    *store.view.lock().unwrap() = Some(mindful.view.clone());
    other.close_written(a).unwrap();
    let moments = std::mem::take(&mut *store.moments.lock().unwrap());
    let alone = |since: Moment| mindful.view.holds(since, &[Fact::Writers(a)]);
    assert!(!moments.is_empty() && alone(mindful.view.now()));
    assert!(moments.into_iter().all(|since| !alone(since)));
}
