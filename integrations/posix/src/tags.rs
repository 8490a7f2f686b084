//! Metadata as directories: `by/experiment/nacelle` has what has the value `nacelle` under the key `experiment`, and
//! `by/experiment/nacelle/by/run/3` what of that has the value 3 under `run` (F-F2). Nothing can be changed there.
//!
//! What matches is shown as symbolic links to where it is. Names that several have end in `~` and a part of their identity. Values
//! are shown as extended attributes show them; what no name can be is written as `%` and two hexadecimal digits.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Arc, Mutex},
};

use ioverbs::{Uuid, Value, catalog::Entry, catalog::SearchSpec, seam};

use crate::{Errno, FileSystem, Outcome, directory::everything, fs::lock, xattr::bytes_of};

/// How long what was found holds, in nanoseconds: as long as a name; where finding it takes long, ten times as long as that.
const FRESH_NS: i64 = 1_000_000_000;
/// Most entries that are kept of what was found.
const KEPT: usize = 1 << 16;
/// Keys of ours, which say nothing to people.
const OURS: &str = "posix.";

/// Keys and their values, as they are shown.
type Chosen = Vec<(String, Vec<u8>)>;

/// A directory of the view.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum View {
    /// The keys that what was chosen so far has besides.
    Keys(Chosen),
    /// The values of a key.
    Values(Chosen, String),
    /// What has all that was chosen.
    Matches(Chosen),
}

/// An entry of such a directory.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Tag {
    /// A directory of the view.
    View(View),
    /// A symbolic link to what matches, and where it leads.
    Link(Uuid, Vec<u8>),
}

/// What was found, and until when it holds (monotonic clock).
type Found = (Arc<Vec<Entry>>, i64);

/// The view of a file system. May be used by many threads.
pub struct Tags {
    fs: FileSystem,
    /// Its name in the root.
    name: Vec<u8>,
    found: Mutex<HashMap<Chosen, Found>>,
    /// The links of what matched last, and until when they hold.
    links: Mutex<Option<(Chosen, Links, i64)>>,
}

/// The entries of a directory of what matches.
type Links = Arc<BTreeMap<Vec<u8>, Tag>>;

/// A value as a name; `None`: it is too long for one.
fn shown(value: &Value) -> Option<Vec<u8>> {
    let bytes = bytes_of(value);
    let dots = matches!(&bytes[..], b"." | b"..");
    let mut name = Vec::new();
    for byte in bytes {
        match byte {
            b'/' | b'%' | 0..=31 | 127 => name.extend(format!("%{byte:02X}").into_bytes()),
            b'.' if dots => name.extend(b"%2E"),
            _ => name.push(byte),
        }
    }
    if name.is_empty() {
        name.push(b'%');
    }
    (name.len() <= ioverbs::limits::NAME_BYTES).then_some(name)
}

/// The bytes that a name shows.
fn meant(name: &[u8]) -> Vec<u8> {
    if name == b"%" {
        return Vec::new();
    }
    let mut bytes = Vec::new();
    let mut rest = name;
    while let Some((first, behind)) = rest.split_first() {
        let digits = behind.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()).filter(|_| *first == b'%') {
            Some(byte) => (bytes, rest) = ([&bytes[..], &[byte]].concat(), &behind[2..]),
            None => {
                bytes.push(*first);
                rest = behind;
            }
        }
    }
    bytes
}

/// A key that a predicate and a name can say.
fn can_be_said(key: &str) -> bool {
    !key.starts_with(OURS)
        && !key.contains(['`', '/', '\\'])
        && !key.contains(char::is_control)
        && !matches!(key, "." | "..")
}

/// The values that a name may stand for.
fn values(name: &[u8]) -> Vec<Value> {
    let bytes = meant(name);
    let mut values = Vec::new();
    if let Ok(text) = std::str::from_utf8(&bytes) {
        values.push(Value::Str(text.to_owned()));
        values.extend(text.parse().map(Value::Bool));
        values.extend(text.parse().into_iter().flat_map(|number| [Value::I64(number), Value::Time(number)]));
        values.extend(text.parse().ok().filter(|number: &f64| !number.is_nan()).map(Value::F64));
    }
    values.push(Value::Bytes(bytes));
    values
}

