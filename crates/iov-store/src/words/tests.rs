//! Every execution that the memory model of C++ and Rust allows, of the steps that run, by the model checker loom. Bytes are
//! words that are written and read without any order, as a copy is. Steps that are left out show that the search finds what
//! each is there for.

use loom::{
    sync::{
        Arc,
        atomic::{AtomicU64 as Checked, fence},
    },
    thread,
};

use super::*;

impl Word for Checked {
    fn load(&self, order: Ordering) -> u64 {
        Checked::load(self, order)
    }

    fn store(&self, value: u64, order: Ordering) {
        Checked::store(self, value, order);
    }

    fn add(&self, value: u64, order: Ordering) {
        Checked::fetch_add(self, value, order);
    }

    fn subtract(&self, value: u64, order: Ordering) {
        Checked::fetch_sub(self, value, order);
    }

    fn raise(&self, value: u64, order: Ordering) {
        Checked::fetch_max(self, value, order);
    }

    fn fence() {
        fence(Ordering::SeqCst);
    }

    /// Loom takes sequentially consistent accesses for acquire and release.
    fn between() {
        fence(Ordering::SeqCst);
    }
}

const GRANTED: u64 = 4;

/// A slot, a head, two halves of an object, and two of the space that it is moved to.
struct World {
    state: Checked,
    busy: Checked,
    size: Checked,
    old: [Checked; 2],
    fresh: [Checked; 2],
}

impl World {
    fn new(size: u64) -> Arc<World> {
        let halves = || [Checked::new(1), Checked::new(1)];
        Arc::new(World {
            state: Checked::new(GRANTED),
            busy: Checked::new(0),
            size: Checked::new(size),
            old: halves(),
            fresh: halves(),
        })
    }

    fn copy_in(&self, value: u64) {
        self.old.iter().for_each(|half| half.store(value, Ordering::Relaxed));
    }

    fn copy_out(&self) -> [u64; 2] {
        [0, 1].map(|i| self.old[i].load(Ordering::Relaxed))
    }
}

/// What a writer may believe.
#[derive(PartialEq, Clone, Copy, Debug)]
enum End {
    Done,
    Refused,
    Void,
}

fn writer(w: &World, counts: fn(&Checked, u64) -> bool) -> End {
    let end = match announce(&w.busy, &w.state, GRANTED) {
        false => End::Refused,
        true => {
            w.copy_in(2);
            if counts(&w.state, GRANTED) { End::Done } else { End::Void }
        }
    };
    retire(&w.busy);
    end
}

/// Whether an execution breaks a promise: loom fails by a panic.
fn is_broken(model: impl Fn() + Send + Sync + 'static) -> bool {
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| loom::model(model))).is_err()
}

/// A server that takes a writer back for a seal. What it takes for drained holds a write that counts, as a whole; what it does
/// not wait for is moved, and a write that is not in what was moved hears that it does not count.
fn seal(waits: bool, declares: bool, counts: fn(&Checked, u64) -> bool) {
    let w = World::new(0);
    let other = w.clone();
    let writing = thread::spawn(move || writer(&other, counts));
    declare(&w.state, GRANTED | REVOKED);
    let drained = is_drained(&w.busy) || !waits;
    let taken = if drained {
        w.copy_out()
    } else {
        if declares {
            declare(&w.state, GRANTED | RELOCATED);
        }
        for i in 0..2 {
            w.fresh[i].store(w.old[i].load(Ordering::Relaxed), Ordering::Relaxed);
        }
        [0, 1].map(|i| w.fresh[i].load(Ordering::Relaxed))
    };
    match writing.join().expect("the writer") {
        End::Done => assert_eq!(taken, [2, 2], "a write that counts is in what was sealed"),
        End::Refused => assert_eq!(taken, [1, 1], "one that was refused is not"),
        End::Void => assert!(!drained),
    }
}

#[test]
fn t12_a_seal_takes_all_of_a_write_that_counts() {
    loom::model(|| seal(true, true, counts::<Checked>));
    assert!(is_broken(|| seal(false, true, counts::<Checked>)), "waiting is needed");
    assert!(is_broken(|| seal(true, false, counts::<Checked>)), "declaring it void is needed");
    let early = |state: &Checked, granted| state.load(Ordering::SeqCst) & !REVOKED == granted;
    assert!(is_broken(move || seal(true, true, early)), "the order of the writer's bytes and its look is needed");
    assert!(is_broken(|| seal(true, true, |_, _| true)), "looking again is needed");
}

/// A reader against a server that takes it back and changes the bytes in place, as a truncation does.
fn change_in_place(revokes: bool, looks_again: bool) {
    let w = World::new(2);
    let other = w.clone();
    let reading = thread::spawn(move || {
        if !holds(&other.state, GRANTED) || length(&other.size) < 2 {
            return None;
        }
        let got = other.copy_out();
        (!looks_again || is_valid(&other.state, GRANTED)).then_some(got)
    });
    if revokes {
        declare(&w.state, GRANTED | REVOKED);
    }
    w.copy_in(0);
    if let Some(got) = reading.join().expect("the reader") {
        assert_eq!(got, [1, 1], "what a reader believes is what there was before it was taken back");
    }
}

#[test]
fn g3_a_reader_believes_nothing_that_was_changed_behind_its_back() {
    loom::model(|| change_in_place(true, true));
    assert!(is_broken(|| change_in_place(true, false)), "looking again is needed");
    assert!(is_broken(|| change_in_place(false, true)), "taking back is needed");
}

/// Two writers of neighbouring halves, and a reader that goes by the length.
fn growth(note: fn(&Checked, u64)) {
    let w = World::new(0);
    w.copy_in(0);
    let other = w.clone();
    let writing = thread::spawn(move || {
        other.old[0].store(7, Ordering::Relaxed);
        note(&other.size, 1);
    });
    let reads = w.clone();
    let reading = thread::spawn(move || {
        let size = length(&reads.size) as usize;
        (0..size).map(|i| reads.old[i].load(Ordering::Relaxed)).collect::<Vec<_>>()
    });
    w.old[1].store(7, Ordering::Relaxed);
    let got = reading.join().expect("the reader");
    writing.join().expect("the writer");
    assert!(got.iter().all(|byte| *byte == 7), "the length counts only bytes that are there (T18)");
}

#[test]
fn t18_whoever_sees_the_length_sees_the_bytes() {
    loom::model(|| growth(note_end::<Checked>));
    assert!(is_broken(|| growth(|size, end| size.raise(end, Ordering::Relaxed))), "the order is needed");
}

/// The server frees space only when whoever is shown it has let go, or never got it.
#[test]
fn g2_what_is_pinned_is_not_given_to_others() {
    let run = |looks: bool| {
        move || {
            let w = World::new(2);
            let other = w.clone();
            let viewing = thread::spawn(move || {
                if !announce(&other.busy, &other.state, GRANTED) && looks {
                    retire(&other.busy);
                    return None;
                }
                let got = other.copy_out();
                retire(&other.busy);
                Some(got)
            });
            declare(&w.state, GRANTED | REVOKED);
            if is_drained(&w.busy) {
                w.copy_in(9); // another collection's
            }
            if let Some(got) = viewing.join().expect("the viewer") {
                assert_eq!(got, [1, 1], "never foreign bytes");
            }
        }
    };
    loom::model(run(true));
    assert!(is_broken(run(false)), "looking at the state is needed");
}
