use iov_store::seam;

use super::{most_ns, within};

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
