use super::*;

const SECOND: i64 = 1_000_000_000;

#[test]
fn who_hangs_is_left_alone_for_longer_each_time() {
    let mut hung = Hung::default();
    let mut rests = Vec::new();
    let mut now_ns = 0;
    for lost_ns in [0, 2, 2, 2, 2].map(|seconds| seconds * SECOND) {
        hung.hangs(&[64], lost_ns, now_ns);
        let begun_ns = now_ns;
        while hung.rests(&[64], now_ns) {
            now_ns += SECOND;
        }
        rests.push((now_ns - begun_ns) / SECOND);
    }
    assert_eq!(rests, [2, 20, 40, 60, 60]);
    hung.goes_on(&[64]);
    hung.hangs(&[64], SECOND, now_ns);
    assert!(hung.rests(&[64], now_ns + 9 * SECOND) && !hung.rests(&[64], now_ns + 11 * SECOND));
}

#[test]
fn whatever_needs_one_that_hangs_waits_and_nothing_else() {
    let mut hung = Hung::default();
    hung.hangs(&[64, 65], SECOND, 0);
    let rests = |hung: &Hung| [&[64][..], &[65], &[65, 64], &[64, 65, 66], &[66]].map(|at| hung.rests(at, 1));
    assert_eq!(rests(&hung), [false, false, true, true, false], "it may be either of them");
    hung.goes_on(&[64]);
    assert_eq!(rests(&hung), [false, false, true, true, false], "it was the other one");
    hung.goes_on(&[64, 65, 66]);
    assert_eq!(rests(&hung), [false; 5]);
}

#[test]
fn who_does_something_else_is_asked_sooner_but_not_at_once() {
    let mut hung = Hung::default();
    (0..4).for_each(|_| hung.hangs(&[64], 20 * SECOND, 0));
    hung.answer(&[64], SECOND);
    assert!(hung.rests(&[64], 20 * SECOND) && !hung.rests(&[64], 22 * SECOND));
    hung.hangs(&[64], SECOND, 22 * SECOND);
    assert!(!hung.rests(&[64], 33 * SECOND), "as if it were the first time");
    hung.hangs(&[64], SECOND, 40 * SECOND);
    hung.may_be_back();
    assert!(!hung.rests(&[64], 40 * SECOND));
}
