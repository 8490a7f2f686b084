//! First writes that are more than a record takes: the catalog writes them at the target.

use iov_types::{
    Attr, Clause, Controls, Kind, Limits, Uuid, WorkspaceAttr,
    catalog::{CatalogOp, CatalogReply, Submission},
    limits::WRITE_THROUGH,
};

use super::{
    fragile::{Fails, Fragile},
    inline::{created, inline_options, rig, write},
    rig::{Client, SECOND, kind},
};

fn bytes(len: u64) -> Vec<u8> {
    (0..len).map(|i| (i * 7 % 251) as u8).collect()
}

#[test]
fn h2_a_first_write_of_more_than_a_record_takes_is_one_request() {
    let rig = rig();
    let client = rig.in_workspace();
    for (name, len) in [("a", 8193), ("b", WRITE_THROUGH)] {
        let (uuid, inline) = created(&client, name, Controls::default());
        assert!(inline);
        let ws = client.ws;
        let ops = vec![
            CatalogOp::Write { ws, uuid, offset: 0, data: bytes(len) },
            CatalogOp::SetAttr { ws, uuid, attr: Attr { mtime_ns: Some(7 * SECOND), ..Attr::default() } },
            CatalogOp::Close { ws, uuid, published: None },
        ];
        assert_eq!(client.submit(ops, Submission::Each).unwrap(), vec![Ok(CatalogReply::Done); 3]);
        assert_eq!(client.bytes(uuid).read().unwrap(), bytes(len));
        let stat = client.stat(uuid).unwrap();
        assert_eq!((stat.bytes, stat.mtime_ns), (len, 7 * SECOND));
        assert!(!client.open(uuid).unwrap().inline);
        assert_eq!(kind(client.ask(CatalogOp::Close { ws: Uuid::NIL, uuid, published: None })), Kind::Stale);
        client.close(uuid).unwrap();
    }
    assert_eq!(client.stat_workspace().bytes, 8193 + WRITE_THROUGH);
    assert_eq!(rig.keys(b'C'), Vec::<Vec<u8>>::new());
    // Larger ones, and what is not all there is, go to the target by their writer, who may have several at a time.
    let (uuid, _) = created(&client, "c", Controls::default());
    assert_eq!(write(&client, uuid, 0, &bytes(WRITE_THROUGH + 1)).unwrap(), CatalogReply::Moved);
    let (uuid, _) = created(&client, "d", Controls::default());
    assert_eq!(write(&client, uuid, 1, &bytes(9000)).unwrap(), CatalogReply::Moved);
    client.delete(Uuid::NIL, "a").unwrap();
    client.delete(Uuid::NIL, "b").unwrap();
    assert_eq!(client.stat_workspace().bytes, 0);
}

#[test]
fn o1_what_is_beyond_the_quota_or_the_size_promised_changes_nothing() {
    let rig = rig();
    let client = rig.in_workspace_with(WorkspaceAttr { quota_bytes: Some(10_000), ..WorkspaceAttr::default() });
    let (uuid, _) = created(&client, "a", Controls::default());
    let refused = write(&client, uuid, 0, &bytes(10_001)).unwrap_err();
    assert_eq!((refused.kind(), refused.clause()), (Kind::Exhausted, Some(Clause::O1)));
    assert!(!client.bytes(uuid).exists());
    assert_eq!(write(&client, uuid, 0, &bytes(10_000)).unwrap(), CatalogReply::Done);
    assert_eq!(client.stat_workspace().bytes, 10_000);
    let client = rig.in_workspace();
    let sizes = Controls { collection_size: Limits { min: 0, max: 9000 }, ..Controls::default() };
    let (uuid, inline) = created(&client, "b", sizes);
    assert!(inline && kind(write(&client, uuid, 0, &bytes(9001))) == Kind::FileTooBig);
    assert!(!client.bytes(uuid).exists());
}

