//! Search as a client sees it (O5, T14); the language and the paths have tests of their own.

use iov_types::{
    Kind, Uuid, Value, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply, SearchSpec, Submission},
};

use super::rig::{Rig, kind, spec};

const ROOT: Uuid = Uuid::NIL;

#[test]
fn t14_created_is_found_deleted_is_never_found_again() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let uuid = client.create_in(ROOT, "a");
    let other = client.other();
    assert_eq!(other.find("iov.name = \"a\""), [uuid]);
    client.delete_uuid(uuid).unwrap();
    assert!(other.find("iov.name = \"a\"").is_empty());
}

#[test]
fn o5_a_cursor_brings_every_match_once_whatever_happens_meanwhile() {
    let rig = Rig::new();
    let client = rig.in_workspace_with(WorkspaceAttr { indexes: vec!["t".into()], ..WorkspaceAttr::default() });
    for i in 0..100 {
        let uuid = client.create_in(ROOT, &format!("c{i:03}"));
        client.ask(client.put_op(uuid, "t", Value::I64(i))).unwrap();
    }
    let start = SearchSpec { page: 7, ..spec(Some("t >= 10")) };
    let mut page = client.page(CatalogOp::Search { ws: client.ws, spec: start });
    let mut seen: Vec<Uuid> = page.entries.iter().map(|e| e.uuid).collect();
    client.delete(ROOT, "c050").unwrap();
    client.create_in(ROOT, "new");
    while let Some(cursor) = page.cursor {
        assert_eq!(
            kind(client.other().ask(CatalogOp::SearchNext { cursor, page: 7 })),
            Kind::Stale,
            "another session's"
        );
        page = client.page(CatalogOp::SearchNext { cursor, page: 7 });
        seen.extend(page.entries.iter().map(|e| e.uuid));
    }
    assert_eq!(seen.len(), 90);
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen.len(), 90);
}

#[test]
fn o5_a_cursor_ends_with_its_close_its_lease_and_its_session() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    for i in 0..10 {
        client.create_in(ROOT, &format!("c{i}"));
    }
    let start = || {
        let spec = SearchSpec { page: 2, ..spec(None) };
        client.page(CatalogOp::Search { ws: client.ws, spec }).cursor.unwrap()
    };
    let next = |cursor| client.ask(CatalogOp::SearchNext { cursor, page: 2 });
    let (closed, idle, left) = (start(), start(), start());
    client.ask(CatalogOp::SearchClose { cursor: closed }).unwrap();
    assert_eq!(kind(next(closed)), Kind::Stale);
    next(idle).unwrap();
    rig.later(31 * super::rig::SECOND);
    assert_eq!(kind(next(idle)), Kind::Stale);
    let fresh = start();
    rig.service.end_session(client.caller.session);
    assert_eq!(kind(next(fresh)), Kind::Stale);
    assert_eq!(kind(next(left)), Kind::Stale);
    assert!(rig.service.core.cursors().is_empty());
}

#[test]
fn o5_a_count_is_complete_and_an_error_has_its_position() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    for i in 0..30 {
        client.create_in(ROOT, &format!("c{i}"));
    }
    let page = client.page(CatalogOp::Search { ws: client.ws, spec: SearchSpec { count: true, ..spec(None) } });
    assert_eq!((page.count, page.cursor), (Some(30), None));
    let wrong = client.ask(CatalogOp::Search { ws: client.ws, spec: spec(Some("iov.size >")) }).unwrap_err();
    assert_eq!(wrong.kind(), Kind::Invalid);
}

#[test]
fn o9_a_search_sees_the_earlier_operations_of_its_submission() {
    let rig = Rig::new();
    let client = rig.in_workspace();
    let kept = client.create_in(ROOT, "kept");
    let gone = client.create_in(ROOT, "gone");
    let (made, create) = client.create_op(ROOT, "made");
    let ops = vec![create, client.delete_op(ROOT, "gone"), CatalogOp::Search { ws: client.ws, spec: spec(None) }];
    for how in [Submission::DryRun, Submission::Each] {
        let replies = client.submit(ops.clone(), how).unwrap();
        let Ok(CatalogReply::Page(page)) = &replies[2] else { panic!() };
        let mut found: Vec<Uuid> = page.entries.iter().map(|e| e.uuid).collect();
        found.sort_unstable();
        let mut expected = vec![kept, made];
        expected.sort_unstable();
        assert_eq!(found, expected);
    }
    assert_eq!(kind(client.stat(gone)), Kind::NotFound);
}
