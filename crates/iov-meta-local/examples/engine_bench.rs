//! Measures the engine: `cargo run --release -p iov-meta-local --example engine_bench -- [CREATES] [DIR] [THREADS]`.
//!
//! A create is a record of 250 bytes, a name and an entry of an index, with the check that the name is free; a batch has
//! 1,000. Making keys and values is not counted, except where it says so. CPU is of all threads.
#![forbid(unsafe_code)]

use std::{path::Path, process::exit};

use bytes::Bytes;
use iov_meta_local::{LocalStore, Options};
use iov_store::{Guard, KeyRange, MetadataStore, Txn, seam};

const BATCH: u64 = 1000;
const WORKSPACE: [u8; 16] = *b"workspace-uuid-1";
const PARENT: [u8; 16] = *b"parent-uuid-0001";
const INDEX: u32 = 7;
const RECORD: usize = 250;

fn mix(x: u64) -> u64 {
    let mut x = x.wrapping_add(0x9E37_79B9_7F4A_7C15);
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

fn uuid(i: u64) -> [u8; 16] {
    let mut uuid = [0; 16];
    uuid[..6].copy_from_slice(&(1_760_000_000_000 + i / BATCH).to_be_bytes()[2..]);
    uuid[6..8].copy_from_slice(&(0x7000 | (i % BATCH) as u16).to_be_bytes());
    uuid[8..].copy_from_slice(&((mix(i) >> 2) | (0x8 << 60)).to_be_bytes());
    uuid
}

fn record_key(i: u64) -> Vec<u8> {
    [b"R", &WORKSPACE[..], &uuid(i)].concat()
}

fn name_key(i: u64) -> Vec<u8> {
    [b"N", &PARENT[..], format!("{:016x}-{:07}", mix(i ^ 0xab_cdef), i % 10_000_000).as_bytes()].concat()
}

fn index_prefix() -> Vec<u8> {
    [b"I", &WORKSPACE[..], &INDEX.to_be_bytes()].concat()
}

fn index_key(i: u64) -> Vec<u8> {
    [&index_prefix()[..], &mix(i ^ 0x5555).to_be_bytes(), &uuid(i)].concat()
}

fn record(i: u64) -> Bytes {
    let mut value = [&uuid(i)[..], &PARENT, &name_key(i)[17..], &mix(i).to_le_bytes()].concat();
    value.resize(RECORD, b' ');
    value.into()
}

fn creates(range: std::ops::Range<u64>) -> Txn {
    let mut txn = Txn::default();
    for i in range {
        let name = name_key(i);
        txn.guards.push(Guard::Absent(name.clone()));
        txn.writes.push((record_key(i), Some(record(i))));
        txn.writes.push((name, Some(Bytes::copy_from_slice(&uuid(i)))));
        txn.writes.push((index_key(i), Some(Bytes::new())));
    }
    txn
}

fn deletes(range: std::ops::Range<u64>) -> Txn {
    let keys = range.flat_map(|i| [record_key(i), name_key(i), index_key(i)]);
    Txn { guards: vec![], writes: keys.map(|key| (key, None)).collect() }
}

/// Seconds of CPU of all threads.
fn cpu() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let after = stat.rsplit(')').next().unwrap_or("");
    let ticks = |n: usize| after.split_whitespace().nth(n).and_then(|t| t.parse::<f64>().ok()).unwrap_or(0.0);
    (ticks(11) + ticks(12)) / 100.0
}

fn rss_mb(what: &str) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find(|l| l.starts_with(name));
        line.and_then(|l| l.split_whitespace().nth(1)?.parse::<f64>().ok()).unwrap_or(0.0) / 1024.0
    };
    println!("{what}\trss_mb={:.0}\tpeak_mb={:.0}", field("VmRSS:"), field("VmHWM:"));
}

/// Time and CPU of what is timed, without what lies in between.
struct Clock {
    wall: f64,
    cpu: f64,
    worst: f64,
    /// CPU of making keys, which is not the engine's.
    own: f64,
    since: f64,
}

fn now() -> f64 {
    seam::monotonic_ns() as f64 / 1e9
}

