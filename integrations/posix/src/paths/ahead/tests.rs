use std::collections::BTreeSet;

use super::{Count, EACH, MOST};

/// How many questions it takes to look at names in this order, and how many came along with them.
fn questions(all: &BTreeSet<String>, order: impl Iterator<Item = String>) -> (u64, u64) {
    let mut count = Count::new(0);
    let mut known = BTreeSet::new();
    for name in order {
        if known.remove(&name) {
            count.used += 1;
            continue;
        }
        let wanted = count.wanted();
        let behind = all.range((std::ops::Bound::Excluded(name), std::ops::Bound::Unbounded));
        let along: Vec<&String> = behind.take(wanted as usize).collect();
        count.has_come(along.len() as u64);
        known.extend(along.into_iter().cloned());
    }
    (count.asked, count.came)
}

/// Some of so many numbers, one after the other, as far from order as can be.
fn scattered(n: u64) -> impl Iterator<Item = u64> {
    (1..=n).map(move |i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15) % n)
}

#[test]
fn who_looks_at_all_of_a_directory_asks_seldom() {
    let all: BTreeSet<String> = (0..5_000).map(|n| format!("file.{n}")).collect();
    // As their names are ordered, as their numbers are, and backwards.
    assert!(questions(&all, all.iter().cloned()).0 < 40);
    assert!(questions(&all, (0..5_000).map(|n| format!("file.{n}"))).0 < 120);
    assert!(questions(&all, scattered(5_000).map(|n| format!("file.{n}"))).0 < 1_200);
}

#[test]
fn who_looks_at_little_pays_for_little() {
    let name = |n: u64| format!("{n:07}");
    let all: BTreeSet<String> = (0..200_000).map(name).collect();
    assert_eq!(questions(&all, (0..4).map(|n| name(n * 1000))), (4, 0));
    let (asked, came) = questions(&all, scattered(200_000).take(3_000).map(name));
    assert!(asked > 2_900 && came < 1_024 + EACH * 64 + MOST, "{asked} {came}");
}

#[test]
fn who_finds_nothing_behind_names_asks_for_more_of_them_seldom() {
    let mut count = Count::new(0);
    let mut asked_for_more = 0;
    for _ in 0..6_400 {
        asked_for_more += u64::from(count.wanted() > 0);
        count.has_come(0);
    }
    assert!((100..=110).contains(&asked_for_more), "{asked_for_more}");
    // Something is there: it is as before from then on.
    while count.wanted() == 0 {
        count.has_come(0);
    }
    count.has_come(10);
    assert!(count.wanted() > 0);
}
