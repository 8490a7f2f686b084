//! `fork | COMMAND`: a child that uses what its parent has opened (T23).
#![allow(unsafe_code)] // fork, and the end of a process without its exit handlers, have no safe form

use std::{
    fs::File,
    io::{Read, Write},
    os::fd::FromRawFd,
};

use ioverbs::{Error, Kind, Result};

use super::{Command, World, answer};

fn os(what: &str) -> Error {
    Error::new(Kind::Internal, format!("{what}: {}", std::io::Error::last_os_error()))
}

/// Runs the command in a child; its answer is `ok` with the child's own answer.
pub(crate) fn run(world: &World, command: &Command) -> Result<String> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(os("pipe"));
    }
    // SAFETY: pipe2 has just opened both, and nobody else knows them.
    let (mut from, mut to) = unsafe { (File::from_raw_fd(ends[0]), File::from_raw_fd(ends[1])) };
    // SAFETY: the child runs one command in this one thread, which is what the test is about, and ends by _exit.
    let child = unsafe { libc::fork() };
    if child == 0 {
        drop(from);
        let text = answer(command.run(world));
        let sent = to.write_all(text.as_bytes());
        // SAFETY: ends the child at once: nothing that belongs to the parent is taken down.
        unsafe { libc::_exit(i32::from(sent.is_err())) }
    }
    if child < 0 {
        return Err(os("fork"));
    }
    drop(to);
    let mut text = String::new();
    let read = from.read_to_string(&mut text);
    let mut status = 0;
    // SAFETY: the child is ours, and the status a live integer.
    if unsafe { libc::waitpid(child, &mut status, 0) } != child || read.is_err() {
        return Err(os("waiting for the child"));
    }
    if status != 0 {
        return Err(Error::new(Kind::Internal, format!("the child ended with status {status:#x}")));
    }
    Ok(text)
}
