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

/// Arguments: URL, workspace. Steps: `first NAME`, `over NAME`, `read NAME`, `close NAME`, `drop NAME`.
pub(crate) fn worker(args: &[String]) -> Result<()> {
    let [url, ws] = args else { anyhow::bail!("a data worker takes a URL and a workspace") };
    let session = Session::open(url)?;
    let workspace = session.workspace(ws)?;
    let mut buffer = vec![0x5au8; REQUEST];
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
                    let got = collection.read(at, &mut buffer)?;
                    anyhow::ensure!(got == REQUEST && buffer[at as usize % REQUEST] == 0x5a, "wrong bytes were read");
                }
                _ => collection.write(at, &buffer)?,
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
