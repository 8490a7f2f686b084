use std::cell::RefCell;

use iov_types::Uuid;

use super::*;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Item(u8, bool, u32);

fn object(n: u8) -> ObjectId {
    ObjectId { collection: Uuid([n; 16]), slot: 0 }
}

impl Goes for Item {
    fn is_bulk(&self) -> bool {
        self.1
    }

    fn concerns(&self, of: ObjectId) -> bool {
        object(self.0) == of
    }

    fn objects(&self) -> Vec<ObjectId> {
        vec![object(self.0)]
    }
}

#[test]
fn what_is_small_goes_by_large_transfers_of_others_only() {
    let gate = Gate::default();
    for i in 0..WINDOW as u32 {
        assert!(gate.enter(Item(1, true, i)).is_some());
    }
    assert!(gate.enter(Item(1, true, 100)).is_none());
    assert!(gate.enter(Item(2, true, 101)).is_none());
    assert!(gate.enter(Item(3, false, 102)).is_some(), "nothing of its object waits");
    assert!(gate.enter(Item(2, false, 103)).is_none(), "in order behind its own object's");
    let gone = RefCell::new(Vec::new());
    let go = |item: Item| gone.borrow_mut().push(item.2);
    gate.leave(go);
    assert_eq!(gone.take(), [100]);
    gate.leave(go);
    assert_eq!(gone.take(), [101, 103]);
}

#[test]
fn what_ends_at_once_lets_the_next_go_without_end() {
    let gate = Gate::default();
    for i in 0..100_000 {
        gate.enter(Item(1, true, i));
    }
    let gone = RefCell::new(Vec::new());
    fn go(gate: &Gate<Item>, gone: &RefCell<Vec<u32>>, item: Item) {
        gone.borrow_mut().push(item.2);
        gate.leave(|next| go(gate, gone, next));
    }
    gate.leave(|item| go(&gate, &gone, item));
    assert_eq!(gone.take(), (WINDOW as u32..100_000).collect::<Vec<_>>(), "in order, and no deep stack");
}

#[test]
fn o8_what_waits_for_too_long_is_taken_out() {
    let gate = Gate::default();
    for i in 0..20 {
        gate.enter(Item(1, true, i));
    }
    let out: Vec<u32> = gate.take_out(|item| item.2 % 2 == 0).iter().map(|item| item.2).collect();
    assert_eq!(out, [8, 10, 12, 14, 16, 18]);
}
