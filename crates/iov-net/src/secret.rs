//! The secret of a store that is reached over a network, and the proof that a side has it (A2). The secret itself is never
//! sent, logged or shown.
//!
//! Each side names random bytes; each proves itself by a MAC (BLAKE3, keyed by what is derived from the secret) over both and
//! all that the client said of itself, so that a proof is good for nothing else. The client goes first: who only connects
//! learns nothing to try secrets against. Over TLS the key is of that one connection ([`Secret::within`]).

use std::{
    fmt,
    fs::OpenOptions,
    io::{Read, Write},
    os::unix::fs::{MetadataExt, OpenOptionsExt},
    path::Path,
};

use iov_store::seam;
use iov_types::{Clause, Error, Result};
use iov_wire::{Wire, messages::Hello};

/// Fewest bytes of a secret: shorter ones can be found by trying.
const LEAST: usize = 32;
/// Most bytes that are read.
const MOST: u64 = 4096;
/// What keys are derived for; never used for anything else.
const PURPOSE: &str = "IOVerbs 2026-11 proof of a store's secret between client and daemon";

/// Random bytes of one side.
pub type Nonce = [u8; 32];

/// Which side proves itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Side {
    /// The one that connects.
    Client,
    /// The daemon.
    Server,
}

/// What both sides of a connection over a network have.
#[derive(Clone)]
pub struct Secret([u8; 32]);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(…)")
    }
}

/// Fresh random bytes.
pub fn nonce() -> Nonce {
    let mut nonce = [0; 32];
    seam::random_bytes(&mut nonce);
    nonce
}

impl Secret {
    /// The key of a secret.
    pub fn new(secret: &[u8]) -> Result<Secret> {
        let secret = secret.trim_ascii();
        if secret.len() < LEAST {
            return Err(Error::invalid(format!(
                "a secret has {LEAST} bytes at least, and this one has {}: copy the file that the store's daemon made, or \
                 make one with: head -c 32 /dev/urandom | base64",
                secret.len()
            )));
        }
        Ok(Secret(blake3::derive_key(PURPOSE, secret)))
    }

    /// Reads a secret from a file that nobody else may read.
    pub fn load(path: &Path) -> Result<Secret> {
        let at = |e: Error| e.context(format!("the secret {}", path.display()));
        let file = OpenOptions::new().read(true).open(path).map_err(|e| at(Error::from(e)))?;
        let facts = file.metadata().map_err(|e| at(Error::from(e)))?;
        if facts.mode() & 0o077 != 0 {
            return Err(Error::denied(format!(
                "the secret {} can be read by others: chmod 600 it, and make a new one if somebody may have",
                path.display()
            ))
            .with_clause(Clause::A2));
        }
        let mut secret = Vec::new();
        file.take(MOST).read_to_end(&mut secret).map_err(|e| at(Error::from(e)))?;
        Secret::new(&secret).map_err(at)
    }

    /// Makes a new one in a file, unless there is one.
    pub fn make(path: &Path) -> Result<()> {
        let mut text = String::new();
        for byte in nonce() {
            text.push_str(&format!("{byte:02x}"));
        }
        text.push('\n');
        if path.exists() {
            return Ok(());
        }
        // Under another name until it is whole: a part of one would be taken for one.
        let new = path.with_extension(format!("new.{}", std::process::id()));
        let written = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
        let written = written.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
        let named = written.and_then(|()| match std::fs::hard_link(&new, path) {
            Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => Ok(()),
            named => named,
        });
        let _ = std::fs::remove_file(&new);
        named.map_err(|e| Error::from(e).context(format!("the secret {} cannot be made", path.display())))
    }

    /// The same for one connection only, of which nobody but its two ends knows something: who stands between two connections
    /// cannot hand proofs from one to the other. `None`: there is nothing that only they know.
    pub fn within(&self, exported: Option<&[u8; 32]>) -> Secret {
        let Some(exported) = exported else { return self.clone() };
        let mut mac = blake3::Hasher::new_keyed(&self.0);
        // No proof begins so.
        mac.update(b"connection");
        mac.update(&(exported.len() as u64).to_le_bytes());
        mac.update(exported);
        Secret(*mac.finalize().as_bytes())
    }

    /// What a side sends to prove that it has the secret. `hello` is what began the connection.
    pub fn proof(&self, side: Side, hello: &Hello, theirs: &[u8]) -> [u8; 32] {
        let mut said = Vec::new();
        hello.encode(&mut said);
        let mut mac = blake3::Hasher::new_keyed(&self.0);
        // Each of a length that is told, so that no two tellings look alike.
        mac.update(match side {
            Side::Client => b"client",
            Side::Server => b"server",
        });
        for part in [theirs, &said] {
            mac.update(&(part.len() as u64).to_le_bytes());
            mac.update(part);
        }
        *mac.finalize().as_bytes()
    }

    /// Hides 32 bytes from those who have not the secret, or shows them again. Each nonce is for one message only.
    pub fn mask(&self, nonce: &Nonce, bytes: &[u8; 32]) -> [u8; 32] {
        let mut mac = blake3::Hasher::new_keyed(&self.0);
        // No proof begins so.
        mac.update(b"mask");
        mac.update(nonce);
        let mut masked = *mac.finalize().as_bytes();
        masked.iter_mut().zip(bytes).for_each(|(mask, byte)| *mask ^= byte);
        masked
    }

    /// Whether a proof is right; it takes the same time whatever is wrong with it.
    pub fn fits(&self, proof: &[u8], side: Side, hello: &Hello, theirs: &[u8]) -> bool {
        let right = blake3::Hash::from_bytes(self.proof(side, hello, theirs));
        blake3::Hash::from_slice(proof).is_ok_and(|given| given == right)
    }
}

#[cfg(test)]
mod tests;
