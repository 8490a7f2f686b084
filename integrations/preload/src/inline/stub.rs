//! How such a call comes here, and back: all registers but those that the kernel changes are as they were.

use std::{
    arch::x86_64::_xgetbv,
    ffi::c_long,
    sync::atomic::{AtomicU64, Ordering},
};

use super::decode::{MOV, SYSCALL, Site, fills};
use crate::{
    calls::numbers::by_number,
    patch::{JUMP, jump},
    raw::{errno, set_errno, unanswered},
};

/// Bytes in front of the places: the address of [`enter`].
pub(super) const TABLE: usize = 16;
/// Bytes below the stack that belong to the function that runs there.
const RED_ZONE: u8 = 128;
/// Registers that are saved: x87, SSE, AVX, AVX-512.
const STATES: u64 = 0b1110_0111;
/// Bytes for all of them, in the standard form of `xsave`, and for their alignment.
const ROOM: usize = 2688 + 64;

/// Those of them that there are.
static PRESENT: AtomicU64 = AtomicU64::new(0);

/// Whether it can be done on this processor.
pub(super) fn prepare() -> bool {
    if !std::is_x86_feature_detected!("xsave") {
        return false;
    }
    PRESENT.store(present() & STATES, Ordering::Relaxed);
    true
}

#[target_feature(enable = "xsave")]
fn of_system() -> u64 {
    // SAFETY: it asks the processor which registers the system keeps.
    unsafe { _xgetbv(0) }
}

fn present() -> u64 {
    // SAFETY: the caller has asked whether the processor can.
    unsafe { of_system() }
}

/// Does what a call of the kernel with these six arguments asks for, and answers as the kernel.
unsafe extern "C" fn done(number: c_long, arguments: *const [usize; 6]) -> isize {
    let before = errno();
    // SAFETY: they are on the stack of the caller, as it has set them for this call.
    let answer = unsafe {
        let [a, b, c, d, e, f] = *arguments;
        unanswered(by_number(number, a, b, c, d, e, f) as isize)
    };
    set_errno(before);
    answer
}

/// From a place of a call: the number and the arguments are where the kernel wants them.
#[unsafe(naked)]
pub(super) unsafe extern "C" fn enter() {
    std::arch::naked_asm!(
        "pushfq",
        "cld",
        "push rbp",
        "mov rbp, rsp",
        "push rbx",
        "push r9",
        "push r8",
        "push r10",
        "push rdx",
        "push rsi",
        "push rdi",
        "mov rbx, rsp",
        "mov r11, rax",
        // Room for the other registers, of which the first 64 bytes behind 512 must be zero.
        "sub rsp, {room}",
        "and rsp, -64",
        "xor eax, eax",
        "mov qword ptr [rsp + 512], rax",
        "mov qword ptr [rsp + 520], rax",
        "mov qword ptr [rsp + 528], rax",
        "mov qword ptr [rsp + 536], rax",
        "mov qword ptr [rsp + 544], rax",
        "mov qword ptr [rsp + 552], rax",
        "mov qword ptr [rsp + 560], rax",
        "mov qword ptr [rsp + 568], rax",
        "mov rax, qword ptr [rip + {present}]",
        "mov rdx, rax",
        "shr rdx, 32",
        "xsave64 [rsp]",
        "mov rdi, r11",
        "mov rsi, rbx",
        "call {done}",
        "mov r11, rax",
        "mov rax, qword ptr [rip + {present}]",
        "mov rdx, rax",
        "shr rdx, 32",
        "xrstor64 [rsp]",
        "mov rax, r11",
        "mov rsp, rbx",
        "pop rdi",
        "pop rsi",
        "pop rdx",
        "pop r10",
        "pop r8",
        "pop r9",
        "pop rbx",
        "pop rbp",
        "popfq",
        "ret",
        room = const ROOM,
        present = sym PRESENT,
        done = sym done,
    )
}

/// `lea rsp, [rsp - 128]`, and back.
const BELOW: [u8; 5] = [0x48, 0x8d, 0x64, 0x24, (!RED_ZONE).wrapping_add(1)];
const ABOVE: [u8; 8] = [0x48, 0x8d, 0xa4, 0x24, RED_ZONE, 0, 0, 0];
/// `call [rip + …]`.
const CALL: [u8; 2] = [0xff, 0x15];

/// Bytes of the place of a call.
pub(super) fn place_len(site: &Site) -> usize {
    MOV + (site.syscall - site.at - MOV) + BELOW.len() + CALL.len() + 4 + ABOVE.len() + JUMP
}

/// Appends what stands between number and call in code at `from`, to be at `to`, where it means the same; whether it can be there.
fn moved(between: &[u8], from: usize, to: usize, code: &mut Vec<u8>) -> bool {
    let mut at = 0;
    while at < between.len() {
        let Some(fills) = fills(&between[at..]) else { return false };
        let mut one = between[at..at + fills.len].to_vec();
        if let Some(distance) = fills.distance {
            let bytes = &mut one[distance..distance + 4];
            let far = bytes.iter().rev().fold(0_u32, |all, byte| all << 8 | u32::from(*byte)) as i32;
            // As far less as it lies further on.
            let Ok(far) = i32::try_from(i64::from(far) + from as i64 - to as i64) else { return false };
            bytes.copy_from_slice(&far.to_le_bytes());
        }
        code.append(&mut one);
        at += fills.len;
    }
    true
}

/// The place of a call of code at `start`, to be at `at`; the table is at `table`. None: it cannot be there.
pub(super) fn place(site: &Site, bytes: &[u8], start: usize, at: usize, table: usize) -> Option<Vec<u8>> {
    let mut code = Vec::with_capacity(place_len(site));
    code.push(0xb8);
    code.extend(site.number.to_le_bytes());
    if !moved(&bytes[site.at + MOV..site.syscall], start + site.at, at, &mut code) {
        return None;
    }
    code.extend(BELOW);
    code.extend(CALL);
    let next = at + code.len() + 4;
    code.extend((table.wrapping_sub(next) as i32).to_le_bytes());
    code.extend(ABOVE);
    code.extend(jump(at + code.len(), start + site.syscall + SYSCALL));
    debug_assert_eq!(code.len(), place_len(site));
    Some(code)
}
