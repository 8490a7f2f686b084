#![allow(clippy::disallowed_methods)]

use std::{
    fs::File,
    sync::atomic::{AtomicBool, AtomicU64},
};

use super::*;

fn file() -> File {
    tempfile::tempfile().unwrap()
}

fn open(file: &File) -> ChangePage {
    let page = ChangePage::open(file, 1).unwrap();
    page.ready();
    page
}

fn id(n: u8) -> Uuid {
    Uuid([n; 16])
}

#[test]
fn c1_what_changes_holds_no_more_and_all_else_does() {
    let file = file();
    let page = open(&file);
    let view = ChangeView::map(&file, 1).unwrap();
    let facts = [Fact::Names(id(1)), Fact::Itself(id(2))];
    let since = view.now();
    assert!(view.holds(since, &facts));

    page.begin(Fact::Itself(id(3)));
    assert!(view.holds(since, &facts), "of something else");
    assert!(!view.holds(view.now(), &[Fact::Itself(id(3))]), "it is being changed");
    page.end(Fact::Itself(id(3)));
    assert!(view.holds(since, &facts));

    page.begin(Fact::Names(id(1)));
    let meanwhile = view.now();
    assert!(!view.holds(since, &facts) && !view.holds(meanwhile, &facts));
    page.end(Fact::Names(id(1)));
    assert!(!view.holds(since, &facts), "it has changed");
    assert!(!view.holds(meanwhile, &facts), "who asked before its end may have heard what was before");
    assert!(view.holds(view.now(), &facts));
    assert!(view.holds(since, &facts[1..]));

    let since = view.now();
    page.begin(Fact::All);
    page.end(Fact::All);
    assert!(!view.holds(since, &[]) && view.holds(view.now(), &facts));
}

#[test]
fn who_changes_a_fact_knows_whether_others_have_too() {
    let file = file();
    let (page, view) = (open(&file), ChangeView::map(&file, 1).unwrap());
    let fact = Fact::Names(id(1));
    let before = view.begun(fact);
    page.begin(fact);
    assert_eq!(view.begun(fact), before + 1, "as soon as it begins");
    page.begin(fact);
    page.end(fact);
    page.end(fact);
    assert_eq!(view.begun(fact), before + 2);
    assert!(view.holds(view.now(), &[fact]), "how often says nothing of what is under way");
    page.begin(Fact::Names(id(2)));
    assert_eq!(view.begun(fact), before + 2);
    // The next catalog has nothing under way.
    let next = ChangePage::open(&file, 2).unwrap();
    next.ready();
    let view = ChangeView::map(&file, 2).unwrap();
    assert!(view.holds(view.now(), &[Fact::Names(id(2))]));
}

#[test]
fn c1_what_is_changed_twice_at_a_time_has_changed_when_both_have() {
    let file = file();
    let (page, view) = (open(&file), ChangeView::map(&file, 1).unwrap());
    let fact = Fact::Itself(id(1));
    page.begin(fact);
    page.begin(fact);
    page.end(fact);
    assert!(!view.holds(view.now(), &[fact]));
    page.end(fact);
    assert!(view.holds(view.now(), &[fact]));
}

#[test]
fn nothing_that_was_remembered_of_the_catalog_before_holds() {
    let file = file();
    let before = open(&file);
    let view = ChangeView::map(&file, 1).unwrap();
    // It dies in the middle of a change.
    before.begin(Fact::Names(id(1)));
    let since = view.now();
    drop(before);
    assert!(view.holds(since, &[Fact::Itself(id(7))]), "nobody can change anything");
    let after = ChangePage::open(&file, 1).unwrap();
    assert!(!view.holds(since, &[]) && !view.holds(view.now(), &[]), "it is not ready yet");
    after.ready();
    assert!(!view.holds(since, &[Fact::Itself(id(7))]));
    assert!(view.holds(view.now(), &[Fact::Names(id(1)), Fact::Itself(id(7))]));
    // Another one, of which this view knows nothing.
    ChangePage::open(&file, 2).unwrap().ready();
    assert!(!view.holds(view.now(), &[]));
    assert!(ChangeView::map(&file, 2).unwrap().holds(view.now(), &[]));
}

#[test]
fn what_is_no_page_is_refused() {
    let file = file();
    let said = |file: &File| ChangeView::map(file, 1).unwrap_err().to_string();
    assert!(said(&file).contains("0 bytes"), "{}", said(&file));
    file.set_len(CHANGE_PAGE_BYTES as u64).unwrap();
    assert!(said(&file).contains("no change page"));
    drop(open(&file));
    assert!(ChangeView::map(&file, 1).is_ok());
    std::os::unix::fs::FileExt::write_all_at(&file, &7u64.to_le_bytes(), 8).unwrap();
    assert!(said(&file).contains("version 7"), "{}", said(&file));
}

/// A value changes under the protocol; what is remembered of it is never older than what anybody has seen of it before.
#[test]
fn c1_nobody_remembers_what_another_has_seen_changed() {
    let file = file();
    let page = open(&file);
    let (value, seen, over) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let fact = [Fact::Names(id(1))];
    let hits = AtomicU64::new(0);
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let view = ChangeView::map(&file, 1).unwrap();
                let (mut since, mut known) = (view.now(), value.load(SeqCst));
                while !over.load(SeqCst) {
                    let at_least = seen.load(SeqCst);
                    match view.holds(since, &fact) {
                        true => {
                            hits.fetch_add(1, SeqCst);
                            assert!(known >= at_least, "{known} is remembered, {at_least} was seen");
                        }
                        false => {
                            since = view.now();
                            known = value.load(SeqCst);
                            seen.fetch_max(known, SeqCst);
                        }
                    }
                }
            });
        }
        for n in 0..20_000 {
            page.begin(fact[0]);
            value.fetch_add(1, SeqCst);
            page.end(fact[0]);
            if n % 64 == 0 {
                std::thread::yield_now();
            }
        }
        over.store(true, SeqCst);
    });
    assert!(hits.load(SeqCst) > 0);
}
