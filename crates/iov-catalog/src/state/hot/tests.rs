use iov_types::Layout;

use super::*;

fn uuid(n: u64) -> Uuid {
    Uuid::v7(n, [n as u8; 10])
}

fn facts(n: u64) -> HotFacts {
    let facts = Facts {
        kind: EntryKind::Collection,
        state: State::Open,
        links: 1,
        layout: Layout::default(),
        mode: 0o640,
        uid: 1,
        gid: 1,
        ctime_ns: 1,
        mtime_ns: 2,
        mtime_base_ns: 0,
        size: n,
        allocated: 0,
        version: 0,
        deleted: false,
        opened_in: 0,
        abandoned_ns: 0,
        inline: false,
        lifetime: None,
        changed_ns: 0,
        atime_ns: 0,
    };
    HotFacts::new(Uuid([9; 16]), uuid(n), &facts)
}

#[test]
fn the_oldest_make_room_and_what_was_changed_is_forgotten() {
    let mut hot = Hot::default();
    let size = |hot: &Hot, n| hot.get(Uuid([9; 16]), uuid(n)).map(|f| f.stat().bytes);
    for n in 0..8 {
        hot.learn_within(facts(n), 8);
    }
    hot.forget(uuid(3));
    assert_eq!(size(&hot, 3), None);
    hot.learn_within(facts(8), 8);
    assert!((0..9).filter(|n| *n != 3).all(|n| size(&hot, n) == Some(n)), "it took the free place");
    for n in 9..12 {
        hot.learn_within(facts(n), 8);
    }
    let kept: Vec<u64> = (0..12).filter(|n| size(&hot, *n).is_some()).collect();
    assert_eq!(kept.len(), 8);
    assert!(kept.ends_with(&[9, 10, 11]));
    for n in 0..100 {
        hot.forget(uuid(n % 12));
        hot.learn_within(facts(n % 12), 8);
        assert_eq!(size(&hot, n % 12), Some(n % 12));
        assert!(hot.facts.len() <= 8 && hot.places.len() <= 8);
    }
    assert_eq!(hot.get(Uuid([8; 16]), uuid(3)).map(|f| f.size), None, "another workspace's");
}
