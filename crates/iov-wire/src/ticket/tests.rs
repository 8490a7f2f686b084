use iov_types::{Clause, Kind, Ticket, Uuid};

use super::TicketKey;

fn ticket() -> Ticket {
    let of = |n| Uuid([n; 16]);
    let rights = Ticket::READ | Ticket::WRITE;
    Ticket { store: of(1), collection: of(2), ws: of(3), session: of(4), rights, epoch: 5, expires_ns: -6 }
}

#[test]
fn a1_what_was_signed_is_read_and_no_byte_of_it_can_be_changed() {
    let key = TicketKey::new([7; 32]);
    let signed = key.sign(&ticket());
    assert_eq!(key.check(&signed), Ok(ticket()));
    for at in 0..signed.len() {
        let mut changed = signed.clone();
        changed[at] ^= 1;
        let e = key.check(&changed).expect_err("it is forged");
        assert_eq!((e.kind(), e.clause()), (Kind::Denied, Some(Clause::A1)), "byte {at}");
    }
    for len in 0..signed.len() {
        assert_eq!(key.check(&signed[..len]).expect_err("it is cut short").kind(), Kind::Denied);
    }
    assert_eq!(TicketKey::new([8; 32]).check(&signed).expect_err("of another store").kind(), Kind::Denied);
}

#[test]
fn a_key_is_not_shown() {
    assert_eq!(format!("{:?}", TicketKey::new([0xab; 32])), "TicketKey(…)");
}

#[test]
fn rights_are_given_one_by_one() {
    let reads = Ticket { rights: Ticket::READ, ..ticket() };
    assert!(reads.gives(Ticket::READ) && !reads.gives(Ticket::WRITE) && !reads.gives(Ticket::CATALOG));
    assert!(ticket().gives(Ticket::READ | Ticket::WRITE));
}
