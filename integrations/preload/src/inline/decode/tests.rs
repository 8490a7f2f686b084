use super::*;

const RENAMEAT: u32 = 0x108;
/// What stands before: mov rbx, rdi; mov [rsp+0x20], rsi; lea r12, [rdi+rsi*4+0x11223344]; movups [rsp], xmm0; test bl, bl; jne +5; call; mov ebp, 0x1234567.
const BEFORE: &[u8] = b"\x48\x89\xfb\x48\x89\x74\x24\x20\x4c\x8d\xa4\xb7\x44\x33\x22\x11\x0f\x11\x04\x24\x84\xdb\x75\x05\xe8\x12\x34\x56\x00\xbd\x67\x45\x23\x01";

fn wanted(number: u32) -> bool {
    [1, 2, 0x101, RENAMEAT, 0x13c].contains(&number)
}

/// What is found behind other code: where, counted from its end, and the numbers.
fn found(code: &[u8]) -> Vec<(usize, usize, u32)> {
    let before = BEFORE.repeat(3);
    let all = [&before[..], code, b"\x48\x85\xc0"].concat();
    let from = |at: usize| at - before.len();
    calls(&all, &wanted).into_iter().map(|site| (from(site.at), from(site.syscall), site.number)).collect()
}

#[test]
fn calls_are_recognised_as_compilers_write_them() {
    // mov r10, [rsp+0x48]; mov eax, 0x108; mov edi, -100; mov edx, -100; mov rsi, r14; syscall
    let code =
        b"\x4c\x8b\x54\x24\x48\xb8\x08\x01\x00\x00\xbf\x9c\xff\xff\xff\xba\x9c\xff\xff\xff\x4c\x89\xf6\x0f\x05\xc3";
    assert_eq!(found(code), [(5, 23, RENAMEAT)]);
    // mov r10, [rsp+0x10]; mov r9, [rsp+0x18]; mov edi, [r15]; mov edx, [r12]; mov r8d, [r14]; mov eax, 0x13c; mov rsi, rbx; syscall
    let code = b"\x4c\x8b\x54\x24\x10\x4c\x8b\x4c\x24\x18\x41\x8b\x3f\x41\x8b\x14\x24\x45\x8b\x06\xb8\x3c\x01\x00\x00\x48\x89\xde\x0f\x05";
    assert_eq!(found(code), [(20, 28, 0x13c)]);
    // Nothing between; two in a row.
    assert_eq!(found(b"\xb8\x01\0\0\0\x0f\x05\xb8\x01\x01\0\0\x31\xd2\x0f\x05"), [(0, 5, 1), (7, 14, 0x101)]);
}

#[test]
fn the_number_is_that_of_the_register_for_it() {
    // mov eax, 0x13c; mov r8d, 1; syscall: not `write`.
    assert_eq!(found(b"\xb8\x3c\x01\0\0\x41\xb8\x01\0\0\0\x0f\x05"), [(0, 11, 0x13c)]);
    assert_eq!(found(b"\x41\xb8\x01\0\0\0\x0f\x05"), []);
    // mov eax, 1; then another number: mov eax, 39; xor eax, eax; mov eax, ebx; add eax, 1; lea eax, [rbx]; mov al, 3; xchg.
    for between in [
        &b"\xb8\x27\0\0\0"[..],
        b"\x31\xc0",
        b"\x89\xd8",
        b"\x83\xc0\x01",
        b"\x8d\x03",
        b"\x8b\x03",
        b"\x0f\xb6\x03",
        b"\xb0\x03",
        b"\x93",
        b"\x0f\xa2",
    ] {
        assert_eq!(found(&[&b"\xb8\x01\0\0\0"[..], between, b"\x0f\x05"].concat()), [], "{between:x?}");
    }
}

#[test]
fn the_middle_of_another_instruction_is_none() {
    // mov eax, 0xe4 (no call of files), and stores of small numbers, or addresses, in which `b8` stands before one.
    for store in [
        &b"\x48\xc7\x44\x24\xb8\x02\0\0\0"[..],
        b"\xc7\x45\xb8\x01\0\0\0",
        b"\x41\xc7\x04\xb8\x01\0\0\0",
        b"\x49\x8d\xb8\x08\x01\0\0",
        b"\x8b\xb8\x01\x01\0\0",
        b"\x69\xb8\x02\0\0\0\x01\0\0\0",
        b"\x48\xb9\xb8\x01\0\0\0\0\0\0",
    ] {
        let code = [&b"\xb8\xe4\0\0\0"[..], store, b"\x48\x89\xde\x0f\x05"].concat();
        assert_eq!(found(&code), [], "{store:x?}");
    }
    // The call itself is found behind and before such.
    let store = b"\x48\xc7\x44\x24\xb8\x02\0\0\0";
    assert_eq!(found(&[&b"\xb8\x01\x01\0\0"[..], store, b"\x0f\x05"].concat()), [(0, 14, 0x101)]);
    assert_eq!(found(&[&store[..], b"\xb8\x01\x01\0\0\x0f\x05"].concat()), [(9, 14, 0x101)]);
}

#[test]
fn distances_are_told() {
    // lea rsi, [rip+8]; mov dword ptr [rip+0x11223344], 5; mov rdi, [rsp+8]
    let told = |code: &[u8]| fills(code).map(|fills| (fills.len, fills.distance));
    assert_eq!(told(b"\x48\x8d\x35\x08\0\0\0"), Some((7, Some(3))));
    assert_eq!(told(b"\xc7\x05\x44\x33\x22\x11\x05\0\0\0"), Some((10, Some(2))));
    assert_eq!(told(b"\x48\x8b\x7c\x24\x08"), Some((5, None)));
    assert_eq!(found(b"\xb8\x01\0\0\0\x48\x8d\x35\x08\0\0\0\x0f\x05"), [(0, 12, 1)]);
}

#[test]
fn nothing_is_taken_for_a_call_that_may_be_something_else() {
    // A jump, a call or a return between; the stack.
    for between in
        [&b"\xeb\x00"[..], b"\xe8\0\0\0\0", b"\xc3", b"\x74\x00", b"\x48\x83\xec\x08", b"\x50", b"\x5f", b"\xf4"]
    {
        assert_eq!(found(&[&b"\xb8\x01\0\0\0"[..], between, b"\x0f\x05"].concat()), [], "{between:x?}");
    }
    // `syscall` within a constant: mov eax, 1; mov edi, 0x050f1234.
    assert_eq!(found(b"\xb8\x01\0\0\0\xbf\x34\x12\x0f\x05\x90\x90"), []);
    // Another number, and none.
    assert_eq!(found(b"\xb8\x27\0\0\0\x0f\x05\x0f\x05"), []);
    // Too far.
    assert_eq!(found(&[&b"\xb8\x01\0\0\0"[..], &b"\x31\xd2".repeat(BETWEEN), b"\x0f\x05"].concat()), []);
    // Of what nobody knows what stands before it.
    assert_eq!(calls(b"\xb8\x01\0\0\0\x0f\x05", &wanted), []);
}

proptest::proptest! {
    #[test]
    fn no_bytes_do_harm(code: Vec<u8>) {
        for site in calls(&code, &|_| true) {
            proptest::prop_assert!(site.at + MOV <= site.syscall && site.syscall + SYSCALL <= code.len());
        }
        let _ = fills(&code);
    }
}
