use iov_types::Kind;

use super::*;

const A: Uuid = Uuid([1; 16]);
const B: Uuid = Uuid([2; 16]);
const C: Uuid = Uuid([3; 16]);

fn refused(sessions: &Sessions, session: Uuid, channel: u32) -> (Kind, Option<u64>) {
    let in_the_way = sessions.begin(session, channel, 99).unwrap_err();
    (in_the_way.error.kind(), in_the_way.old)
}

#[test]
fn x1_a_session_has_one_connection_and_ends_with_it() {
    let sessions = Sessions::default();
    sessions.begin(A, 0, 1).unwrap();
    assert_eq!(refused(&sessions, A, 0), (Kind::Exists, Some(1)), "it may have requests under way");
    assert!(sessions.end(A, 0, 1, Left::Ended).ends.is_some());
    assert!(sessions.end(A, 0, 1, Left::Ended).ends.is_none(), "it has ended");
    assert_eq!(sessions.count(), 0);
}

#[test]
fn x1_a_session_is_not_begun_anew_before_all_of_it_has_ended() {
    let sessions = Sessions::default();
    sessions.begin(A, 0, 1).unwrap();
    let ending = sessions.end(A, 0, 1, Left::Ended);
    assert_eq!(refused(&sessions, A, 0), (Kind::Exists, None), "a client tries again");
    sessions.begin(B, 0, 2).unwrap();
    drop(ending);
    sessions.begin(A, 0, 3).unwrap();
    assert_eq!(sessions.count(), 2);
}

#[test]
fn x1_channels_come_behind_the_first_connection_and_end_with_it() {
    let sessions = Sessions::default();
    assert_eq!(refused(&sessions, A, 1).0, Kind::Stale);
    sessions.begin(A, 0, 1).unwrap();
    sessions.begin(A, 1, 2).unwrap();
    sessions.begin(A, 2, 3).unwrap();
    assert_eq!(refused(&sessions, A, 1), (Kind::Exists, Some(2)), "what is under way over the old one comes first");
    assert!(sessions.end(A, 1, 2, Left::Ended).ends.is_none());
    sessions.begin(A, 1, 4).unwrap();
    let follows = sessions.end(A, 0, 1, Left::Ended);
    let mut shut = follows.shut.clone();
    shut.sort_unstable();
    assert_eq!(shut, [3, 4]);
    assert!(follows.ends.is_none(), "they may still be at work");
    assert_eq!(refused(&sessions, A, 0).0, Kind::Exists);
    assert_eq!(refused(&sessions, A, 3).0, Kind::Stale);
    assert!(sessions.end(A, 2, 3, Left::Ended).ends.is_none());
    assert!(sessions.end(A, 1, 4, Left::Ended).ends.is_some());
    assert_eq!(sessions.count(), 0);
}

#[test]
fn x1_a_session_whose_connection_broke_is_kept_until_its_leases_end() {
    let sessions = Sessions::default();
    sessions.begin(A, 0, 1).unwrap();
    sessions.begin(A, 1, 2).unwrap();
    let follows = sessions.end(A, 0, 1, Left::Broke(1000));
    assert_eq!((follows.shut, follows.ends.is_some()), (vec![2], false));
    assert_eq!(refused(&sessions, A, 0).0, Kind::Exists, "its old channel comes first");
    assert!(sessions.end(A, 1, 2, Left::Broke(1000)).ends.is_none());
    assert!(sessions.expired(999).is_empty() && sessions.any_kept());
    sessions.begin(A, 0, 3).unwrap();
    assert!(sessions.expired(2000).is_empty(), "it is back");
    assert!(!sessions.any_kept());
    assert!(sessions.end(A, 0, 3, Left::Broke(3000)).ends.is_none());
    let ended: Vec<Uuid> = sessions.expired(3000).iter().map(|ending| ending.session).collect();
    assert_eq!((ended, sessions.count()), (vec![A], 0));
}

#[test]
fn x1_sessions_for_targets_end_with_their_client_and_are_not_kept_beyond_it() {
    let sessions = Sessions::default();
    let broke = Left::Broke(1000);
    sessions.begin(A, 0, 1).unwrap();
    sessions.begin_of(B, Some(A), 0, 2).unwrap();
    sessions.begin_of(C, Some(A), 0, 3).unwrap();
    sessions.begin(C, 1, 4).unwrap();
    assert!(sessions.end(B, 0, 2, broke).ends.is_none(), "it may come back");
    let follows = sessions.end(A, 0, 1, Left::Ended);
    let seconds: Vec<Uuid> = follows.seconds.iter().map(|ending| ending.session).collect();
    assert_eq!((follows.shut.clone(), seconds, follows.ends.is_none()), (vec![3], vec![B], true));
    drop(follows);
    assert!(sessions.over(A).is_none(), "one is still there");
    // By the daemon itself, which does not know then how it ended.
    assert_eq!(sessions.end(C, 0, 3, broke).shut, [4]);
    assert!(sessions.end(C, 1, 4, broke).ends.is_some());
    assert!(sessions.over(A).is_some());
    assert_eq!(sessions.count(), 0);
}

#[test]
fn x1_sessions_for_targets_are_kept_as_long_as_their_client_may_come_back() {
    let sessions = Sessions::default();
    sessions.begin(A, 0, 1).unwrap();
    sessions.begin_of(B, Some(A), 0, 2).unwrap();
    let follows = sessions.end(A, 0, 1, Left::Broke(1000));
    assert_eq!((follows.shut, follows.seconds.len()), (vec![2], 0));
    assert!(sessions.end(B, 0, 2, Left::Broke(1000)).ends.is_none());
    sessions.begin(A, 0, 3).unwrap();
    assert!(sessions.end(B, 0, 2, Left::Broke(1000)).ends.is_none());
    sessions.begin_of(B, Some(A), 0, 4).unwrap();
}
