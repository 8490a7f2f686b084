//! The bytes of an exported handle. They come back from a program, and so are never trusted.
//!
//! ```text
//! "iovpass" 1 | kind u32 | process u32 | expires i64 | workspace 16 | object 16 | url u16+bytes | token u16+bytes | hash u64
//! ```
//! Numbers are little-endian. The hash finds damage, not forgery: within one process there is nothing to gain by it.

use ioverbs::{Error, Result, Uuid};

use crate::abi::kind;

const MAGIC: [u8; 8] = *b"iovpass\x01";
/// Longest passport: more than any URL and token need.
const MAX: usize = 8 << 10;

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Passport {
    pub(super) kind: u32,
    pub(super) process: u32,
    /// On the clock that all processes of this boot share.
    pub(super) expires_ns: i64,
    pub(super) workspace: Uuid,
    pub(super) object: Uuid,
    pub(super) url: String,
    pub(super) token: Vec<u8>,
}

/// FNV-1a.
fn hash(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |h, b| (h ^ *b as u64).wrapping_mul(0x100_0000_01b3))
}

fn damaged() -> Error {
    Error::invalid("these are not the bytes of an exported handle, or not all of them")
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, n: usize) -> Result<&'a [u8]> {
        let (taken, left) = self.0.split_at_checked(n).ok_or_else(damaged)?;
        self.0 = left;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N]> {
        self.take(N)?.try_into().map_err(|_| damaged())
    }

    fn counted(&mut self) -> Result<&'a [u8]> {
        let n = u16::from_le_bytes(self.array()?);
        self.take(n as usize)
    }
}

impl Passport {
    pub(super) fn to_bytes(&self) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.extend(self.kind.to_le_bytes());
        out.extend(self.process.to_le_bytes());
        out.extend(self.expires_ns.to_le_bytes());
        out.extend(self.workspace.0);
        out.extend(self.object.0);
        for counted in [self.url.as_bytes(), &self.token] {
            // URLs and tokens are far shorter; a longer one would be cut and found damaged.
            let len = counted.len().min(u16::MAX as usize);
            out.extend((len as u16).to_le_bytes());
            out.extend(&counted[..len]);
        }
        out.extend(hash(&out).to_le_bytes());
        out
    }

    pub(super) fn from_bytes(bytes: &[u8]) -> Result<Passport> {
        if bytes.len() > MAX {
            return Err(damaged());
        }
        let mut r = Reader(bytes);
        if r.array()? != MAGIC {
            return Err(damaged());
        }
        let kind = u32::from_le_bytes(r.array()?);
        let process = u32::from_le_bytes(r.array()?);
        let expires_ns = i64::from_le_bytes(r.array()?);
        let (workspace, object) = (Uuid(r.array()?), Uuid(r.array()?));
        let url = std::str::from_utf8(r.counted()?).map_err(|_| damaged())?.to_owned();
        let token = r.counted()?.to_vec();
        let covered = &bytes[..bytes.len() - r.0.len()];
        if u64::from_le_bytes(r.array()?) != hash(covered) || !r.0.is_empty() {
            return Err(damaged());
        }
        if !(kind::SESSION..=kind::COLLECTION).contains(&kind) {
            return Err(damaged());
        }
        Ok(Passport { kind, process, expires_ns, workspace, object, url, token })
    }
}