fn metadata(entry: &Entry) -> &[(String, Value)] {
    entry.metadata.as_deref().unwrap_or_default()
}

fn has(entry: &Entry, (key, name): &(String, Vec<u8>)) -> bool {
    metadata(entry).iter().any(|(k, value)| k == key && shown(value).as_ref() == Some(name))
}

impl Tags {
    /// The view of a file system, under this name in its root.
    pub fn new(fs: FileSystem, name: &[u8]) -> Tags {
        Tags { fs, name: name.to_vec(), found: Mutex::default(), links: Mutex::default() }
    }

    /// Its name in the root.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Where it begins.
    pub fn root(&self) -> View {
        View::Keys(Vec::new())
    }

    /// What has all of these, with all its metadata.
    fn found(&self, chosen: &Chosen) -> Outcome<Arc<Vec<Entry>>> {
        let now_ns = seam::monotonic_ns();
        if let Some((found, until_ns)) = lock(&self.found).get(chosen)
            && now_ns < *until_ns
        {
            return Ok(found.clone());
        }
        let (mut all, mut params) = (Vec::new(), Vec::new());
        for (key, name) in chosen {
            let values = values(name);
            all.push(format!("({})", vec![format!("`{key}` = ?"); values.len()].join(" or ")));
            params.extend(values);
        }
        let predicate = (!all.is_empty()).then(|| all.join(" and "));
        let spec = SearchSpec { predicate, params, keys: vec!["*".to_owned()], ..everything() };
        let mut found = self.fs.search("find", &spec)?;
        // Other values may be equal to it, as 1 and 1.0 are.
        found.retain(|entry| entry.name.is_some() && chosen.iter().all(|one| has(entry, one)));
        let (found, end_ns) = (Arc::new(found), seam::monotonic_ns());
        let mut kept = lock(&self.found);
        kept.retain(|_, (_, until_ns)| end_ns < *until_ns);
        if kept.values().map(|(found, _)| found.len()).sum::<usize>() + found.len() <= KEPT {
            kept.insert(chosen.clone(), (found.clone(), end_ns + FRESH_NS.max(10 * (end_ns - now_ns))));
        }
        Ok(found)
    }

    fn keys(&self, chosen: &Chosen) -> Outcome<BTreeSet<String>> {
        let found = self.found(chosen)?;
        let keys = found.iter().flat_map(metadata).map(|(key, _)| key);
        Ok(keys.filter(|key| can_be_said(key) && chosen.iter().all(|(k, _)| k != *key)).cloned().collect())
    }

    /// The entries of a directory of the view, in order of their names. `NotFound`: nothing has what was chosen.
    pub fn entries(&self, view: &View) -> Outcome<BTreeMap<Vec<u8>, Tag>> {
        let entries: BTreeMap<Vec<u8>, Tag> = match view {
            View::Keys(chosen) => {
                let values = |key: String| (key.clone().into_bytes(), Tag::View(View::Values(chosen.clone(), key)));
                self.keys(chosen)?.into_iter().map(values).collect()
            }
            View::Values(chosen, key) => {
                let found = self.found(chosen)?;
                let of_key = found.iter().flat_map(metadata).filter(|(k, _)| k == key);
                let matches = |name: Vec<u8>| {
                    let chosen = chosen.iter().cloned().chain([(key.clone(), name.clone())]).collect();
                    (name, Tag::View(View::Matches(chosen)))
                };
                of_key.filter_map(|(_, value)| shown(value)).map(matches).collect()
            }
            View::Matches(chosen) => self.matches(chosen)?,
        };
        // Before anything has metadata there is a view all the same.
        match entries.is_empty() && *view != self.root() {
            true => Err(Errno::ENOENT),
            false => Ok(entries),
        }
    }

