//! Finds calls of the kernel in machine code: `mov eax, NUMBER`, then what fills the other registers, then `syscall`. Anything else is none for this.

use iced_x86::{Decoder, DecoderOptions, FlowControl, Instruction, InstructionInfoFactory, OpAccess, Register};

#[cfg(test)]
mod tests;

/// Bytes of `mov eax, NUMBER`.
pub(super) const MOV: usize = 5;
/// Bytes of `syscall`.
pub(super) const SYSCALL: usize = 2;
/// Bytes between the two, at most.
const BETWEEN: usize = 64;
/// From so many bytes before a place, and up to so near, it is read whether an instruction begins there.
const BEFORE: std::ops::Range<usize> = 16..64;

/// A call of the kernel with a number that is written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Site {
    /// Where `mov eax, NUMBER` begins.
    pub(super) at: usize,
    /// Where `syscall` does.
    pub(super) syscall: usize,
    pub(super) number: u32,
}

/// An instruction that only fills registers or memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fills {
    pub(super) len: usize,
    /// Where in it, in four bytes, a distance from its end to a place in memory is.
    pub(super) distance: Option<usize>,
}

/// The instruction at the beginning of code, and where a distance to a place in memory is in it.
fn first(code: &[u8]) -> Option<(Instruction, Option<usize>)> {
    let mut decoder = Decoder::new(64, code, DecoderOptions::NONE);
    let instruction = decoder.decode();
    if instruction.is_invalid() {
        return None;
    }
    let offsets = decoder.get_constant_offsets(&instruction);
    Some((instruction, instruction.is_ip_rel_memory_operand().then(|| offsets.displacement_offset())))
}

/// Such an instruction, which leaves the registers for the number and the stack alone; none: it is another one.
pub(super) fn fills(code: &[u8]) -> Option<Fills> {
    let (instruction, distance) = first(code)?;
    if instruction.flow_control() != FlowControl::Next
        || instruction.is_stack_instruction()
        || instruction.is_privileged()
    {
        return None;
    }
    let mut info = InstructionInfoFactory::new();
    let writes =
        |access| !matches!(access, OpAccess::None | OpAccess::Read | OpAccess::CondRead | OpAccess::NoMemAccess);
    let taken =
        info.info(&instruction).used_registers().iter().any(|used| {
            writes(used.access()) && matches!(used.register().full_register(), Register::RAX | Register::RSP)
        });
    (!taken).then_some(Fills { len: instruction.len(), distance })
}

/// The number that is put where one for the kernel is, if this is such an instruction.
fn number(code: &[u8]) -> Option<u32> {
    match code {
        [0xb8, a, b, c, d, ..] => Some(u32::from_le_bytes([*a, *b, *c, *d])),
        _ => None,
    }
}

/// Whether instructions that only fill registers lead from the one place to the other.
fn leads(code: &[u8], mut from: usize, to: usize) -> bool {
    while from < to {
        match fills(&code[from..to]) {
            Some(fills) => from += fills.len,
            None => return false,
        }
    }
    from == to
}

/// Whether an instruction begins there, and not within another one: code that is read from wherever before is read as it is meant after a few instructions, so that nearly all who
/// begin some way before come by.
fn begins(code: &[u8], at: usize) -> bool {
    let (mut all, mut by) = (0, 0);
    for start in at.saturating_sub(BEFORE.end)..at.saturating_sub(BEFORE.start) {
        let mut place = start;
        while place < at {
            match first(&code[place..]) {
                Some((instruction, _)) => place += instruction.len(),
                None => break,
            }
        }
        // Who finds something that is no code has begun within an instruction.
        if place >= at {
            all += 1;
            by += usize::from(place == at);
        }
    }
    all >= BEFORE.len() / 4 && by * 8 >= all * 7
}

/// The call of the kernel whose `syscall` is there; none: it is not one with such a number that can be recognised for sure.
fn call(code: &[u8], syscall: usize, wanted: &dyn Fn(u32) -> bool) -> Option<Site> {
    let first = syscall.saturating_sub(BETWEEN + MOV);
    (first..=syscall.checked_sub(MOV)?).rev().find_map(|at| {
        let number = number(&code[at..syscall])?;
        let is = wanted(number) && leads(code, at + MOV, syscall) && begins(code, at);
        is.then_some(Site { at, syscall, number })
    })
}

/// All of them.
pub(super) fn calls(code: &[u8], wanted: &dyn Fn(u32) -> bool) -> Vec<Site> {
    memchr::memmem::find_iter(code, &[0x0f, 0x05]).filter_map(|at| call(code, at, wanted)).collect()
}
