use std::sync::mpsc::{Sender, channel};

use super::*;

type Told = (u8, Option<&'static str>);

fn join(asks: &Asks<u8, &'static str>, key: u8, deadline_ns: i64, who: u8, to: &Sender<Told>) -> bool {
    let to = to.clone();
    asks.join(key, deadline_ns, who, move |who, answer| to.send((who, answer)).unwrap()).is_some()
}

#[test]
fn one_asks_and_all_hear_the_answer() {
    let (asks, (to, told)) = (Asks::default(), channel());
    assert!(join(&asks, 1, i64::MAX, 1, &to), "the first asks");
    assert!(!join(&asks, 1, i64::MAX, 2, &to) && !join(&asks, 1, i64::MAX, 3, &to));
    assert!(join(&asks, 2, i64::MAX, 4, &to), "something else");
    asks.answered(1, "one");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(2, Some("one")), (3, Some("one"))]);
    assert!(join(&asks, 1, i64::MAX, 5, &to), "asked anew");
    asks.answered(2, "two");
    assert_eq!(told.try_iter().count(), 0);
}

#[test]
fn o8_nobody_waits_beyond_its_deadline_for_what_another_asked() {
    let (asks, (to, told)) = (Asks::default(), channel());
    assert!(join(&asks, 1, 0, 1, &to));
    assert!(!join(&asks, 1, 0, 2, &to) && !join(&asks, 1, i64::MAX, 3, &to));
    asks.expire();
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(2, None)]);
    assert!(!join(&asks, 1, i64::MAX, 4, &to), "the first still asks");
    asks.answered(1, "late");
    assert_eq!(told.try_iter().collect::<Vec<_>>(), [(3, Some("late")), (4, Some("late"))]);
}
