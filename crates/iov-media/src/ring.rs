//! Reads and writes of a file by io_uring: many pieces are under way at once, so that a device with many queues is kept busy by
//! one thread. Each thread has a ring of its own, made when it first needs one.
#![allow(unsafe_code)] // the kernel is lent memory until it says that it is done

use std::{
    cell::RefCell,
    os::fd::{AsFd, AsRawFd},
};

use io_uring::{IoUring, opcode, squeue, types};
use rustix::io::Errno;

/// Bytes of one piece.
const PIECE: usize = 256 << 10;
/// Pieces under way at once.
const DEPTH: usize = 32;
/// How long to wait where the kernel is short of something, in nanoseconds.
const PAUSE_NS: u64 = 1_000_000;

thread_local! {
    static RING: RefCell<Option<IoUring>> = const { RefCell::new(None) };
}

fn errno(e: &std::io::Error) -> Errno {
    Errno::from_io_error(e).unwrap_or(Errno::IO)
}

/// Whether this machine has it, and this process may use it.
pub(crate) fn check() -> rustix::io::Result<()> {
    IoUring::new(DEPTH as u32).map(drop).map_err(|e| errno(&e))
}

/// Whether this thread has a ring, or could get one now.
pub(crate) fn is_ready() -> bool {
    RING.with(|ring| {
        let mut ring = ring.borrow_mut();
        if ring.is_none() {
            *ring = IoUring::new(DEPTH as u32).ok();
        }
        ring.is_some()
    })
}

/// Writes; how many bytes from the first on were written.
pub(crate) fn write(file: impl AsFd, data: &[u8], offset: u64) -> rustix::io::Result<usize> {
    let fd = types::Fd(file.as_fd().as_raw_fd());
    run(data.len(), |at, len| {
        opcode::Write::new(fd, data[at..].as_ptr(), len as u32).offset(offset + at as u64).build()
    })
}

/// Reads; how many bytes from the first on were read. Fewer than asked for where the file ends.
pub(crate) fn read(file: impl AsFd, out: &mut [u8], offset: u64) -> rustix::io::Result<usize> {
    let fd = types::Fd(file.as_fd().as_raw_fd());
    let (base, total) = (out.as_mut_ptr(), out.len());
    run(total, |at, len| {
        // Inside the memory: `run` cuts it into pieces.
        opcode::Read::new(fd, base.wrapping_add(at), len as u32).offset(offset + at as u64).build()
    })
}

/// Carries out the pieces of a transfer, and waits for every one of them: the kernel has the memory until then.
fn run(total: usize, entry: impl Fn(usize, usize) -> squeue::Entry) -> rustix::io::Result<usize> {
    RING.with(|ring| {
        let mut ring = ring.borrow_mut();
        let ring = match &mut *ring {
            Some(ring) => ring,
            none => none.insert(IoUring::new(DEPTH as u32).map_err(|e| errno(&e))?),
        };
        let pieces = total.div_ceil(PIECE);
        let mut results = vec![0; pieces];
        let (mut next, mut flying) = (0, 0);
        while next < pieces || flying > 0 {
            while next < pieces && flying < DEPTH {
                let at = next * PIECE;
                let entry = entry(at, PIECE.min(total - at)).user_data(next as u64);
                // SAFETY: descriptor and memory are borrowed by our caller, and this returns only when nothing is under way.
                if unsafe { ring.submission().push(&entry) }.is_err() {
                    break;
                }
                (next, flying) = (next + 1, flying + 1);
            }
            if ring.submit_and_wait(1).is_err() {
                // Interrupted, or the kernel is short of memory. There is no way back before all have completed.
                iov_store::seam::sleep(PAUSE_NS);
            }
            for done in ring.completion() {
                results[done.user_data() as usize] = done.result();
                flying -= 1;
            }
        }
        together(&results, total)
    })
}

/// Bytes that were moved without a gap, or why the first piece was not.
fn together(results: &[i32], total: usize) -> rustix::io::Result<usize> {
    let mut moved = 0;
    for (n, result) in results.iter().enumerate() {
        let len = PIECE.min(total - n * PIECE);
        match usize::try_from(*result) {
            Ok(n) => moved += n.min(len),
            Err(_) if n == 0 => return Err(Errno::from_raw_os_error(-result)),
            Err(_) => break,
        }
        if (*result as usize) < len {
            break;
        }
    }
    Ok(moved)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_count_up_to_the_first_gap() {
        let all = [PIECE as i32; 3];
        let total = 2 * PIECE + 10;
        assert_eq!(together(&[all[0], all[0], 10], total), Ok(total));
        assert_eq!(together(&[all[0], 7, 10], total), Ok(PIECE + 7));
        assert_eq!(together(&[all[0], -28, 10], total), Ok(PIECE));
        assert_eq!(together(&[-28, all[0], 10], total), Err(Errno::NOSPC));
    }

    #[test]
    fn what_is_written_is_read() {
        if check().is_err() {
            println!("skipped: there is no io_uring here");
            return;
        }
        let file = tempfile::tempfile().expect("a file");
        let data: Vec<u8> = (0..(DEPTH + 3) * PIECE + 77).map(|i| (i / 1000) as u8).collect();
        assert_eq!(write(&file, &data, 5), Ok(data.len()));
        let mut out = vec![0; data.len() + 1000];
        assert_eq!(read(&file, &mut out, 5), Ok(data.len()), "short at the end of the file");
        assert!(out[..data.len()] == data);
        let (reader, _writer) = std::io::pipe().expect("a pipe");
        assert!(write(&reader, &data, 0).is_err());
    }
}
