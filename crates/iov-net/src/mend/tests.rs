use iov_types::Caller;

use super::*;

/// What was sent before goes before, whoever is first to hear that its connection has ended (O9).
#[test]
fn o9_what_is_sent_again_keeps_its_place() {
    let caller = Caller { uid: 0, gid: 0, groups: vec![], session: Default::default(), holder: Default::default() };
    let cx = OpCx::new(caller, 1_000_000_000);
    let mut queue = Queue::default();
    for (lane, order) in [(0, 7), (1, 3), (0, 5), (1, 9), (0, 6), (1, 4), (0, 8)] {
        queue.put(Job { cx: cx.clone(), lane, order, go: Box::new(|_| {}) });
    }
    let of = |lane| queue.jobs.iter().filter(|job| job.lane == lane).map(|job| job.order).collect::<Vec<_>>();
    assert_eq!((of(0), of(1)), (vec![5, 6, 7, 8], vec![3, 4, 9]));
}
