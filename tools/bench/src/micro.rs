//! `iov bench micro`: arranges the cases of API §5 that exist so far.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, ensure};
use serde_json::json;

use crate::{
    data, machine,
    meta::BATCH,
    net,
    report::{Case, Ceiling},
    worker::{Worker, step},
};

/// Fewer collections would be no batch for each of two processes.
pub const LEAST_COLLECTIONS: u64 = 2 * BATCH;

/// What to run.
#[derive(Clone, Debug)]
pub struct MicroOptions {
    /// Where the store and the plain files lie; the same file system for both.
    pub dir: PathBuf,
    /// Runs of each case.
    pub runs: usize,
    /// Collections in all, for the metadata cases.
    pub collections: u64,
    /// Only cases whose name contains one of these.
    pub only: Vec<String>,
    /// Where the durable case keeps its store: a directory whose file system survives power loss.
    pub disk: PathBuf,
}

/// Cases with a store of their own.
const MEMORY: &str = "meta.daemon.memory";
const REOPEN: &str = "meta.daemon.reopen";

/// The one case that needs a disk.
const DURABLE: &str = "meta.create.batch.durable";

struct Bench {
    options: MicroOptions,
    store: PathBuf,
    url: String,
    plain: PathBuf,
    cases: Vec<Case>,
    tell: Box<dyn Fn(&str)>,
}

/// The file system that a path lies on, by type.
fn file_system(path: &Path) -> String {
    let out = std::process::Command::new("stat").args(["-f", "-c", "%T"]).arg(path).output();
    out.map_or_else(|_| "unknown".into(), |o| String::from_utf8_lossy(&o.stdout).trim().to_owned())
}

/// Runs the cases, telling each as it is done, and returns the JSON object of API §5.
pub fn micro(options: MicroOptions, tell: impl Fn(&str) + 'static) -> Result<serde_json::Value> {
    ensure!(
        options.runs >= 1 && options.collections >= LEAST_COLLECTIONS,
        "at least one run and {LEAST_COLLECTIONS} collections"
    );
    let root = options.dir.join(format!("iov-bench-{}", std::process::id()));
    let plain = root.join("plain");
    std::fs::create_dir_all(&plain).with_context(|| format!("no directory {}", plain.display()))?;
    let store = root.join("store");
    let url = format!("file:{}", store.display());
    let mut bench = Bench { options, store, url, plain, cases: Vec::new(), tell: Box::new(tell) };
    let done = bench.run();
    // Whatever happened: no daemon and no gigabytes are left behind.
    let _ = ioverbs::daemon_shutdown(&bench.url);
    let cleaned = std::fs::remove_dir_all(&root);
    done?;
    cleaned.context("the benchmark's directory cannot be removed")?;
    let mut machine = machine::describe();
    machine["file_system"] = json!(file_system(&bench.options.dir));
    Ok(json!({"machine": machine, "cases": bench.cases.iter().map(Case::json).collect::<Vec<_>>()}))
}

impl Bench {
    fn wants(&self, names: &[&str]) -> bool {
        let only = &self.options.only;
        only.is_empty() || names.iter().any(|n| only.iter().any(|o| n.contains(o.as_str())))
    }

    fn add(&mut self, case: Case) {
        if self.wants(&[&case.name]) {
            (self.tell)(&case.line());
            self.cases.push(case);
        }
    }

