//! What comes along with a look.

use iov_types::{
    Attr, Controls, EntryKind, Lifetime, Temporality, Uuid, Which,
    catalog::{CatalogOp, CatalogReply},
};

use super::{
    inline::{created, rig, write},
    rig::exclusive,
};

#[test]
fn o10_a_look_tells_bytes_of_what_may_be_opened_without_a_word() {
    let rig = rig();
    let client = rig.in_workspace();
    let once = Controls { temporality: Some(Temporality::Once), ..Controls::default() };
    for (name, controls, bytes) in [
        ("a", Controls::default(), "one"),
        ("b", exclusive(), "two"),
        ("c", once, "three"),
        ("d", Controls::default(), "four"),
    ] {
        let (uuid, inline) = created(&client, name, controls);
        assert!(inline);
        write(&client, uuid, 0, bytes.as_bytes()).unwrap();
        client.close_written(uuid).unwrap();
    }
    let leased = Attr { lifetime: Some(Lifetime::lease(1_000_000_000_000)), ..Attr::default() };
    let (going, _) = created(&client, "e", Controls::default());
    client.ask(CatalogOp::SetAttr { ws: client.ws, uuid: going, attr: leased }).unwrap();
    let look = |which: &str, tell: u64| {
        let which = Which::Name(super::rig::name(which));
        let look = CatalogOp::Look { ws: client.ws, parent: Uuid::NIL, which, ahead: 9, tell };
        let CatalogReply::Looked(looked) = client.ask(look).unwrap() else { panic!("it did not look ahead") };
        looked.entries.into_iter().map(|entry| entry.bytes.map(|b| String::from_utf8(b).unwrap())).collect::<Vec<_>>()
    };
    let some = |text: &str| Some(text.to_owned());
    // Not of who keeps others out, of what leaves a trace, and of what counts when it was last open.
    assert_eq!(look("a", 100), [some("one"), None, None, some("four"), None]);
    assert_eq!(look("a", 3), [some("one"), None, None, None, None], "no more than was asked for");
    assert_eq!(look("d", 0), [None, None]);
    // Of nothing while somebody holds a group, which may be above it.
    let group = client.group(Uuid::NIL, "g");
    let (ws, which) = (client.ws, Which::Uuid(group));
    let open =
        CatalogOp::Open { ws, parent: Uuid::NIL, which, kind: EntryKind::Group, controls: exclusive(), tell: None };
    client.other().ask(open).unwrap();
    assert_eq!(look("a", 100)[..4], [None, None, None, None]);
}
