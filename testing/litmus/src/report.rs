//! Verdicts: compared with the generated documents, or written into them.
//!
//! A document is a head and one table. The first columns name a row, the others hold verdicts; a verdict is a word, and
//! behind a colon what was counted. A test compares words, not counts.

use std::{
    collections::BTreeMap,
    fs::{File, read_to_string},
    path::PathBuf,
};

use crate::{at_member, in_shared_memory, is_striped, over_tcp};

/// Whether the tests shall take their time.
pub fn long() -> bool {
    std::env::var_os("IOV_TEST_LONG").is_some_and(|v| !v.is_empty() && v != "0")
}

/// A number of rounds: twenty times as many where tests shall take their time.
pub fn rounds(n: u64) -> u64 {
    if long() { n * 20 } else { n }
}

/// A generated document.
#[derive(Debug)]
pub struct Report {
    /// Its name under `docs/semantics`.
    pub file: &'static str,
    /// What stands above the table.
    pub head: &'static str,
    /// The columns that name a row.
    pub keys: &'static [&'static str],
    /// The columns with verdicts.
    pub columns: &'static [&'static str],
}

/// The name of a medium other than files, what its documents' names end with, and where it is seen.
fn of_medium() -> Option<(&'static str, &'static str, &'static str)> {
    match () {
        () if in_shared_memory() => Some(("shmem", "-shmem.md", "in shared memory")),
        () if over_tcp() => Some(("tcp", "-tcp.md", "over TCP")),
        () if is_striped() => Some(("striped", "-striped.md", "on three targets")),
        () if at_member() => Some(("member", "-member.md", "at another daemon than the catalog")),
        () => None,
    }
}

type Rows = BTreeMap<Vec<String>, Vec<String>>;

/// What must not change: counts vary, and so does whether the library could repeat an operation by itself.
fn word(verdict: &str) -> &str {
    verdict.split([':', '(']).next().unwrap_or("").trim()
}

impl Report {
    fn path(&self) -> PathBuf {
        let file = match of_medium() {
            Some((_, suffix, _)) => self.file.replace(".md", suffix),
            None => self.file.to_owned(),
        };
        PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/semantics")).join(file)
    }

    /// What stands above the table.
    fn head(&self) -> String {
        let head = self.head.trim();
        match of_medium() {
            Some((name, _, place)) => head.replacen("on `file:`", place, 1).replacen(
                "IOV_WRITE_DOCS=1",
                &format!("IOV_LITMUS_MEDIUM={name} IOV_WRITE_DOCS=1"),
                1,
            ),
            None => head.to_owned(),
        }
    }

    fn rows(&self) -> Rows {
        let text = read_to_string(self.path()).unwrap_or_default();
        let table = text.lines().filter(|l| l.starts_with('|')).skip(2);
        table
            .map(|line| {
                let mut cells: Vec<String> = line.trim_matches('|').split('|').map(|c| c.trim().to_owned()).collect();
                let verdicts = cells.split_off(self.keys.len().min(cells.len()));
                (cells, verdicts)
            })
            .collect()
    }

    fn write(&self, rows: &Rows) {
        let line = |cells: &mut dyn Iterator<Item = &str>| {
            let cells: Vec<&str> = cells.collect();
            format!("| {} |\n", cells.join(" | "))
        };
        let mut out = format!("{}\n\n", self.head());
        out.push_str(&line(&mut self.keys.iter().chain(self.columns).copied()));
        out.push_str(&line(&mut self.keys.iter().chain(self.columns).map(|_| "---")));
        let mut sorted: Vec<_> = rows.iter().collect();
        // T9 stands before T10.
        let number = |key: &[String]| {
            let digits: String = key[0].chars().skip(1).take_while(char::is_ascii_digit).collect();
            digits.parse::<u32>().unwrap_or(0)
        };
        sorted.sort_by_key(|(key, _)| (number(key), key.to_vec()));
        for (key, verdicts) in sorted {
            out.push_str(&line(&mut key.iter().chain(verdicts).map(String::as_str)));
        }
        std::fs::write(self.path(), out).expect("the document can be written");
    }

    /// Tells verdicts of one row, by column. Fails if the document says otherwise, unless `IOV_WRITE_DOCS=1`.
    pub fn tell(&self, key: &[&str], verdicts: &[(&str, String)]) {
        for (column, verdict) in verdicts {
            println!("{} / {column}: {verdict}", key.join(" / "));
        }
        let key: Vec<String> = key.iter().map(|k| (*k).to_owned()).collect();
        let column = |name: &str| self.columns.iter().position(|c| *c == name).expect("a column of the document");
        let _lock = lock();
        if writes() {
            let mut rows = self.rows();
            let row = rows.entry(key).or_insert_with(|| vec!["–".to_owned(); self.columns.len()]);
            row.resize(self.columns.len(), "–".to_owned());
            for (name, verdict) in verdicts {
                row[column(name)] = verdict.clone();
            }
            return self.write(&rows);
        }
        let rows = self.rows();
        let Some(row) = rows.get(&key) else {
            panic!("{} has no row {key:?}: run the tests with IOV_WRITE_DOCS=1", self.file)
        };
        for (name, verdict) in verdicts {
            let written = row.get(column(name)).map_or("", |v| word(v));
            assert_eq!(word(verdict), written, "{key:?}, {name}: {} says otherwise", self.file);
        }
    }

    /// Fails if the document has rows that no test tells; with `IOV_WRITE_DOCS=1` removes them. A row that is missing is
    /// found by the test that tells it.
    pub fn has_rows_of(&self, known: impl Fn(&[String]) -> bool) {
        let _lock = lock();
        let mut rows = self.rows();
        let before = rows.len();
        rows.retain(|key, _| known(key));
        if writes() && rows.len() != before {
            return self.write(&rows);
        }
        assert_eq!(rows.len(), before, "{} has rows that no test tells", self.file);
    }
}

fn writes() -> bool {
    std::env::var_os("IOV_WRITE_DOCS").is_some_and(|v| v == "1")
}

/// One test at a time reads and writes documents, also of several processes.
fn lock() -> File {
    let file = File::create(std::env::temp_dir().join("iov-litmus-documents.lock")).expect("a lock file");
    file.lock().expect("the lock");
    file
}
