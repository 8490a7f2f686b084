use super::*;

const LEASE: i64 = 30;

fn caller(session: u8, holder: u8) -> Caller {
    Caller { uid: 1, gid: 1, groups: Vec::new(), session: Uuid([session; 16]), holder: Uuid([holder; 16]) }
}

#[test]
fn x1_a_token_makes_two_sessions_one_holder_and_a_wrong_one_does_not() {
    let mut sessions = Sessions::new(LEASE);
    let first = sessions.touch(&caller(1, 1), 0);
    let token = sessions.export(first, 0);
    sessions.touch(&caller(2, 2), 0);
    let mut wrong = token.clone();
    wrong[20] ^= 1;
    for bad in [wrong, token[..31].to_vec(), [token.clone(), vec![0]].concat(), vec![0; 32]] {
        assert!(sessions.join(Uuid([2; 16]), &bad, 0).is_err());
    }
    assert_eq!(sessions.join(Uuid([2; 16]), &token, 0).unwrap(), first);
    assert_eq!(sessions.touch(&caller(2, 1), 0), first);
    assert_eq!(sessions.touch(&caller(2, 2), 0), first, "the service knows better than the client");
    assert_eq!(sessions.export(first, 0), token, "the same token again");
}

#[test]
fn x1_a_holder_nobody_joined_is_not_believed() {
    let mut sessions = Sessions::new(LEASE);
    sessions.touch(&caller(1, 1), 0);
    assert_eq!(sessions.touch(&caller(2, 1), 0), Uuid([2; 16]), "it acts for itself");
}

#[test]
fn x1_a_lease_ends_and_any_session_of_the_holder_renews_it() {
    let mut sessions = Sessions::new(LEASE);
    let holder = sessions.touch(&caller(1, 1), 0);
    let token = sessions.export(holder, 0);
    assert!(sessions.is_live(holder, LEASE - 1));
    assert!(!sessions.is_live(holder, LEASE));
    sessions.join(Uuid([2; 16]), &token, 1).unwrap();
    sessions.touch(&caller(2, 1), 20);
    assert!(sessions.is_live(holder, 20 + LEASE - 1));
    assert!(sessions.join(Uuid([3; 16]), &token, 20 + LEASE).is_err(), "too late");
}

#[test]
fn x1_a_holder_lives_as_long_as_somebody_acts_for_it() {
    let mut sessions = Sessions::new(i64::MAX);
    let holder = sessions.touch(&caller(1, 1), 0);
    let token = sessions.export(holder, 0);
    sessions.touch(&caller(2, 2), 0);
    sessions.join(Uuid([2; 16]), &token, 0).unwrap();
    sessions.end(Uuid([1; 16]));
    assert!(sessions.is_live(holder, 5));
    sessions.end(Uuid([2; 16]));
    assert!(!sessions.is_live(holder, 5));
    assert!(sessions.holders.is_empty() && sessions.joined.is_empty());
}
