//! The ceilings: the same work on plain files, by the same number of processes.

use std::{
    fs::{self, File, OpenOptions},
    os::unix::fs::FileExt,
    path::PathBuf,
};

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    data::{FOOTPRINT, REQUEST, aligned, page_of},
    worker,
};

/// pwrite and pread. Argument: a directory. Steps as of the data worker.
pub(crate) fn data_worker(args: &[String]) -> Result<()> {
    let [dir] = args else { anyhow::bail!("a plain data worker takes a directory") };
    let dir = PathBuf::from(dir);
    let mut memory = aligned();
    let buffer = page_of(&mut memory);
    let mut open: Option<(String, File)> = None;
    worker::serve(|step| {
        let (what, name) = step.split_once(' ').context("a step is a word and a name")?;
        let path = dir.join(name);
        if what == "drop" || what == "close" {
            open = None;
            if what == "drop" {
                fs::remove_file(&path)?;
            }
            return Ok(json!({}));
        }
        if open.as_ref().is_none_or(|(is, _)| is != name) {
            let mut options = OpenOptions::new();
            options.read(true).write(what != "read").create(what == "first");
            open = Some((name.to_owned(), options.open(&path)?));
        }
        let (_, file) = open.as_ref().context("no file")?;
        let from = worker::clock();
        for at in (0..FOOTPRINT).step_by(REQUEST) {
            match what {
                "read" => file.read_exact_at(buffer, at)?,
                _ => file.write_all_at(buffer, at)?,
            }
        }
        Ok(json!({"from": from, "to": worker::clock()}))
    })
}

/// Creating, stat-ing, walking and unlinking empty files. Arguments: directory, number of this worker. Steps: `create N
/// ROUND`, `stat N ROUND`, `walk`, `delete N ROUND`.
pub(crate) fn meta_worker(args: &[String]) -> Result<()> {
    let [dir, number] = args else { anyhow::bail!("a plain metadata worker takes a directory and a number") };
    let dir = PathBuf::from(dir);
    worker::serve(|step| {
        let words: Vec<&str> = step.split(' ').collect();
        let n = words.get(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        let round = words.get(2).copied().unwrap_or("0");
        let name = |i: u64| dir.join(crate::meta::name(number, round, i));
        let from = worker::clock();
        match words[0] {
            "create" => {
                for i in 0..n {
                    drop(File::create_new(name(i))?);
                }
            }
            "stat" => {
                for i in crate::meta::shuffled(n) {
                    fs::symlink_metadata(name(i))?;
                }
            }
            "walk" => {
                for entry in fs::read_dir(&dir)? {
                    entry?.metadata()?;
                }
            }
            "delete" => {
                for i in 0..n {
                    fs::remove_file(name(i))?;
                }
            }
            other => anyhow::bail!("no step {other}"),
        }
        Ok(json!({"from": from, "to": worker::clock()}))
    })
}
