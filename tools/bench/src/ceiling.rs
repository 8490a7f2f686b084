//! The ceilings of the metadata cases: the same work on plain files, by the same number of processes.

use std::{
    fs::{self, File},
    path::PathBuf,
};

use anyhow::Result;
use serde_json::json;

use crate::worker;

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
