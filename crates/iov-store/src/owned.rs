//! Object operations on memory of one's own: the safe way to submit and wait.

use std::sync::{Arc, Condvar, Mutex, PoisonError};

use iov_types::{Evidence, ObjectOp, Result};

use crate::{Backend, Memory, OpCx, Sink};

/// What goes with an operation.
#[derive(Clone, Copy, Debug)]
pub enum Bytes<'a> {
    /// Nothing.
    None,
    /// These bytes are written.
    From(&'a [u8]),
    /// Up to so many bytes are read.
    Into(usize),
}

struct All {
    state: Mutex<(Vec<Option<Result<Evidence>>>, usize)>,
    arrived: Condvar,
}

impl Sink for All {
    fn complete(&self, index: usize, evidence: Result<Evidence>) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        if state.0[index].replace(evidence).is_none() {
            state.1 -= 1;
        }
        if state.1 == 0 {
            self.arrived.notify_all();
        }
    }
}

/// Submits operations and waits for all evidence; with each come the bytes that it read.
pub fn run_all(backend: &dyn Backend, cx: &OpCx, ops: Vec<(ObjectOp, Bytes<'_>)>) -> Vec<(Result<Evidence>, Vec<u8>)> {
    let (results, rooms) = run_all_in(backend, cx, ops, |n| vec![0; n]);
    let of = |(result, mut room): (Result<Evidence>, Vec<u8>)| {
        room.truncate(result.as_ref().map_or(0, |e| e.bytes as usize));
        (result, room)
    };
    results.into_iter().zip(rooms).map(of).collect()
}

/// The same with memory that `take` gives for so many bytes at least. It comes back as it is: how much was read, the evidence
/// says.
pub fn run_all_in(
    backend: &dyn Backend,
    cx: &OpCx,
    ops: Vec<(ObjectOp, Bytes<'_>)>,
    take: impl Fn(usize) -> Vec<u8>,
) -> (Vec<Result<Evidence>>, Vec<Vec<u8>>) {
    let room = |bytes: &Bytes<'_>| match bytes {
        Bytes::Into(n) => take(*n),
        _ => Vec::new(),
    };
    let mut rooms: Vec<Vec<u8>> = ops.iter().map(|(_, bytes)| room(bytes)).collect();
    let n = ops.len();
    let all = Arc::new(All { state: Mutex::new((vec![None; n], n)), arrived: Condvar::new() });
    let submitted = ops
        .into_iter()
        .zip(&mut rooms)
        .map(|((op, bytes), room)| {
            let memory = match bytes {
                Bytes::None => Memory::default(),
                // SAFETY: borrowed by the caller for the whole call, which ends after all evidence.
                Bytes::From(bytes) => unsafe { Memory::readable(bytes.as_ptr(), bytes.len()) },
                // SAFETY: `rooms` is neither moved nor read before all evidence has arrived.
                Bytes::Into(n) => unsafe { Memory::writable(room.as_mut_ptr(), n.min(room.len())) },
            };
            (op, memory)
        })
        .collect();
    backend.submit(cx, submitted, all.clone());
    let mut state = all.state.lock().unwrap_or_else(PoisonError::into_inner);
    while state.1 > 0 {
        state = all.arrived.wait(state).unwrap_or_else(PoisonError::into_inner);
    }
    let results = std::mem::take(&mut state.0);
    (results.into_iter().flatten().collect(), rooms)
}