/// Writes while step `n` fails, and so many bytes afterwards; whether it was reached.
fn write_that_fails(n: i64, how: Fails, crashes: bool, then: u64) -> bool {
    let fragile = Fragile::new();
    let rig = fragile.open_with(inline_options());
    let client = rig.in_workspace();
    let (uuid, _) = created(&client, "a", Controls::default());
    fragile.fuse.set(n, how);
    let wrote = write(&client, uuid, 0, &bytes(9000));
    let reached = fragile.fuse.left() <= 0;
    fragile.fuse.mend();
    let what = format!("step {n} {how:?}, crash {crashes}: {wrote:?}");
    let (_rig, client) = if crashes {
        let ws = client.ws;
        drop((client, rig));
        let rig = fragile.open_with(inline_options());
        let client = Client { ws, ..rig.client() };
        client.open(uuid).unwrap();
        (rig, client)
    } else {
        (rig, client)
    };
    let size = client.stat(uuid).unwrap().bytes;
    let whole = wrote == Ok(CatalogReply::Done);
    assert!(size == 9000 || (!whole && size == 0), "{what}: {size}");
    // What has failed can be done once more, by whichever way it is to be done then.
    match write(&client, uuid, 0, &bytes(then)).unwrap() {
        CatalogReply::Moved => {
            client.ask(CatalogOp::MoveOut { ws: client.ws, uuid }).unwrap();
            client.bytes(uuid).write(0, &bytes(then)).unwrap();
        }
        done => assert_eq!(done, CatalogReply::Done, "{what}"),
    }
    let expected = then.max(size);
    assert_eq!(client.bytes(uuid).read().unwrap(), bytes(expected), "{what}");
    assert_eq!(client.stat(uuid).unwrap().bytes, expected, "{what}");
    client.close_written(uuid).unwrap();
    client.delete(Uuid::NIL, "a").unwrap();
    assert!(!client.bytes(uuid).exists() && client.stat_workspace().bytes == 0, "{what}");
    reached
}

#[test]
fn o6_bytes_of_a_write_that_failed_do_not_come_back() {
    for (n, how) in (1..9).flat_map(|n| [Fails::Before, Fails::After, Fails::Once].map(|how| (n, how))) {
        for removed in [false, true] {
            let fragile = Fragile::new();
            let rig = fragile.open_with(inline_options());
            let client = rig.in_workspace();
            let (uuid, _) = created(&client, "a", Controls::default());
            fragile.fuse.set(n, how);
            let wrote = write(&client, uuid, 0, &bytes(9000));
            fragile.fuse.mend();
            let what = format!("step {n} {how:?}: {wrote:?}");
            if wrote.is_ok() || client.stat(uuid).unwrap().bytes > 0 {
                continue;
            }
            if removed {
                client.close(uuid).unwrap();
                client.delete(Uuid::NIL, "a").unwrap();
                // After a commit of unknown outcome it may be the only place where the bytes are.
                let unknown = wrote.is_err_and(|e| e.to_string().contains("at a commit"));
                assert!(unknown || !client.bytes(uuid).exists(), "{what}");
            } else {
                client.ask(CatalogOp::MoveOut { ws: client.ws, uuid }).unwrap();
                client.bytes(uuid).write(20_000, b"x").unwrap();
                let read = client.bytes(uuid).read().unwrap();
                assert!(read.len() == 20_001 && read[..20_000].iter().all(|b| *b == 0), "{what}");
            }
        }
    }
}

#[test]
fn p2_a_write_that_fails_at_any_step_is_whole_or_not_there() {
    for how in [Fails::Before, Fails::After, Fails::Once] {
        for (crashes, then) in [(false, 9500), (false, 8500), (true, 9500), (true, 8500)] {
            let steps = (1..20).take_while(|n| write_that_fails(*n, how, crashes, then)).count();
            assert!(steps >= 3, "{how:?}: {steps} steps");
        }
    }
}
