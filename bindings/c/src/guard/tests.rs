use std::process::Command;

use super::*;

/// What a panic inside a function becomes.
#[test]
fn a_panic_is_an_internal_error() {
    let code = guard(|| panic!("the moon is {}", "full"));
    assert_eq!(code, -ioverbs::Kind::Internal.code());
    let status = last_error::status();
    assert_eq!(status.code, code);
    assert_eq!(status.outcome, ioverbs::Outcome::Unknown as u8);
    // SAFETY: the text lives until this thread's next failure.
    let detail = unsafe { std::ffi::CStr::from_ptr(last_error::detail()) }.to_str().unwrap();
    assert!(detail.starts_with("the moon is full at ") && detail.contains("guard/tests.rs:"), "{detail}");
    assert_eq!(guard_value(7, || panic!("again")), 7);
    assert_eq!(guard_number(|| Ok(5)), 5);
    assert_eq!(guard(|| Ok(())), 0);
}

/// The library prints nothing; a program's own panics are printed as ever.
#[test]
fn panics_inside_are_not_printed() {
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "guard::tests::in_a_process_of_its_own", "--ignored", "--nocapture"])
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!said.contains("quiet please"), "{said}");
    assert!(said.contains("loud"), "{said}");
}

#[test]
#[ignore = "the test above runs it"]
fn in_a_process_of_its_own() {
    guard(|| panic!("quiet please"));
    let _ = std::panic::catch_unwind(|| panic!("loud"));
}