    fn run(&mut self) -> Result<()> {
        let session = ioverbs::open(Some(&self.url), ioverbs::SessionAttr::default())?;
        let indexes = vec!["temperature".to_owned()];
        let attr = ioverbs::WorkspaceAttr { indexes, ..Default::default() };
        session.create_workspace(ioverbs::Name::new("bench")?, attr)?;
        if self.wants(&data::CASES.map(|(name, _, _)| name)) {
            let cases = data::cases(&data::CASES, &self.store, &self.plain, self.options.runs)?;
            cases.into_iter().for_each(|case| self.add(case));
        }
        if self.wants(&data::SHARED_CASES.map(|(name, _, _)| name)) {
            self.in_shared_memory((None, 1), |bench, store, _| {
                data::cases(&data::SHARED_CASES, store, &bench.plain, bench.options.runs)
            })?;
        }
        if self.wants(&data::STRIPED_CASES.map(|(name, _, _)| name)) {
            self.in_shared_memory((None, 4), |bench, store, _| {
                data::cases(&data::STRIPED_CASES, store, &bench.plain, bench.options.runs)
            })?;
        }
        if self.wants(&net::KINDS.map(|kind| kind.name)) {
            self.in_shared_memory((Some("127.0.0.1:0"), 1), Bench::remote)?;
        }
        let near = self.wants(&data::NEAR_CASES.map(|(name, _, _)| name));
        if near || self.wants(&net::MEMBER_KINDS.map(|kind| kind.name)) {
            self.at_member()?;
        }
        let names = self.options.only.clone();
        if names.is_empty() || names.iter().any(|o| o.starts_with("meta") && ![DURABLE, MEMORY, REOPEN].contains(&&**o))
        {
            self.meta()?;
        }
        if self.wants(&[MEMORY, REOPEN]) {
            self.footprint()?;
        }
        if self.wants(&[DURABLE]) {
            self.on_disk(|bench, root| Ok(vec![bench.durable_in(&format!("file:{}", root.join("store").display()))?]))?;
        }
        if self.wants(&data::DURABLE_CASES.map(|(name, _, _)| name)) {
            self.on_disk(|bench, root| {
                let (store, plain) = (root.join("store"), root.join("plain"));
                std::fs::create_dir_all(&plain)?;
                let session =
                    ioverbs::open(Some(&format!("file:{}", store.display())), ioverbs::SessionAttr::default())?;
                session.create_workspace(ioverbs::Name::new("bench")?, ioverbs::WorkspaceAttr::default())?;
                data::cases(&data::DURABLE_CASES, &store, &plain, bench.options.runs)
            })?;
        }
        Ok(())
    }

    /// Runs cases of a store of its own in shared memory, on so many targets, over all of which collections are spread. It takes
    /// 3 GiB while they run. They are given its directory and its URL.
    fn in_shared_memory(
        &mut self,
        (listen, targets): (Option<&str>, u32),
        cases: impl FnOnce(&Bench, &Path, &str) -> Result<Vec<Case>>,
    ) -> Result<()> {
        let store = self.store.with_extension(match (listen, targets) {
            (Some(_), _) => "network",
            (None, 1) => "shared",
            _ => "striped",
        });
        let url = format!("file:{}", store.display());
        let storage = vec![format!("shmem:{}MiB", 3072 / targets); targets as usize];
        let setup = ioverbs::StoreSetup { storage, listen: listen.map(str::to_owned), ..Default::default() };
        ioverbs::daemon_start(&url, &setup, 60_000_000_000)?;
        let done = (|| {
            let session = ioverbs::open(Some(&url), ioverbs::SessionAttr::default())?;
            let layout = (targets > 1).then(|| ioverbs::Layout { targets, ..ioverbs::Layout::default() });
            let attr = ioverbs::WorkspaceAttr { layout, ..ioverbs::WorkspaceAttr::default() };
            session.create_workspace(ioverbs::Name::new("bench")?, attr)?;
            cases(self, &store, &url)
        })();
        let _ = ioverbs::daemon_shutdown(&url);
        let released = ioverbs::store_release(&url);
        done?.into_iter().for_each(|case| self.add(case));
        released.map(drop).map_err(Into::into)
    }

    /// The remote cases that are wanted, of a daemon that listens on a port of this machine.
    fn remote(&self, store: &Path, url: &str) -> Result<Vec<Case>> {
        let addresses = ioverbs::daemon_addresses_within(url, 60_000_000_000)?.unwrap_or_default();
        let address = addresses.first().context("the daemon listens on no port")?;
        let network = format!("iov://{address}?secret={}", store.join("secret").display());
        let served = ioverbs::daemon_status(url)?.unwrap_or_default();
        let ways = net::Ways { network, local: url.to_owned(), pid: pid(&served).context("the daemon has no number")? };
        let kinds: Vec<net::Kind> = net::KINDS.into_iter().filter(|kind| self.wants(&[kind.name])).collect();
        net::cases(&kinds, &ways, &self.plain, self.options.runs)
    }

