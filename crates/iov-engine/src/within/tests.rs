use iov_store::seam;

use super::{most_ns, within, within_all};

#[test]
fn o8_the_shortest_deadline_holds_and_ends_with_what_it_is_for() {
    within(20, || {
        within(30, || assert_eq!(most_ns(), 20));
        within(0, || assert_eq!(most_ns(), 1));
        let other = seam::spawn("other", || assert_eq!(most_ns(), i64::MAX, "of another thread"));
        other.unwrap().join().unwrap();
        let _ = std::panic::catch_unwind(|| within(5, || panic!()));
        assert_eq!(most_ns(), 20);
    });
    assert_eq!(most_ns(), i64::MAX);
}

#[test]
fn o8_all_of_something_has_one_deadline_and_each_part_a_moment() {
    const SECOND: i64 = 1_000_000_000;
    within_all(16 * SECOND, || {
        let left = most_ns();
        assert!(left <= 16 * SECOND && left > 10 * SECOND);
        within_all(3600 * SECOND, || assert!(most_ns() <= left, "the earlier end holds"));
        within(5, || assert_eq!(most_ns(), 5));
        within_all(1, || {
            seam::sleep(2);
            assert_eq!(most_ns(), 20_000_000, "a moment");
        });
        assert!(most_ns() > 10 * SECOND);
    });
    assert_eq!(most_ns(), i64::MAX);
}
