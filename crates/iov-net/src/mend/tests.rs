use iov_store::OpCx;

use super::{Job, Queue};

/// What is sent again as a connection broke comes back behind what was begun later, and goes before it (O9).
#[test]
fn o9_what_was_begun_first_goes_first_however_often_it_is_sent() {
    let mut queue = Queue::default();
    for (lane, begun) in [(0, 4), (1, 2), (0, 5), (0, 1), (1, 3), (0, 0)] {
        queue.put(Job { cx: OpCx::own(1), lane, begun, go: Box::new(|_| ()) });
    }
    let order: Vec<(u32, u64)> = queue.jobs.iter().map(|job| (job.lane, job.begun)).collect();
    assert_eq!(order, [(0, 0), (0, 1), (1, 2), (1, 3), (0, 4), (0, 5)]);
}
