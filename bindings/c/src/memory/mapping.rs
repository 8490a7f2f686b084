//! Pages of the operating system, aligned and on the node that was asked for.

use std::ptr;

use ioverbs::{Error, Result};

const MPOL_BIND: libc::c_long = 2;
/// Nodes that the kernel can have; larger numbers are mistakes.
const NODES: usize = 1024;

/// Anonymous memory, given back when dropped.
pub(super) struct Mapping {
    /// What was mapped.
    base: usize,
    mapped: usize,
    /// Where the aligned part begins.
    start: usize,
}

pub(super) fn page_size() -> usize {
    // SAFETY: no preconditions.
    let size = unsafe { libc::sysconf(libc::_SC_PAGESIZE) };
    usize::try_from(size).unwrap_or(4096)
}

impl Mapping {
    pub(super) fn new(len: usize, alignment: usize, node: Option<u32>) -> Result<Mapping> {
        let page = page_size();
        let none = || Error::exhausted(format!("no memory for a buffer of {len} bytes, aligned to {alignment}"));
        let slack = alignment.saturating_sub(page);
        let mapped = len.checked_next_multiple_of(page).and_then(|l| l.checked_add(slack)).ok_or_else(none)?;
        if mapped > isize::MAX as usize {
            return Err(none());
        }
        let (protection, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping, wherever the system likes.
        let base = unsafe { libc::mmap(ptr::null_mut(), mapped, protection, kind, -1, 0) };
        if base == libc::MAP_FAILED {
            return Err(none());
        }
        let base = base as usize;
        let mapping = Mapping { base, mapped, start: base.next_multiple_of(alignment.max(1)) };
        node.map_or(Ok(()), |node| mapping.bind(node))?;
        Ok(mapping)
    }

    pub(super) fn address(&self) -> usize {
        self.start
    }

    fn bind(&self, node: u32) -> Result<()> {
        let wrong = || Error::invalid(format!("this machine has no NUMA node {node}"));
        if node as usize >= NODES {
            return Err(wrong());
        }
        let mut mask = [0u64; NODES / 64];
        mask[node as usize / 64] = 1 << (node % 64);
        // SAFETY: the mapping is ours, and the mask has as many bits as is said.
        let code =
            unsafe { libc::syscall(libc::SYS_mbind, self.base, self.mapped, MPOL_BIND, mask.as_ptr(), NODES + 1, 0) };
        if code == 0 {
            return Ok(());
        }
        match std::io::Error::last_os_error() {
            e if e.raw_os_error() == Some(libc::EINVAL) => Err(wrong()),
            e => Err(Error::unsupported(format!(
                "memory cannot be bound to a NUMA node here: {e}; leave out IOV_BUFFER_ON_NODE"
            ))),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length, and nobody uses it: `Buffers` has seen to that.
        unsafe { libc::munmap(self.base as *mut libc::c_void, self.mapped) };
    }
}