    /// The same of a daemon that has joined a store, in whose shared memory all bytes lie.
    fn at_member(&mut self) -> Result<()> {
        let [store, member] = ["catalog", "member"].map(|name| self.store.with_extension(name));
        let urls = [&store, &member].map(|dir| format!("file:{}", dir.display()));
        let listen = Some("127.0.0.1:0".to_owned());
        ioverbs::daemon_start(&urls[0], &ioverbs::StoreSetup { listen, ..Default::default() }, 60_000_000_000)?;
        let done = (|| {
            let addresses = ioverbs::daemon_addresses_within(&urls[0], 60_000_000_000)?.unwrap_or_default();
            let setup = ioverbs::StoreSetup {
                storage: vec!["shmem:3072MiB".to_owned()],
                join: addresses.first().cloned(),
                secret: Some(store.join("secret")),
                ..Default::default()
            };
            ioverbs::daemon_start(&urls[1], &setup, 60_000_000_000)?;
            let session = ioverbs::open(Some(&urls[0]), ioverbs::SessionAttr::default())?;
            let layout = ioverbs::Layout { policy: Some("targets:64".to_owned()), ..ioverbs::Layout::default() };
            let attr = ioverbs::WorkspaceAttr { layout: Some(layout), ..ioverbs::WorkspaceAttr::default() };
            session.create_workspace(ioverbs::Name::new("bench")?, attr)?;
            let address = addresses.first().context("the daemon listens on no port")?;
            let network = format!("iov://{address}?secret={}", store.join("secret").display());
            let served = ioverbs::daemon_status(&urls[1])?.unwrap_or_default();
            let pid = pid(&served).context("the daemon has no number")?;
            let ways = net::Ways { network, local: urls[0].clone(), pid };
            let kinds: Vec<net::Kind> = net::MEMBER_KINDS.into_iter().filter(|kind| self.wants(&[kind.name])).collect();
            let mut cases = match kinds.is_empty() {
                true => Vec::new(),
                false => net::cases(&kinds, &ways, &self.plain, self.options.runs)?,
            };
            if self.wants(&data::NEAR_CASES.map(|(name, _, _)| name)) {
                cases.extend(data::cases(&data::NEAR_CASES, &store, &self.plain, self.options.runs)?);
            }
            Ok::<_, anyhow::Error>(cases)
        })();
        for url in &urls {
            let _ = ioverbs::daemon_shutdown(url);
            let _ = ioverbs::store_release(url);
        }
        done?.into_iter().for_each(|case| self.add(case));
        Ok(())
    }

    fn worker(&self, role: &str, args: &[&str]) -> Result<Worker> {
        let mut all = vec![role.to_owned()];
        all.extend(args.iter().map(|a| (*a).to_owned()));
        Worker::start(&all)
    }

    /// Runs cases in a directory on the disk, whose store is `store`.
    fn on_disk(&mut self, cases: impl FnOnce(&Bench, &Path) -> Result<Vec<Case>>) -> Result<()> {
        let root = self.options.disk.join(format!("iov-bench-{}", std::process::id()));
        std::fs::create_dir_all(&root).with_context(|| format!("no directory {}", root.display()))?;
        let done = cases(self, &root);
        let _ = ioverbs::daemon_shutdown(&format!("file:{}", root.join("store").display()));
        let cleaned = std::fs::remove_dir_all(&root);
        done?.into_iter().for_each(|case| self.add(case));
        cleaned.context("the benchmark's directory cannot be removed")
    }

    /// Batches of creates of which each is on the disk before it completes, from two processes.
    fn durable_in(&self, url: &str) -> Result<Case> {
        let session = ioverbs::open(Some(url), ioverbs::SessionAttr::default())?;
        let attr = ioverbs::WorkspaceAttr { indexes: vec!["temperature".to_owned()], ..Default::default() };
        session.create_workspace(ioverbs::Name::new("bench")?, attr)?;
        let mut workers =
            (0..2).map(|i| self.worker("meta", &[url, "bench", &i.to_string()])).collect::<Result<Vec<_>>>()?;
        let each = (self.options.collections / 20 / BATCH * BATCH).clamp(BATCH, 20_000);
        let (mut values, mut requests) = (Vec::new(), 0);
        for run in 0..self.options.runs {
            let (seconds, said) = step(&mut workers, &format!("durable {each} d{run}"))?;
            values.push(2.0 * each as f64 / seconds);
            requests = said.iter().filter_map(|v| v["metadata_requests"].as_u64()).sum();
        }
        workers.into_iter().try_for_each(Worker::end)?;
        Ok(Case {
            name: DURABLE.to_owned(),
            unit: "creates/s",
            higher_is_better: true,
            values,
            ceiling: None,
            counters: vec![("metadata_requests".to_owned(), requests)],
        })
    }

    fn served(&self) -> Result<Vec<(String, u64)>> {
        Ok(ioverbs::daemon_status(&self.url)?.unwrap_or_default())
    }