impl Clock {
    fn start() -> Clock {
        Clock { wall: 0.0, cpu: 0.0, worst: 0.0, own: 0.0, since: cpu() }
    }

    fn time<T>(&mut self, body: impl FnOnce() -> T) -> T {
        let start = now();
        let value = body();
        let took = now() - start;
        self.wall += took;
        self.worst = self.worst.max(took);
        value
    }

    /// Runs something that only one thread does and that does not count.
    fn aside<T>(&mut self, body: impl FnOnce() -> T) -> T {
        let start = now();
        let value = body();
        self.own += now() - start;
        value
    }

    fn report(&mut self, what: &str, n: u64) {
        self.cpu = cpu() - self.since - self.own;
        println!(
            "{what}\tper_s={:.0}\tcpu_us={:.2}\twall_s={:.3}\tworst_ms={:.1}",
            n as f64 / self.wall,
            self.cpu * 1e6 / n as f64,
            self.wall,
            self.worst * 1e3
        );
    }
}

fn commit(store: &LocalStore, txn: Txn) {
    let commits = store.commit(vec![txn]).unwrap_or_else(|e| fail(&format!("{e:?}")));
    if let Err(e) = &commits[0] {
        fail(&format!("{e:?}"));
    }
}

fn fail(what: &str) -> ! {
    eprintln!("engine_bench: {what}");
    exit(1)
}

/// Waits until nothing is moved or merged any more.
fn settle(store: &LocalStore) {
    let mut before = (0, 0.0);
    loop {
        seam::sleep(300_000_000);
        let state = (store.stats().applied, cpu());
        if state.0 == before.0 && state.1 - before.1 < 0.02 {
            return;
        }
        before = state;
    }
}

fn create_all(store: &LocalStore, n: u64, durable: bool, what: &str) {
    let mut clock = Clock::start();
    for batch in 0..n / BATCH {
        let from = if durable { (1 << 40) + batch * BATCH } else { batch * BATCH };
        let txn = clock.aside(|| creates(from..from + BATCH));
        clock.time(|| {
            commit(store, txn);
            if durable && let Err(e) = store.persist() {
                fail(&format!("{e:?}"));
            }
        });
    }
    if !durable {
        rss_mb("after_creates");
    }
    settle(store);
    clock.report(what, n);
}

fn get_all(store: &LocalStore, n: u64, what: &str) {
    let mut clock = Clock::start();
    for batch in 0..n / BATCH {
        let keys = clock.aside(|| (0..BATCH).map(|j| record_key(mix(1 + batch * BATCH + j) % n)).collect::<Vec<_>>());
        let keys: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
        let found = clock.time(|| store.get(&keys));
        let found = found.unwrap_or_else(|e| fail(&format!("{e:?}")));
        if found.iter().any(|r| r.as_ref().is_none_or(|r| r.value.len() != RECORD)) {
            fail("a record is missing");
        }
    }
    clock.report(what, n / BATCH * BATCH);
}

fn get_by_name(store: &LocalStore, n: u64) {
    let mut clock = Clock::start();
    for batch in 0..n / BATCH {
        let keys = clock.aside(|| (0..BATCH).map(|j| name_key(mix(5 + batch * BATCH + j) % n)).collect::<Vec<_>>());
        let keys: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
        clock.time(|| {
            let names = store.get(&keys).unwrap_or_else(|e| fail(&format!("{e:?}")));
            let records: Vec<Vec<u8>> =
                names.iter().flatten().map(|r| [b"R", &WORKSPACE[..], &r.value].concat()).collect();
            let records: Vec<&[u8]> = records.iter().map(|k| &k[..]).collect();
            match store.get(&records) {
                Ok(found) if found.iter().flatten().count() == keys.len() => {}
                other => fail(&format!("{:?}", other.map(|f| f.len()))),
            }
        });
    }
    clock.report("get_name_then_record", n / BATCH * BATCH);
}

fn scan_all(store: &LocalStore, prefix: &[u8], n: u64, what: &str) {
    let mut clock = Clock::start();
    let (mut after, mut count) = (None::<Bytes>, 0);
    clock.time(|| {
        loop {
            let page = store.scan(&KeyRange::prefix(prefix), after.as_deref(), 4096);
            let page = page.unwrap_or_else(|e| fail(&format!("{e:?}")));
            let Some((last, _)) = page.last() else { break };
            count += page.len() as u64;
            after = Some(last.clone());
        }
    });
    if count != n {
        fail(&format!("a scan of {n} found {count}"));
    }
    clock.report(what, n);
}

