//! Names of workspaces, collections and groups (O3), and "a name or a UUID" (rule 8 of the header).

use crate::{Clause, Error, Result, Uuid, limits, uuid};

/// 1 to 255 bytes without NUL and `/`, compared as bytes; not necessarily UTF-8.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Name(Box<[u8]>);

impl Name {
    /// Checks and takes a name.
    pub fn new(bytes: impl AsRef<[u8]>) -> Result<Name> {
        let b = bytes.as_ref();
        let wrong = |why: &str| {
            Error::invalid(format!("the name {:?} {why}", String::from_utf8_lossy(b))).with_clause(Clause::O3)
        };
        if b.is_empty() {
            return Err(wrong("is empty: a name has 1 to 255 bytes"));
        }
        if b.len() > limits::NAME_BYTES {
            return Err(wrong(&format!("has {} bytes: a name has 1 to 255", b.len())));
        }
        if b.contains(&0) || b.contains(&b'/') {
            return Err(wrong("contains NUL or '/'"));
        }
        if b.starts_with(uuid::PREFIX.as_bytes()) {
            return Err(wrong("begins with \"uuid:\", which only a UUID may"));
        }
        Ok(Name(b.into()))
    }

    /// The bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Display for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl std::fmt::Debug for Name {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?}", String::from_utf8_lossy(&self.0))
    }
}

/// How a call says which object it means.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Which {
    /// By name, in a group or among the workspaces.
    Name(Name),
    /// By UUID.
    Uuid(Uuid),
}

impl Which {
    /// `uuid:` + 36 characters is a UUID, all else a name.
    pub fn parse(text: impl AsRef<[u8]>) -> Result<Which> {
        let b = text.as_ref();
        if b.starts_with(uuid::PREFIX.as_bytes()) {
            let text = std::str::from_utf8(b).map_err(|_| Error::invalid("a UUID is ASCII text"))?;
            return Uuid::parse(text).map(Which::Uuid);
        }
        Name::new(b).map(Which::Name)
    }
}

impl std::fmt::Display for Which {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Which::Name(n) => write!(f, "{n:?}"),
            Which::Uuid(u) => write!(f, "{u}"),
        }
    }
}
