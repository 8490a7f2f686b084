//! By which certificate a daemon is known over TLS: one that was made for it, or one of its own, which it makes when it first
//! needs it and which clients have a copy of.

use std::{
    fs::{self, OpenOptions},
    io::Write,
    os::{fd::OwnedFd, unix::fs::OpenOptionsExt},
    path::{Path, PathBuf},
};

use iov_net::{tcp::Host, tls::ServerTls};
use iov_types::{Error, Result};
use rcgen::{CertificateParams, DistinguishedName, DnType, KeyPair};

use crate::begin::inside;

/// Its own, in the store's directory.
const CERTIFICATE: &str = "tls.cert";
const KEY: &str = "tls.key";

/// Which certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Certificate {
    /// Its own.
    Own,
    /// A chain, the daemon's own first, and the key.
    Files {
        /// The file of the chain.
        chain: PathBuf,
        /// The file of the key.
        key: PathBuf,
    },
}

impl Certificate {
    /// Reads `CERTIFICATE,KEY` or `self`.
    pub(crate) fn parse(text: &str) -> std::result::Result<Certificate, String> {
        // A daemon in the background is not where it was started.
        let absolute = |path: &str| std::path::absolute(path).map_err(|e| format!("{path}: {e}"));
        match text.split(',').collect::<Vec<_>>()[..] {
            ["self"] => Ok(Certificate::Own),
            [chain, key] if !chain.is_empty() && !key.is_empty() => {
                Ok(Certificate::Files { chain: absolute(chain)?, key: absolute(key)? })
            }
            _ => Err("it is self, or the files of a certificate and of its key, with a comma between".into()),
        }
    }

    /// The file of the certificates.
    pub(crate) fn chain(&self, dir: &OwnedFd) -> PathBuf {
        match self {
            Certificate::Files { chain, .. } => chain.clone(),
            Certificate::Own => inside(dir, CERTIFICATE),
        }
    }

    /// Reads it; its own one is made, for these hosts, if there is none.
    pub(crate) fn load(&self, dir: &OwnedFd, hosts: &[Host]) -> Result<ServerTls> {
        match self {
            Certificate::Files { chain, key } => ServerTls::load(chain, key),
            Certificate::Own => {
                let (certificate, key) = (inside(dir, CERTIFICATE), inside(dir, KEY));
                if !(certificate.exists() && key.exists()) {
                    make(&certificate, &key, hosts)
                        .map_err(|e| e.context("the store's own certificate cannot be made"))?;
                }
                ServerTls::load(&certificate, &key)
            }
        }
    }
}

/// Makes both anew: one is good for nothing without the other.
fn make(certificate: &Path, key: &Path, hosts: &[Host]) -> Result<()> {
    let failed = |e: rcgen::Error| Error::internal(e.to_string());
    // Who has a copy of it looks at no name; these are for people.
    let names = hosts.iter().map(|host| host.name.split('%').next().unwrap_or_default().to_owned());
    let mut params = CertificateParams::new(names.collect::<Vec<_>>()).map_err(failed)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, "IOVerbs store");
    let pair = KeyPair::generate().map_err(failed)?;
    let made = params.self_signed(&pair).map_err(failed)?;
    match fs::remove_file(certificate) {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => return Err(Error::from(e)),
        _ => {}
    }
    // The certificate last: where it is, its key is too.
    write(key, &pair.serialize_pem())?;
    write(certificate, &made.pem())
}

/// Under another name until it is whole.
fn write(path: &Path, text: &str) -> Result<()> {
    let mut new = path.to_owned().into_os_string();
    new.push(".new");
    let file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new);
    let written = file.and_then(|mut file| file.write_all(text.as_bytes()).and_then(|()| file.sync_all()));
    written.and_then(|()| fs::rename(&new, path)).map_err(Error::from)
}

#[cfg(test)]
mod tests;
