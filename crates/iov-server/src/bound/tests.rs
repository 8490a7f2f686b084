use super::*;

fn bound(now_ns: i64) -> (Bound, TicketKey) {
    let (bound, key) = (Bound::default(), TicketKey::new([3; 32]));
    let answer =
        JoinAnswer { store: Uuid([1; 16]), catalog: Uuid([5; 16]), now_ns, lease_ns: 7, ..JoinAnswer::default() };
    bound.learn(&answer, key.clone());
    (bound, key)
}

fn ticket(expires_ns: i64) -> Ticket {
    let (store, session) = (Uuid([1; 16]), Uuid([2; 16]));
    Ticket { store, session, rights: Ticket::READ, expires_ns, ..Ticket::default() }
}

#[test]
fn a1_a_ticket_is_good_for_its_store_and_its_session_until_it_runs_out() {
    // The catalog's clock is an hour ahead of ours.
    let now_ns = seam::now_ns() + 3_600_000_000_000;
    let (bound, key) = bound(now_ns);
    let second = 1_000_000_000;
    let check = |ticket: &Ticket| bound.check(&key.sign(ticket), Uuid([2; 16])).map_err(|e| (e.kind(), e.clause()));
    let denied = Err((iov_types::Kind::Denied, Some(Clause::A1)));
    assert_eq!(check(&ticket(now_ns + 60 * second)), Ok(ticket(now_ns + 60 * second)));
    assert_eq!(check(&ticket(i64::MAX)), Ok(ticket(i64::MAX)));
    assert_eq!(check(&ticket(now_ns - second)), denied);
    assert_eq!(check(&Ticket { store: Uuid([9; 16]), ..ticket(i64::MAX) }), denied);
    assert_eq!(check(&Ticket { session: Uuid([9; 16]), ..ticket(i64::MAX) }), denied);
    let forged = TicketKey::new([4; 32]).sign(&ticket(i64::MAX));
    assert_eq!(bound.check(&forged, Uuid([2; 16])).map_err(|e| (e.kind(), e.clause())), denied);
}

#[test]
fn what_a_catalog_before_the_present_one_sends_late_does_not_count() {
    let (bound, key) = bound(seam::now_ns());
    let of_catalog = |session| Ticket { session, rights: Ticket::CATALOG, ..ticket(i64::MAX) };
    let check = |session| bound.check(&key.sign(&of_catalog(session)), session).map(drop).map_err(|e| e.kind());
    assert_eq!(check(Uuid([5; 16])), Ok(()));
    assert_eq!(check(Uuid([6; 16])), Err(iov_types::Kind::Unavailable));
}

#[test]
fn nothing_is_believed_before_the_store_was_joined() {
    let signed = TicketKey::new([3; 32]).sign(&ticket(i64::MAX));
    let e = Bound::default().check(&signed, Uuid([2; 16])).expect_err("it knows no key");
    assert_eq!(e.kind(), iov_types::Kind::Unavailable);
}
