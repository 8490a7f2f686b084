//! Requests by rings of `io_uring` (`FUSE_OVER_IO_URING`, Linux 6.14).
//!
//! The kernel has a queue for each processor, to which a request goes of a program that runs there. Each thread here has a ring of its
//! own with one place for a request, and is bound to the processor of its queue: what a program waits for is done where
//! it waits, and going to sleep and waking up take no word between processors. Of several threads of a queue the kernel takes
//! the one that was busy last.
//!
//! What the kernel has to be told by calls of the system all the same, and what it only tells (forgotten files, interrupts), goes by
//! `/dev/fuse`.

mod memory;

use std::{
    io::{Error, Result},
    os::fd::{AsFd, AsRawFd},
};

use io_uring::{IoUring, cqueue, squeue, types};
use iov_store::seam;
use rustix::io::Errno;

use crate::{
    abi::{IN_HEADER, OUT_HEADER, RING_COMMIT_AND_FETCH, RING_ENTRY, RING_OP, RING_REGISTER, head_len},
    crew::Crew,
    device::Kernel,
    dispatch::{self, Header},
    fields::{Fields, Writer},
    filesystem::Filesystem,
    looker::Looker,
};
use memory::Memory;

/// Processors beyond which requests go by `/dev/fuse`: each costs a thread and a ring.
const MOST_QUEUES: usize = 512;

type Uring = IoUring<squeue::Entry128, cqueue::Entry>;

/// How many queues the kernel has; `None`: rings cannot be had, or not so many.
pub(crate) fn queues() -> Option<u16> {
    // What this process may not do it finds out before the kernel relies on it.
    uring().ok()?;
    let possible = std::fs::read_to_string("/sys/devices/system/cpu/possible").ok()?;
    count(possible.trim()).filter(|n| (1..=MOST_QUEUES).contains(n)).map(|n| n as u16)
}

/// The processors of a list such as `0-3,8`.
pub(crate) fn count(list: &str) -> Option<usize> {
    let mut all = 0usize;
    for range in list.split(',') {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let (first, last) = (first.parse::<usize>().ok()?, last.parse::<usize>().ok()?);
        all = all.checked_add(last.checked_sub(first)?.checked_add(1)?)?;
    }
    Some(all)
}

fn uring() -> Result<Uring> {
    let mut builder = Uring::builder();
    builder.setup_single_issuer().setup_defer_taskrun();
    builder.build(1)
}

/// A ring with one place for a request.
struct Place {
    // Before the memory, which it refers to.
    ring: Uring,
    memory: Memory,
    queue: u16,
}

/// A request that lies in its place.
struct Taken {
    header: Header,
    commit: u64,
    len: usize,
}

impl Place {
    /// Makes one and has the kernel use it.
    fn new(kernel: &Kernel, queue: u16) -> Result<Place> {
        let mut place = Place { ring: uring()?, memory: Memory::new()?, queue };
        place.ring.submitter().register_files(&[kernel.as_fd().as_raw_fd()])?;
        place.give(RING_REGISTER, 0)?;
        place.ring.submit()?;
        let answered = place.ring.completion().next();
        match answered {
            Some(refused) if refused.result() < 0 => {
                place.memory.back();
                Err(Error::from_raw_os_error(-refused.result()))
            }
            Some(_) => Err(Error::other("the kernel answers before it has asked")),
            None => Ok(place),
        }
    }

    /// Gives the place to the kernel, by the next call.
    #[allow(unsafe_code)]
    fn give(&mut self, command: u32, commit: u64) -> Result<()> {
        // `fuse_uring_cmd_req`: flags, whose answer it is, the queue.
        let mut fields = [0; 80];
        Writer::new(&mut fields).u64(0).u64(commit).u16(self.queue);
        let entry = io_uring::opcode::UringCmd80::new(types::Fixed(0), command).cmd(fields);
        let entry = memory::with_areas(entry.addr(Some(self.memory.areas())).build());
        self.memory.gone();
        // SAFETY: what the entry refers to is the memory, which stays until the kernel has given it back; nobody looks at it until then.
        unsafe { self.ring.submission().push(&entry) }.map_err(Error::other)
    }