    fn meta(&mut self) -> Result<()> {
        let (runs, plain, url) = (self.options.runs, self.plain.to_string_lossy().into_owned(), self.url.clone());
        let each = self.options.collections / 2 / runs as u64 / BATCH * BATCH;
        ensure!(each > 0, "too few collections for {runs} runs");
        let mut ours =
            (0..2).map(|i| self.worker("meta", &[&url, "bench", &i.to_string()])).collect::<Result<Vec<_>>>()?;
        let mut bare =
            (0..2).map(|i| self.worker("plain-meta", &[&plain, &i.to_string()])).collect::<Result<Vec<_>>>()?;
        let n = (2 * each) as f64;
        let mut pairs =
            |order: &dyn Fn(usize) -> (String, String), count: f64, runs: usize| -> Result<(Vec<f64>, Vec<f64>, u64)> {
                let (mut a, mut b, mut requests) = (Vec::new(), Vec::new(), 0);
                for run in 0..runs {
                    let (our_step, bare_step) = order(run);
                    let (seconds, said) = step(&mut ours, &our_step)?;
                    a.push(count / seconds);
                    requests = said.iter().filter_map(|v| v["metadata_requests"].as_u64()).sum();
                    if !bare_step.is_empty() {
                        let (seconds, _) = step(&mut bare, &bare_step)?;
                        b.push(count / seconds);
                    }
                }
                Ok((a, b, requests))
            };
        let create = |word: &'static str, tag: &'static str, n: u64| {
            move |run: usize| (format!("{word} {n} {tag}{run}"), format!("create {n} {tag}{run}"))
        };
        let before = self.served()?;
        let batch = pairs(&create("create", "b", each), n, runs)?;
        let after = self.served()?;
        // The whole set is hot: one pass over all of it is not counted.
        let all = each * runs as u64;
        let mut stat = pairs(
            &|run| (format!("stat {all}"), if run == 0 { String::new() } else { format!("stat {each} b{}", run - 1) }),
            2.0 * all as f64,
            runs + 1,
        )?;
        stat.0.remove(0);
        // The ceiling's passes are over a part each.
        stat.1.iter_mut().for_each(|rate| *rate /= runs as f64);
        let few = (each / 10).clamp(BATCH, 20_000);
        let single = pairs(&create("single", "s", few), (2 * few) as f64, runs)?;
        step(&mut ours, "close")?;
        let find = find(&mut ours[..1], runs)?;
        let matches = matches(&mut ours[..1], runs)?;
        let total = (2 * each * runs as u64 + 2 * few * runs as u64) as f64;
        let scan = {
            let mut values = Vec::new();
            let mut walk = Vec::new();
            for _ in 0..runs {
                let (seconds, said) = step(&mut ours[..1], "scan")?;
                ensure!(
                    said[0]["found"].as_u64() == Some(total as u64),
                    "a scan found {} of {total}",
                    said[0]["found"]
                );
                values.push(total / seconds);
                let (seconds, _) = step(&mut bare[..1], "walk")?;
                walk.push(total / seconds);
            }
            (values, walk)
        };
        let delete = pairs_delete(&mut ours, &mut bare, each, runs)?;
        let mut add = |name: &str, unit, higher, values, ceiling: Option<(&str, Vec<f64>)>, counters| {
            let ceiling = ceiling.map(|(name, values)| Ceiling { name: name.into(), values });
            self.add(Case { name: name.into(), unit, higher_is_better: higher, values, ceiling, counters });
        };
        let delta = |name: &str| {
            let value = |list: &[(String, u64)]| list.iter().find(|(k, _)| k == name).map_or(0, |(_, v)| *v);
            (format!("daemon_{name}"), value(&after) - value(&before))
        };
        let counters =
            vec![("metadata_requests".to_owned(), batch.2), delta("requests"), delta("operations"), delta("commits")];
        add(
            "meta.create.batch",
            "creates/s",
            true,
            batch.0,
            Some(("create on the same file system", batch.1)),
            counters,
        );
        let requests = |n| vec![("metadata_requests".to_owned(), n)];
        add(
            "meta.create.single",
            "creates/s",
            true,
            single.0,
            Some(("create on the same file system", single.1)),
            requests(single.2),
        );
        add(
            "meta.stat.batch",
            "stats/s",
            true,
            stat.0,
            Some(("stat on the same file system", stat.1)),
            requests(stat.2),
        );
        let collections = || vec![("collections".to_owned(), total as u64)];
        add("meta.search.indexed", "matches/s", true, matches, None, collections());
        add("meta.search.first", "ms to the first match", false, find, None, collections());
        add(
            "meta.search.scan",
            "collections/s",
            true,
            scan.0,
            Some(("readdir and stat, one process", scan.1)),
            vec![("collections".into(), total as u64)],
        );
        add(
            "meta.delete.batch",
            "deletes/s",
            true,
            delete.0,
            Some(("unlink on the same file system", delete.1)),
            vec![],
        );
        for worker in ours.into_iter().chain(bare) {
            worker.end()?;
        }
        Ok(())
    }

