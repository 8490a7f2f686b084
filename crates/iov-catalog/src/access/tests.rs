use iov_types::{AccessEntry, Controls, Kind, Metadata, Name, Uuid};

use super::*;

fn workspace(owner: u32, entries: &[(Subject, Right)]) -> WorkspaceRecord {
    WorkspaceRecord {
        name: Name::new("w").unwrap(),
        owner,
        gid: 0,
        mode: 0,
        access: AccessList {
            entries: entries.iter().map(|(subject, right)| AccessEntry { subject: *subject, right: *right }).collect(),
        },
        metadata: Metadata::new(),
        controls: Controls::default(),
        layout: None,
        indexes: Vec::new(),
        quota_bytes: u64::MAX,
        quota_collections: u64::MAX,
        expires_ns: i64::MAX,
        ctime_ns: 0,
        mtime_ns: 0,
        revision: 1,
        epoch: 0,
        pending: Uuid::NIL,
        changed_ns: 0,
    }
}

fn caller(uid: u32, gid: u32, groups: &[u32]) -> Caller {
    Caller { uid, gid, groups: groups.to_vec(), session: Uuid::NIL, holder: Uuid::NIL }
}

#[test]
fn a1_the_owner_has_every_right_and_root_has_none_of_its_own() {
    let w = workspace(7, &[]);
    assert_eq!(rights(&w, &caller(7, 0, &[])), Some(Right::Admin));
    assert_eq!(rights(&w, &caller(0, 0, &[])), None);
    assert_eq!(rights(&workspace(0, &[]), &caller(0, 0, &[])), Some(Right::Admin));
}

#[test]
fn a1_a_right_includes_the_lesser_ones_and_the_highest_counts() {
    let w = workspace(7, &[(Subject::User(8), Right::Read), (Subject::Group(100), Right::Write)]);
    let reader = rights(&w, &caller(8, 1, &[]));
    let both = rights(&w, &caller(8, 1, &[5, 100]));
    assert!(need(&w, reader, Right::Read).is_ok());
    assert_eq!(need(&w, reader, Right::Write).unwrap_err().kind(), Kind::Denied);
    assert!(need(&w, both, Right::Write).is_ok());
    assert_eq!(need(&w, both, Right::Admin).unwrap_err().clause(), Some(Clause::A1));
    assert_eq!(need(&w, None, Right::Read).unwrap_err().kind(), Kind::Denied);
}

#[test]
fn a2_a_store_of_one_user_gives_access_to_nobody_else() {
    let own = workspace(7, &[(Subject::User(7), Right::Admin)]);
    assert!(check_single_user(7, 7, &own.access).is_ok());
    for subject in [Subject::User(8), Subject::Group(7), Subject::Any] {
        let refused = check_single_user(7, 7, &workspace(7, &[(subject, Right::Read)]).access).unwrap_err();
        assert_eq!((refused.kind(), refused.clause()), (Kind::Refused, Some(Clause::A2)));
    }
    assert!(check_single_user(7, 8, &own.access).is_err());
}
