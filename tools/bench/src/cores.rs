//! Which cores threads run on.

use std::io;

use anyhow::{Context, Result};

type Set = libc::cpu_set_t;

/// The cores that this thread may use.
pub(crate) fn allowed() -> Result<Vec<usize>> {
    // SAFETY: a set is plain bits; the call fills it.
    let set = unsafe {
        let mut set: Set = std::mem::zeroed();
        if libc::sched_getaffinity(0, size_of::<Set>(), &mut set) != 0 {
            return Err(io::Error::last_os_error().into());
        }
        set
    };
    // SAFETY: the numbers are below the size of a set.
    Ok((0..libc::CPU_SETSIZE as usize).filter(|core| unsafe { libc::CPU_ISSET(*core, &set) }).collect())
}

/// Has a thread run on these cores only; 0 is this one.
pub(crate) fn stay_on(thread: i32, cores: &[usize]) -> Result<()> {
    // SAFETY: a set is plain bits; numbers beyond it are left out.
    let done = unsafe {
        let mut set: Set = std::mem::zeroed();
        for core in cores.iter().filter(|core| **core < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(*core, &mut set);
        }
        libc::sched_setaffinity(thread, size_of::<Set>(), &set)
    };
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error().into()) }
}

/// The same for all threads of a process. Those that they start later follow them.
pub(crate) fn process_stays_on(process: u32, cores: &[usize]) -> Result<()> {
    let threads = std::fs::read_dir(format!("/proc/{process}/task"));
    for thread in threads.with_context(|| format!("no process {process}"))? {
        let Some(thread) = thread?.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        match stay_on(thread, cores) {
            // Ended since it was listed.
            Err(e) if e.downcast_ref::<io::Error>().is_some_and(|e| e.raw_os_error() == Some(libc::ESRCH)) => {}
            done => done.with_context(|| format!("process {process} cannot be put on cores {cores:?}"))?,
        }
    }
    Ok(())
}
