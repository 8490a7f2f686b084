//! Metadata rates: 24-byte names unique in one group, two user keys of which one is indexed, two client processes,
//! answered by the daemon.

use std::ffi::CString;

use anyhow::{Context, Result};
use serde_json::json;

use crate::{
    capi::{Batch, Collection, Controls, Metadata, NOW, Session, Stat},
    worker as workers,
};

/// Operations in one batch.
pub(crate) const BATCH: u64 = 1000;

/// A name of 24 bytes, unique in the group.
pub(crate) fn name(worker: &str, round: &str, i: u64) -> String {
    let head = format!("w{worker}r{round}-");
    format!("{head}{i:0width$}", width = 24 - head.len())
}

/// 0..n in an order that no cache can guess: a full-period congruential sequence.
pub(crate) fn shuffled(n: u64) -> impl Iterator<Item = u64> + Clone {
    // A multiplier that is odd and far from n, coprime to it after the loop below.
    let mut step = (n * 618 / 1000) | 1;
    let gcd = |mut a: u64, mut b: u64| {
        while b > 0 {
            (a, b) = (b, a % b);
        }
        a
    };
    while n > 1 && gcd(step, n) != 1 {
        step += 2;
    }
    (0..n).map(move |i| i * step % n)
}

struct Client {
    number: String,
    session: Session,
    ws: crate::capi::Workspace,
    held: Vec<Collection>,
}

impl Client {
    fn names(&self, n: u64, round: &str) -> Result<Vec<CString>> {
        (0..n).map(|i| Ok(CString::new(name(&self.number, round, i))?)).collect()
    }

    fn create(&mut self, n: u64, round: &str, batched: bool, controls: Option<&str>) -> Result<()> {
        let controls = controls.map(Controls::parse).transpose()?;
        // 1,024 values of the indexed key, so that a search for one finds about n/1024.
        let sets: Vec<Metadata> = (0..1024)
            .map(|v| Metadata::new(&[("temperature", v)], &[("experiment", "nacelle")]))
            .collect::<Result<_>>()?;
        let names = self.names(n, round)?;
        let batch = self.session.batch()?;
        for (i, name) in names.iter().enumerate() {
            let to = if batched { &batch } else { &NOW };
            self.held.push(self.ws.create(to, name, Some(&sets[i % 1024]), controls.as_ref())?);
            if batched && (i as u64 + 1).is_multiple_of(BATCH) {
                batch.run()?;
            }
        }
        if batched && !n.is_multiple_of(BATCH) {
            batch.run()?;
        }
        Ok(())
    }

    /// With five keys each, and closed at once.
    fn create_five(&mut self, n: u64, round: &str) -> Result<()> {
        let texts = [("experiment", "nacelle"), ("instrument", "lidar-3")];
        let sets: Vec<Metadata> = (0..1024)
            .map(|v| Metadata::new(&[("temperature", v), ("iteration", v * 7), ("run", v / 3)], &texts))
            .collect::<Result<_>>()?;
        let batch = self.session.batch()?;
        for (i, name) in self.names(n, round)?.iter().enumerate() {
            self.ws.create(&batch, name, Some(&sets[i % 1024]), None)?.close(&batch)?;
            if (i as u64 + 1).is_multiple_of(BATCH / 2) {
                batch.run()?;
            }
        }
        batch.run()
    }

    fn stat(&self, n: u64, batch: &Batch) -> Result<()> {
        let all = self.held.len() as u64;
        let mut out = vec![Stat::default(); BATCH as usize];
        let mut order = shuffled(all).cycle();
        let mut left = n;
        while left > 0 {
            let now = left.min(BATCH);
            for slot in out.iter_mut().take(now as usize) {
                let i = order.next().context("nothing is held")?;
                self.held[i as usize].stat(batch, slot)?;
            }
            batch.run()?;
            left -= now;
        }
        Ok(())
    }

    fn close_all(&mut self) -> Result<()> {
        let batch = self.session.batch()?;
        for part in self.held.chunks(BATCH as usize) {
            for c in part {
                c.close(&batch)?;
            }
            batch.run()?;
        }
        self.held.clear();
        Ok(())
    }

    fn delete(&self, n: u64, round: &str) -> Result<()> {
        let batch = self.session.batch()?;
        let names = self.names(n, round)?;
        for part in names.chunks(BATCH as usize) {
            for name in part {
                self.ws.delete(&batch, name)?;
            }
            batch.run()?;
        }
        Ok(())
    }
}

/// Arguments: URL, workspace, number of this worker. Steps: `create N ROUND`, `single N ROUND`, `durable N ROUND`,
/// `five N ROUND`, `stat N`, `close`, `find VALUE`, `match VALUE`, `scan`, `delete N ROUND`.
pub(crate) fn worker(args: &[String]) -> Result<()> {
    let [url, ws, number] = args else { anyhow::bail!("a metadata worker takes a URL, a workspace and a number") };
    let session = Session::open(url)?;
    let ws = session.workspace(ws)?;
    let mut client = Client { number: number.clone(), session, ws, held: Vec::new() };
    workers::serve(|step| {
        let words: Vec<&str> = step.split(' ').collect();
        let n = words.get(1).and_then(|n| n.parse::<u64>().ok()).unwrap_or(0);
        let round = words.get(2).copied().unwrap_or("0");
        let requests = client.session.counters()?[0].1;
        let from = workers::clock();
        let mut found = 0;
        match words[0] {
            "create" => client.create(n, round, true, None)?,
            "five" => client.create_five(n, round)?,
            "single" => client.create(n, round, false, None)?,
            "durable" => client.create(n, round, true, Some("persistence=durable@batch"))?,
            "stat" => {
                let batch = client.session.batch()?;
                client.stat(n, &batch)?;
            }
            "close" => client.close_all()?,
            // The first match only: what a person waits for.
            "find" => found = client.ws.search(&format!("temperature = {n}"), 1)?,
            "match" => found = client.ws.search(&format!("temperature = {n}"), 0)?,
            "scan" => found = client.ws.search("experiment = \"nacelle\" and temperature >= 0", 0)?,
            "delete" => client.delete(n, round)?,
            other => anyhow::bail!("no step {other}"),
        }
        let to = workers::clock();
        let requests = client.session.counters()?[0].1 - requests;
        Ok(json!({"from": from, "to": to, "found": found, "metadata_requests": requests}))
    })
}
