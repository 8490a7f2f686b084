//! Memory that bytes are moved from and to.

const HUGE_PAGE: usize = 2 << 20;

/// Touched memory in huge pages where the kernel gives them. The cache of a core holds about as much as a request of 1 MiB,
/// so that the luck of a process with scattered pages is worth half of the speed.
pub(crate) struct Buffer {
    memory: Vec<u8>,
    /// Where the first huge page begins.
    skip: usize,
    len: usize,
}

impl Buffer {
    pub(crate) fn filled(len: usize, with: u8) -> Buffer {
        let pages = len.next_multiple_of(HUGE_PAGE);
        let mut memory = vec![0; pages + HUGE_PAGE];
        let skip = memory.as_ptr().align_offset(HUGE_PAGE);
        let at = memory[skip..].as_mut_ptr();
        // SAFETY: the pages lie inside `memory`; advice changes no byte of them.
        unsafe { libc::madvise(at.cast(), pages, libc::MADV_HUGEPAGE) };
        memory.fill(with);
        Buffer { memory, skip, len }
    }

    pub(crate) fn bytes(&mut self) -> &mut [u8] {
        &mut self.memory[self.skip..self.skip + self.len]
    }
}

/// Takes away the byte that the next read is to bring back. Each request has another spot, so that no two are alike.
pub(crate) fn spoil(buffer: &mut [u8], at: u64, with: u8) -> usize {
    let spot = at as usize / buffer.len() * 997 % buffer.len();
    buffer[spot] = with;
    spot
}
