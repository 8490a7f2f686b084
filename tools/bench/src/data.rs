//! Bandwidth of a file target: 1 MiB requests over 1 GiB at distinct offsets, hot source buffer, through the C ABI.

use std::ffi::CString;

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    capi::{Collection, NOW, Session},
    worker as workers,
};

/// Bytes of one case; API §5 asks for at least 1 GiB.
pub(crate) const FOOTPRINT: u64 = 1 << 30;
/// Bytes of one request.
pub(crate) const REQUEST: usize = 1 << 20;
const HUGE_PAGE: usize = 2 << 20;

/// Room for one request in one huge page where the kernel gives one. The cache of a core holds about as much as a
/// request, so that the luck of a process with scattered pages is worth half of the speed: the workers shall have the
/// same.
pub(crate) fn aligned() -> Vec<u8> {
    let mut memory = vec![0; 2 * HUGE_PAGE];
    let at = page_of(&mut memory).as_mut_ptr();
    // SAFETY: the huge page lies inside `memory`; advice changes no byte of it.
    unsafe { libc::madvise(at.cast(), HUGE_PAGE, libc::MADV_HUGEPAGE) };
    memory.fill(0x5a);
    memory
}

/// The part of [`aligned`] that begins with a huge page.
pub(crate) fn page_of(memory: &mut [u8]) -> &mut [u8] {
    let skip = memory.as_ptr().align_offset(HUGE_PAGE);
    &mut memory[skip..skip + REQUEST]
}

/// Arguments: URL, workspace. Steps: `first NAME`, `over NAME`, `read NAME`, `close NAME`, `drop NAME`.
pub(crate) fn worker(args: &[String]) -> Result<()> {
    let [url, ws] = args else { anyhow::bail!("a data worker takes a URL and a workspace") };
    let session = Session::open(url)?;
    let workspace = session.workspace(ws)?;
    let mut memory = aligned();
    let buffer = page_of(&mut memory);
    let mut open: Option<(String, Collection)> = None;
    workers::serve(|step| {
        let (what, name) = step.split_once(' ').context("a step is a word and a name")?;
        let c_name = CString::new(name)?;
        if what == "drop" {
            if let Some((_, c)) = open.take() {
                c.close(&NOW)?;
            }
            workspace.delete(&NOW, &c_name)?;
            return Ok(json!({}));
        }
        if what == "close" {
            if let Some((_, c)) = open.take() {
                c.close(&NOW)?;
            }
            return Ok(json!({}));
        }
        let collection = match (&open, what) {
            (Some((is, c)), _) if is == name => *c,
            (_, "first") => workspace.create(&NOW, &c_name, None, None)?,
            _ => workspace.lookup(&NOW, &c_name)?,
        };
        open = Some((name.to_owned(), collection));
        let before = session.counters()?;
        let from = workers::clock();
        for at in (0..FOOTPRINT).step_by(REQUEST) {
            match what {
                "read" => {
                    let spot = at as usize / REQUEST * 997 % REQUEST;
                    buffer[spot] = 0;
                    let got = collection.read(at, buffer)?;
                    anyhow::ensure!(got == REQUEST && buffer[spot] == 0x5a, "wrong bytes were read");
                }
                _ => collection.write(at, buffer)?,
            }
        }
        let to = workers::clock();
        let counters: serde_json::Map<_, _> = session
            .counters()?
            .into_iter()
            .zip(before)
            .filter(|((_, now), (_, old))| now > old)
            .map(|((name, now), (_, old))| (name, json!(now - old)))
            .collect();
        Ok(json!({"from": from, "to": to, "counters": counters}))
    })?;
    session.close()
}
