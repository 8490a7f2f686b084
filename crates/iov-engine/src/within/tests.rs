use super::{most_ns, within};

#[test]
fn o8_the_shortest_deadline_holds_and_ends_with_what_it_is_for() {
    within(20, || {
        within(30, || assert_eq!(most_ns(), 20));
        within(0, || assert_eq!(most_ns(), 1));
        let thread = iov_store::seam::spawn("other", most_ns).unwrap().join().unwrap();
        assert_eq!((most_ns(), thread), (20, i64::MAX));
        let _ = std::panic::catch_unwind(|| within(5, || panic!()));
        assert_eq!(most_ns(), 20);
    });
    assert_eq!(most_ns(), i64::MAX);
}
