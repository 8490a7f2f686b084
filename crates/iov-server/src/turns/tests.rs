use std::sync::{Arc, mpsc};

use super::*;

#[test]
fn the_background_comes_behind_what_is_served_and_is_served_all_the_same() {
    let turns = Arc::new(Turns::default());
    let first = turns.take(Priority::Foreground);
    let second = turns.take(Priority::Foreground);
    // Nobody ends, but patience does.
    drop(turns.take(Priority::Background));
    let (say, hear) = mpsc::channel();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (say, turns) = (say.clone(), turns.clone());
            let body = move || {
                let _turn = turns.take(Priority::Background);
                say.send(()).unwrap();
            };
            seam::spawn("background", body).unwrap()
        })
        .collect();
    drop(first);
    drop(second);
    assert_eq!(hear.iter().take(3).count(), 3);
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    assert_eq!((turns.foreground.load(Ordering::SeqCst), *turns.waiting.lock().unwrap()), (0, 0));
}