    /// What a daemon takes in memory for collections with five keys, and how long the next one needs to begin.
    fn footprint(&mut self) -> Result<()> {
        let url = format!("{}-five", self.url);
        let done = self.footprint_of(&url);
        let _ = ioverbs::daemon_shutdown(&url);
        let (memory, seconds) = done?;
        let collections = vec![("collections".to_owned(), self.options.collections / BATCH * BATCH)];
        for (name, unit, value) in [(MEMORY, "MB", memory), (REOPEN, "s", seconds)] {
            let counters = collections.clone();
            let (name, values) = (name.to_owned(), vec![value]);
            self.add(Case { name, unit, higher_is_better: false, values, ceiling: None, counters });
        }
        Ok(())
    }

    fn footprint_of(&self, url: &str) -> Result<(f64, f64)> {
        let session = ioverbs::open(Some(url), ioverbs::SessionAttr::default())?;
        let attr = ioverbs::WorkspaceAttr { indexes: vec!["temperature".to_owned()], ..Default::default() };
        session.create_workspace(ioverbs::Name::new("bench")?, attr)?;
        let mut workers = [self.worker("meta", &[url, "bench", "0"])?];
        step(&mut workers, &format!("five {} m0", self.options.collections / BATCH * BATCH))?;
        let served = ioverbs::daemon_status(url)?.unwrap_or_default();
        let memory = resident(&served);
        workers.into_iter().try_for_each(Worker::end)?;
        drop(session);
        ioverbs::daemon_shutdown(url)?;
        ioverbs::seam::sleep(300_000_000);
        let from = crate::worker::clock();
        let session = ioverbs::open(Some(url), ioverbs::SessionAttr::default())?;
        session.load_workspace(ioverbs::Which::parse("bench")?)?;
        let seconds = crate::worker::clock() - from;
        let mut workers = [self.worker("meta", &[url, "bench", "0"])?];
        let (_, said) = step(&mut workers, "scan")?;
        let (found, made) = (said[0]["found"].as_u64(), self.options.collections / BATCH * BATCH);
        ensure!(found == Some(made), "{found:?} of {made} collections are there after the restart");
        workers.into_iter().try_for_each(Worker::end)?;
        Ok((memory, seconds))
    }
}

/// Milliseconds to the first match of an indexed search, medians of many, by run.
fn find(worker: &mut [Worker], runs: usize) -> Result<Vec<f64>> {
    (0..runs)
        .map(|run| {
            let mut times = Vec::new();
            for i in 0..50 {
                let (seconds, said) = step(worker, &format!("find {}", (run * 50 + i) % 1024))?;
                ensure!(said[0]["found"].as_u64().is_some_and(|n| n > 0), "an indexed search found nothing");
                times.push(seconds * 1e3);
            }
            Ok(crate::report::median(&times))
        })
        .collect()
}

/// Matches per second of indexed searches, each of which finds about one collection in a thousand.
fn matches(worker: &mut [Worker], runs: usize) -> Result<Vec<f64>> {
    (0..runs)
        .map(|run| {
            let (mut found, mut spent) = (0, 0.0);
            for i in 0..20 {
                let (seconds, said) = step(worker, &format!("match {}", (run * 20 + i) * 7 % 1024))?;
                found += said[0]["found"].as_u64().unwrap_or(0);
                spent += seconds;
            }
            Ok(found as f64 / spent)
        })
        .collect()
}

fn pairs_delete(ours: &mut [Worker], bare: &mut [Worker], each: u64, runs: usize) -> Result<(Vec<f64>, Vec<f64>)> {
    let (mut a, mut b) = (Vec::new(), Vec::new());
    for run in 0..runs {
        let order = format!("delete {each} b{run}");
        a.push(2.0 * each as f64 / step(ours, &order)?.0);
        b.push(2.0 * each as f64 / step(bare, &order)?.0);
    }
    Ok((a, b))
}

/// The daemon's process.
fn pid(status: &[(String, u64)]) -> Option<u64> {
    status.iter().find(|(k, _)| k == "pid").map(|(_, v)| *v)
}

/// Resident memory of the daemon, in MB.
fn resident(status: &[(String, u64)]) -> f64 {
    let pid = pid(status).unwrap_or(0);
    let text = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("VmRSS:"));
    let kib: f64 = line.and_then(|l| l.trim().trim_end_matches(" kB").trim().parse().ok()).unwrap_or(f64::NAN);
    kib / 1e3
}
