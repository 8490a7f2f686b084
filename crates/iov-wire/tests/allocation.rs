//! A decoder asks for no more memory than a small multiple of its input, whatever the input announces.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

use iov_wire::codec::{EXPANSION, FREE_EXPANSION};
use iov_wire::messages::{CatalogAnswer, CatalogRequest, ObjectAnswer, ObjectRequest, StatusAnswer};
use iov_wire::{Wire, frame};

struct Counting;

static NOW: AtomicUsize = AtomicUsize::new(0);
static PEAK: AtomicUsize = AtomicUsize::new(0);

// SAFETY: every call is passed on to the system's allocator unchanged; counting touches no memory of the caller.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let now = NOW.fetch_add(layout.size(), Relaxed) + layout.size();
        PEAK.fetch_max(now, Relaxed);
        // SAFETY: the caller keeps the contract of `alloc`, which is the same.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        NOW.fetch_sub(layout.size(), Relaxed);
        // SAFETY: the block came from `alloc` above, with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Most bytes in use at once while `input` is read, beyond what was in use before.
fn peak<T: Wire>(input: &[u8]) -> usize {
    let before = NOW.load(Relaxed);
    PEAK.store(before, Relaxed);
    drop(T::decode(input));
    PEAK.load(Relaxed) - before
}

fn bounded<T: Wire>(input: &[u8]) {
    // A growing vector has up to twice the room it needs, and while it moves half as much again.
    let bound = 3 * (FREE_EXPANSION + EXPANSION * input.len()) + (64 << 10);
    let peak = peak::<T>(input);
    assert!(peak <= bound, "{} took {peak} bytes for {} of input, the bound is {bound}", T::NAME, input.len());
}

fn bounded_as_all(input: &[u8]) {
    bounded::<CatalogRequest>(input);
    bounded::<CatalogAnswer>(input);
    bounded::<ObjectRequest>(input);
    bounded::<ObjectAnswer>(input);
    bounded::<StatusAnswer>(input);
}

/// One test, since the counters are the process's.
#[test]
fn memory_is_bounded_by_the_input() {
    // Lists of the smallest elements there are: many in memory for few on the wire.
    for tag in 1u8..=6 {
        for element in [&[][..], &[0x0a, 0], &[0x0a, 2, 0x0a, 0], &[0x82, 0x02, 0], &[0x12, 0]] {
            let one = [&[tag << 3 | 2, element.len() as u8][..], element].concat();
            bounded_as_all(&one.repeat((1 << 20) / one.len()));
        }
    }
    // Lengths that nothing follows.
    for tag in 1u8..=6 {
        bounded_as_all(&[tag << 3 | 2, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1]);
        bounded_as_all(&[tag << 3 | 2, 0xff, 0xff, 0xff, 0x1f, 0]);
    }
    // One byte of every golden body made large.
    let golden = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("golden");
    let mut seen = 0;
    for file in std::fs::read_dir(golden).expect("the golden bytes are there") {
        let frame = std::fs::read(file.expect("a file").path()).expect("its bytes");
        for at in frame::HEADER_BYTES..frame.len() {
            for byte in [0x7f, 0xff] {
                let mut bad = frame[frame::HEADER_BYTES..].to_vec();
                bad[at - frame::HEADER_BYTES] = byte;
                bounded_as_all(&bad);
                seen += 1;
            }
        }
    }
    assert!(seen > 1000);
}
