//! Open cursors of sessions.

use iov_types::{Clause, Kind, Uuid, limits};

use super::{super::Cursors, World, find, uuid};

const A: Uuid = Uuid([1; 16]);
const B: Uuid = Uuid([2; 16]);

#[test]
fn o5_cursor_belongs_to_its_session_for_a_lease() {
    let world = World::new(&[]);
    let cursor = || world.cursor(&find("")).unwrap();
    let mut cursors = Cursors::new();
    cursors.insert(A, uuid(1), cursor(), 0).unwrap();
    assert_eq!(cursors.take(B, uuid(1), 0).map(|_| ()).unwrap_err().kind(), Kind::Stale);
    assert_eq!(cursors.take(A, uuid(2), 0).map(|_| ()).unwrap_err().kind(), Kind::Stale);
    let taken = cursors.take(A, uuid(1), limits::LEASE_NS - 1).unwrap();
    assert_eq!(cursors.take(A, uuid(1), 0).map(|_| ()).unwrap_err().kind(), Kind::Busy);
    cursors.expire(i64::MAX); // in use: its page may take longer than the lease
    cursors.put_back(A, uuid(1), taken, limits::LEASE_NS);
    assert!(cursors.take(A, uuid(1), 2 * limits::LEASE_NS - 1).is_ok(), "each use is another lease");
    cursors.close(A, uuid(1));
    assert!(cursors.is_empty());
    cursors.insert(A, uuid(1), cursor(), 0).unwrap();
    assert_eq!(cursors.take(A, uuid(1), limits::LEASE_NS).map(|_| ()).unwrap_err().kind(), Kind::Stale);
    cursors.expire(limits::LEASE_NS);
    assert_eq!(cursors.len(), 0);
}

#[test]
fn o5_number_of_cursors_is_bounded_per_session() {
    let world = World::new(&[]);
    let cursor = || world.cursor(&find("")).unwrap();
    let mut cursors = Cursors::new();
    for n in 0..limits::SESSION_CURSORS as u64 {
        cursors.insert(A, uuid(n), cursor(), 0).unwrap();
    }
    let e = cursors.insert(A, uuid(1 << 40), cursor(), 0).unwrap_err();
    assert_eq!((e.kind(), e.clause()), (Kind::Exhausted, Some(Clause::O5)));
    assert!(e.detail().contains("close some"), "{e}");
    cursors.insert(B, uuid(1 << 40), cursor(), 0).unwrap();
    cursors.close(B, uuid(5)); // another session's
    assert!(cursors.insert(A, uuid(1 << 41), cursor(), 0).is_err());
    cursors.close(A, uuid(5));
    cursors.insert(A, uuid(1 << 41), cursor(), 1).unwrap();
    cursors.insert(A, uuid(1 << 42), cursor(), limits::LEASE_NS).unwrap();
    assert_eq!(cursors.len(), 3, "those whose lease ended made room");
    cursors.drop_session(A);
    assert_eq!(cursors.len(), 1);
}

#[test]
fn o5_cursor_closed_while_it_makes_a_page_is_gone() {
    let world = World::new(&[]);
    let mut cursors = Cursors::new();
    cursors.insert(A, uuid(1), world.cursor(&find("")).unwrap(), 0).unwrap();
    let taken = cursors.take(A, uuid(1), 0).unwrap();
    cursors.drop_session(A);
    cursors.put_back(A, uuid(1), taken, 0);
    assert!(cursors.is_empty());
}
