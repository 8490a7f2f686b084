//! Reads as much of machine code as it takes to be sure of a call of the kernel: `mov eax, NUMBER`, then what fills the other registers, then `syscall`. Anything
//! else is none for this. Encodings: Intel's manual, volume 2.

#[cfg(test)]
mod tests;

/// Bytes of `mov eax, NUMBER`.
pub(super) const MOV: usize = 5;
/// Bytes of `syscall`.
pub(super) const SYSCALL: usize = 2;
/// Bytes between the two, at most.
pub(super) const BETWEEN: usize = 64;

/// A call of the kernel with a number that is written there.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Site {
    /// Where `mov eax, NUMBER` begins.
    pub(super) at: usize,
    /// Where `syscall` does.
    pub(super) syscall: usize,
    pub(super) number: u32,
}

/// How an instruction goes on behind its operation.
#[derive(Clone, Copy)]
struct Form {
    /// It writes the register of its second operand (`reg` of ModRM).
    to_reg: bool,
    /// It writes its first operand (`r/m`).
    to_rm: bool,
    /// Bytes of a constant at its end.
    constant: usize,
}

/// Of the operations that fill registers, those with two operands.
fn form(operation: u8) -> Option<Form> {
    let form = |to_reg, to_rm, constant| Some(Form { to_reg, to_rm, constant });
    match operation {
        // `mov`, `lea`, `movsxd`.
        0x8b | 0x8d | 0x63 => form(true, false, 0),
        0x89 | 0x88 => form(false, true, 0),
        0xc7 => form(false, true, 4),
        // `add`, `or`, `and`, `sub`, `xor`: to memory or a register, and from there.
        0x01 | 0x09 | 0x21 | 0x29 | 0x31 => form(false, true, 0),
        0x03 | 0x0b | 0x23 | 0x2b | 0x33 => form(true, false, 0),
        // The same, `cmp` and shifts by a constant.
        0x83 | 0xc1 => form(false, true, 1),
        0x81 => form(false, true, 4),
        // `cmp`, `test`.
        0x39 | 0x3b | 0x85 => form(false, false, 0),
        _ => None,
    }
}

/// An instruction that only fills registers or memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Fills {
    pub(super) len: usize,
    /// Where in it, in four bytes, a distance from its end to a place in memory is.
    pub(super) distance: Option<usize>,
}

/// Such an instruction, which leaves the registers for the number and the stack alone; none: it may be another one.
pub(super) fn fills(code: &[u8]) -> Option<Fills> {
    let mut at = 0;
    let rex = match code.first()? {
        rex @ 0x40..=0x4f => {
            at += 1;
            *rex
        }
        _ => 0,
    };
    let (wide, reg_high, base_high) = (rex & 8 != 0, rex & 4 != 0, rex & 1 != 0);
    let operation = *code.get(at)?;
    at += 1;
    let kept = |register: u8, high: bool| high || (register != 0 && register != 4);
    if let 0xb8..=0xbf = operation {
        let len = at + if wide { 8 } else { 4 };
        return (kept(operation & 7, base_high) && code.len() >= len).then_some(Fills { len, distance: None });
    }
    let mut distance = None;
    let form = match operation {
        // `movzx`, `movsx`, `cmov`, and what has two bytes besides.
        0x0f => {
            let second = *code.get(at)?;
            at += 1;
            match second {
                // `movzx`, `movsx`, `cmov`.
                0xb6 | 0xb7 | 0xbe | 0xbf | 0x40..=0x4f => Form { to_reg: true, to_rm: false, constant: 0 },
                // `movups`, `movaps`: other registers.
                0x10 | 0x11 | 0x28 | 0x29 => Form { to_reg: false, to_rm: false, constant: 0 },
                _ => return None,
            }
        }
        operation => form(operation)?,
    };
    let modrm = *code.get(at)?;
    at += 1;
    let (mode, reg, rm) = (modrm >> 6, modrm >> 3 & 7, modrm & 7);
    // With another number in it, it is something else.
    if (form.to_reg && !kept(reg, reg_high)) || (operation == 0xc7 && reg != 0) {
        return None;
    }
    match mode {
        3 if form.to_rm && !kept(rm, base_high) => return None,
        3 => {}
        _ => {
            let mut base = rm;
            if rm == 4 {
                base = *code.get(at)? & 7;
                at += 1;
            }
            at += match mode {
                // From where the instruction ends.
                0 if rm == 5 => {
                    distance = Some(at);
                    4
                }
                0 if base == 5 => 4,
                0 => 0,
                1 => 1,
                _ => 4,
            };
        }
    }
    let len = at + form.constant;
    (code.len() >= len).then_some(Fills { len, distance })
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
        match fills(&code[from..]) {
            Some(fills) => from += fills.len,
            None => return false,
        }
    }
    from == to
}

/// The call of the kernel whose `syscall` is there; none: it is not one with such a number that can be recognised for sure.
fn call(code: &[u8], syscall: usize, wanted: &dyn Fn(u32) -> bool) -> Option<Site> {
    let first = syscall.saturating_sub(BETWEEN + MOV);
    (first..=syscall.checked_sub(MOV)?).rev().find_map(|at| {
        let number = number(&code[at..syscall])?;
        // `r8d` is filled so.
        let of_r8 = at > 0 && matches!(code[at - 1], 0x41 | 0x49);
        let is = !of_r8 && wanted(number) && leads(code, at + MOV, syscall);
        is.then_some(Site { at, syscall, number })
    })
}

/// All of them.
pub(super) fn calls(code: &[u8], wanted: &dyn Fn(u32) -> bool) -> Vec<Site> {
    memchr::memmem::find_iter(code, &[0x0f, 0x05]).filter_map(|at| call(code, at, wanted)).collect()
}
