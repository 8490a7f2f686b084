use iov_types::Kind;

use super::*;

const A: Uuid = Uuid([1; 16]);
const B: Uuid = Uuid([2; 16]);

#[test]
fn x1_a_session_has_one_connection_and_ends_with_it() {
    let sessions = Sessions::default();
    sessions.begin(A).unwrap();
    assert_eq!(sessions.begin(A).unwrap_err().kind(), Kind::Exists, "it may have requests under way");
    assert!(sessions.end(A).is_some());
    assert!(sessions.end(A).is_none(), "it has ended");
    assert_eq!(sessions.count(), 0);
}

#[test]
fn x1_a_session_is_not_begun_anew_before_all_of_it_has_ended() {
    let sessions = Sessions::default();
    sessions.begin(A).unwrap();
    let ending = sessions.end(A).unwrap();
    assert_eq!(sessions.begin(A).unwrap_err().kind(), Kind::Exists, "a client tries again");
    assert!(sessions.end(A).is_none());
    sessions.begin(B).unwrap();
    drop(ending);
    sessions.begin(A).unwrap();
    assert_eq!(sessions.count(), 2);
}