    /// Waits for the next request; `None`: there will be none.
    fn take(&mut self) -> Result<Option<Taken>> {
        let came = loop {
            if let Some(came) = self.ring.completion().next() {
                break came;
            }
            match self.ring.submit_and_wait(1) {
                Err(e) if e.raw_os_error() == Some(Errno::INTR.raw_os_error()) => {}
                waited => _ = waited?,
            }
        };
        self.memory.back();
        if came.result() < 0 {
            return match Errno::from_raw_os_error(-came.result()) {
                // Unmounted, or the mount was given up.
                Errno::NOTCONN | Errno::CONNABORTED | Errno::CANCELED => Ok(None),
                e => Err(e.into()),
            };
        }
        let invalid = |_| Error::other("a request without a header");
        let bytes = self.memory.header();
        let header = Header::read(&bytes[..IN_HEADER]).map_err(invalid)?;
        let mut entry = Fields(&bytes[RING_ENTRY..]);
        let (_flags, commit, len) = (entry.u64(), entry.u64().map_err(invalid)?, entry.u32().map_err(invalid)?);
        Ok(Some(Taken { header, commit, len: len as usize }))
    }

    /// Has a request answered, into its place.
    fn answer<F: Filesystem>(&mut self, fs: &F, crew: &Crew, taken: &Taken, copy: &mut Vec<u8>) {
        let Header { opcode, unique, .. } = taken.header;
        let mut head = [0; RING_OP];
        head.copy_from_slice(&self.memory.header()[RING_OP..RING_ENTRY]);
        let head = &head[..head_len(opcode, crew.setxattr_longer)];
        let payload = self.memory.payload();
        let len = taken.len.min(payload.len());
        let req = taken.header.of(crew);
        let answered = if dispatch::brings_bytes(opcode) {
            let mut short = [0; 256];
            let answered = dispatch::answer(fs, &req, opcode, (head, &payload[..len]), &mut short);
            if let Ok(n) = answered {
                payload[..n].copy_from_slice(&short[..n]);
            }
            answered
        } else {
            // The answer goes where the names lie.
            copy.clear();
            copy.extend_from_slice(&payload[..len]);
            dispatch::answer(fs, &req, opcode, (head, copy), payload)
        };
        let (len, code) = match answered {
            Ok(len) => (len, 0),
            Err(e) => (0, -e),
        };
        let header = self.memory.header();
        Writer::new(header).u32((OUT_HEADER + len) as u32).u32(code as u32).u64(unique);
        // `fuse_uring_ent_in_out.payload_sz`.
        Writer::new(&mut header[RING_ENTRY + 16..]).u32(len as u32);
    }
}

/// Takes requests of a queue until the directory is unmounted. Whether it can is told before the first.
pub(crate) fn serve<F: Filesystem>(
    (fs, kernel, crew): (&F, &Kernel, &Crew),
    (queue, looker): (u16, &Looker),
    started: impl FnOnce(Result<()>),
) -> Result<()> {
    // Where the processor is not this process's to use, the queue is served from another one.
    seam::bind(queue.into());
    let mut place = match Place::new(kernel, queue) {
        Ok(place) => place,
        Err(e) => {
            crew.stays_away();
            started(Err(e));
            return Ok(());
        }
    };
    let was_short = crew.is_ready();
    started(Ok(()));
    if was_short {
        // What came to a queue while nobody could take it is only taken with the answer to another request there.
        looker.look(crew, queue);
    }
    let served = serve_at(&mut place, fs, crew);
    crew.leaves();
    served
}

fn serve_at<F: Filesystem>(place: &mut Place, fs: &F, crew: &Crew) -> Result<()> {
    let mut copy = Vec::new();
    while let Some(taken) = place.take()? {
        {
            let _busy = crew.busy();
            place.answer(fs, crew, &taken, &mut copy);
        }
        place.give(RING_COMMIT_AND_FETCH, taken.commit)?;
    }
    Ok(())
}

/// The name of a thread of a queue.
pub(crate) fn spawn(queue: u16, body: impl FnOnce() + Send + 'static) -> Result<std::thread::JoinHandle<()>> {
    seam::spawn(&format!("iov-fuse-{queue}"), body)
}
