use super::*;

const SPAN: i64 = 50_000;
const ALL: usize = usize::MAX;

/// Something comes so long after it was begun to wait for it; whether it was looked for until then.
fn wait(polling: &mut Polling, at_ns: &mut i64, for_ns: i64) -> bool {
    let end_ns = *at_ns + for_ns;
    let mut looks = true;
    while looks && *at_ns < end_ns {
        looks = polling.looks_at(*at_ns, SPAN, ALL);
        *at_ns += 1_000;
    }
    *at_ns = end_ns;
    polling.came_at(*at_ns, SPAN);
    *at_ns += 5_000;
    looks
}

#[test]
fn it_is_looked_where_answers_came_soon() {
    let (mut polling, mut at_ns) = (Polling::default(), 1);
    assert!(!wait(&mut polling, &mut at_ns, 80_000), "nobody knows yet");
    assert!(!wait(&mut polling, &mut at_ns, 80_000));
    for _ in 0..10 {
        assert!(wait(&mut polling, &mut at_ns, 30_000));
    }
    // One that takes long is slept for, and changes little.
    assert!(!wait(&mut polling, &mut at_ns, 60_000_000));
    assert!(wait(&mut polling, &mut at_ns, 30_000));
    let looked = (0..100).filter(|_| wait(&mut polling, &mut at_ns, 60_000_000)).count();
    assert_eq!(looked, 0);
    assert!(!polling.looks_at(at_ns, SPAN, ALL), "all are slow: it is not even begun");
    polling.came_at(at_ns + 60_000_000, SPAN);
}

#[test]
fn a_thread_that_was_bound_to_a_processor_knows_of_the_others() {
    let all = processors();
    let (tell, told) = std::sync::mpsc::channel();
    let bound = move || tell.send((0..1024).any(seam::bind).then(processors)).unwrap();
    seam::spawn("bound", bound).unwrap();
    assert_eq!(told.recv().unwrap(), Some(all));
}

#[test]
fn it_ends_after_its_span_and_leaves_processors_to_others() {
    let mut polling = Polling { points: BEST, ..Polling::default() };
    assert!(!polling.looks_at(1, 0, ALL), "switched off");
    polling.came_at(2, 0);
    assert!(!polling.looks_at(3, SPAN, 0), "one processor");
    polling.came_at(4, SPAN);
    assert!(polling.looks_at(5, SPAN, ALL));
    assert!(polling.looks_at(SPAN, SPAN, ALL));
    assert!(!polling.looks_at(SPAN + 5, SPAN, ALL));
    assert!(!polling.looks_at(SPAN + 6, SPAN, ALL), "not before something has come");
    let begun: Vec<_> = (0..3).map_while(|_| Looking::begin(LOOKING.load(Ordering::Relaxed) + 1)).collect();
    let count = LOOKING.load(Ordering::Relaxed);
    assert!(Looking::begin(count.min(begun.len())).is_none(), "so many look already");
}