    /// The entries of what matches, as they were a moment ago at most: a program looks at one after the other.
    fn links(&self, chosen: &Chosen) -> Outcome<Links> {
        let now_ns = seam::monotonic_ns();
        if let Some((of, links, until_ns)) = &*lock(&self.links)
            && of == chosen
            && now_ns < *until_ns
        {
            return Ok(links.clone());
        }
        let links = Arc::new(self.matches(chosen)?);
        let end_ns = seam::monotonic_ns();
        let until_ns = end_ns + FRESH_NS.max(10 * (end_ns - now_ns));
        *lock(&self.links) = Some((chosen.clone(), links.clone(), until_ns));
        Ok(links)
    }

    fn matches(&self, chosen: &Chosen) -> Outcome<BTreeMap<Vec<u8>, Tag>> {
        let found = self.found(chosen)?;
        let mut named: BTreeMap<&[u8], Vec<&Entry>> = BTreeMap::new();
        for entry in found.iter() {
            named.entry(entry.name.as_ref().map_or(&[], |name| name.as_bytes())).or_default().push(entry);
        }
        let mut paths = HashMap::from([(Uuid::NIL, Some(Vec::new()))]);
        // By the name of the view, a key, and a value each.
        let up = b"../".repeat(3 * chosen.len());
        let mut entries = BTreeMap::new();
        for (name, those) in named {
            let alone = those.len() == 1 && name != self.name;
            for entry in those {
                let Some(group) = self.path(entry.group, &mut paths)? else { continue };
                let shown = if alone { name.to_vec() } else { apart(name, entry.uuid) };
                entries.insert(shown, Tag::Link(entry.uuid, [&up, &group, name].concat()));
            }
        }
        if !self.keys(chosen)?.is_empty() {
            entries.insert(self.name.clone(), Tag::View(View::Keys(chosen.clone())));
        }
        Ok(entries)
    }

    /// The path of a group, with a slash behind it; `None`: it has none any more.
    fn path(&self, group: Uuid, known: &mut HashMap<Uuid, Option<Vec<u8>>>) -> Outcome<Option<Vec<u8>>> {
        let (mut at, mut way) = (group, Vec::new());
        // Groups are moved while somebody looks: nobody's path is so long.
        while !known.contains_key(&at) && way.len() <= ioverbs::limits::GROUP_DEPTH {
            let predicate = Some("iov.uuid = ?".to_owned());
            let spec = SearchSpec { predicate, params: vec![Value::Str(at.to_string())], limit: 1, ..everything() };
            let Some(Entry { group, name: Some(name), .. }) = self.fs.search("find", &spec)?.pop() else {
                known.insert(at, None);
                break;
            };
            way.push((at, name));
            at = group;
        }
        let mut path = known.get(&at).cloned().flatten();
        for (uuid, name) in way.into_iter().rev() {
            path = path.map(|path| [&path[..], name.as_bytes(), b"/"].concat());
            known.insert(uuid, path.clone());
        }
        Ok(path)
    }

    /// An entry by its name.
    pub fn find(&self, view: &View, name: &[u8]) -> Outcome<Tag> {
        let below = |chosen: &Chosen, key: &str| {
            let chosen = chosen.iter().cloned().chain([(key.to_owned(), name.to_vec())]).collect();
            Tag::View(View::Matches(chosen))
        };
        match view {
            // It need not be listed with all others: that may take long.
            View::Values(chosen, key) => match below(chosen, key) {
                Tag::View(View::Matches(all)) if self.found(&all)?.is_empty() => Err(Errno::ENOENT),
                tag => Ok(tag),
            },
            View::Matches(chosen) => self.links(chosen)?.get(name).cloned().ok_or(Errno::ENOENT),
            View::Keys(_) => self.entries(view)?.remove(name).ok_or(Errno::ENOENT),
        }
    }
}

/// A name that several have, of one of them.
fn apart(name: &[u8], uuid: Uuid) -> Vec<u8> {
    let (end, room) =
        (format!("~{}", &format!("{:032x}", u128::from_be_bytes(uuid.0))[20..]), ioverbs::limits::NAME_BYTES);
    [&name[..name.len().min(room - end.len())], end.as_bytes()].concat()
}

#[cfg(test)]
mod tests;