fn first_match(store: &LocalStore, what: &str) {
    let mut times = Vec::new();
    for j in 0..5000 {
        let from = [&index_prefix()[..], &mix(j ^ 0x77).to_be_bytes()].concat();
        let range = KeyRange { from, to: KeyRange::prefix(&index_prefix()).to };
        let start = now();
        let found = store.scan(&range, None, 1).unwrap_or_else(|e| fail(&format!("{e:?}")));
        times.push((now() - start) * 1e6);
        std::hint::black_box(found);
    }
    times.sort_by(f64::total_cmp);
    println!("{what}\tp50_us={:.1}\tp99_us={:.1}", times[2500], times[4950]);
}

fn mixed(store: &LocalStore, n: u64) {
    let mut clock = Clock::start();
    let (mut high, mut low) = (n, 0);
    for batch in 0..n / BATCH {
        let (keys, txns) = clock.aside(|| {
            let live = high - low - BATCH;
            let keys: Vec<_> = (0..500).map(|j| record_key(low + BATCH + mix(batch * 500 + j) % live)).collect();
            (keys, vec![creates(high..high + 400), deletes(low..low + 100)])
        });
        let keys: Vec<&[u8]> = keys.iter().map(|k| &k[..]).collect();
        clock.time(|| {
            match store.get(&keys) {
                Ok(found) if found.iter().flatten().count() == keys.len() => {}
                other => fail(&format!("{:?}", other.map(|f| f.iter().flatten().count()))),
            }
            match store.commit(txns) {
                Ok(commits) if commits.iter().all(Result::is_ok) => {}
                other => fail(&format!("{other:?}")),
            }
        });
        (high, low) = (high + 400, low + 100);
    }
    settle(store);
    clock.report("mixed_50_40_10", n / BATCH * BATCH);
}

fn single(store: &LocalStore, n: u64) {
    let mut clock = Clock::start();
    for i in (1 << 41)..(1 << 41) + n {
        let txn = clock.aside(|| creates(i..i + 1));
        clock.time(|| commit(store, txn));
    }
    clock.report("creates_single", n);
}

fn open(dir: &Path, what: &str) -> LocalStore {
    let start = now();
    let store = LocalStore::open(dir, Options::default()).unwrap_or_else(|e| fail(&format!("{e:?}")));
    println!("{what}\ts={:.3}", now() - start);
    store
}

fn main() {
    let mut args = std::env::args().skip(1);
    let n = args.next().map_or(1_000_000, |n| n.parse().unwrap_or_else(|_| fail("CREATES is a number")));
    let dir = args.next().map_or_else(|| std::env::temp_dir().join("iov-engine-bench"), Into::into);
    if dir.exists() {
        fail(&format!("{} exists: name a directory that does not", dir.display()));
    }
    let store = open(&dir, "open_new");
    create_all(&store, n, false, "creates_committed");
    rss_mb("settled");
    get_all(&store, n, "gets_first");
    get_all(&store, n, "gets_hot");
    get_all(&store, n, "gets_hot");
    rss_mb("after_gets");
    get_by_name(&store, n);
    scan_all(&store, b"R", n, "scan_records");
    scan_all(&store, &index_prefix(), n, "scan_index");
    first_match(&store, "first_match");
    mixed(&store, n);
    rss_mb("after_mixed");
    create_all(&store, n / 5, true, "creates_durable");
    single(&store, n / 10);
    first_match(&store, "first_match_with_buffer");
    rss_mb("after_all");
    println!("bytes\tmib={:.0}\t{:?}", store.bytes() as f64 / 1048576.0, store.stats());
    // As after a kill: what is in the log is read again.
    let start = now();
    drop(store);
    println!("close\ts={:.3}", now() - start);
    let store = open(&dir, "reopen");
    drop(store);
    if let Err(e) = std::fs::remove_dir_all(&dir) {
        fail(&format!("{e}"));
    }
}
