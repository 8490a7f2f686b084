//! TLS over TCP, for networks where others can read or change packets (`docs/adr/0013-tls.md`).
//!
//! Version 1.3 only: what is exported from it is bound to both ends. Nothing is kept for later connections, and keys are never
//! logged or shown.

use std::{
    fmt, fs,
    io::Read,
    net::IpAddr,
    os::{fd::OwnedFd, unix::fs::MetadataExt},
    path::Path,
    sync::Arc,
    time::Duration,
};

use iov_store::seam;
use iov_types::{Clause, Error, Result};
use rustls::{
    CipherSuite, ClientConfig, ClientConnection, ServerConfig, ServerConnection,
    client::Resumption,
    crypto::{CryptoProvider, ring},
    pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime, pem::PemObject},
    time_provider::TimeProvider,
    version::TLS13,
};

use crate::{stream::Stream, tcp::Host};

mod channel;
mod trust;

pub use channel::{Channel, Exported};
use trust::Trusted;

/// Most bytes of a file of certificates, or a key.
const MOST: u64 = 1 << 20;

/// A daemon's certificate and key.
#[derive(Clone)]
pub struct ServerTls(Arc<ServerConfig>);

/// What a client needs to know whom it talks to.
#[derive(Clone)]
pub struct ClientTls(Arc<ClientConfig>);

impl fmt::Debug for ServerTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ServerTls(…)")
    }
}

impl fmt::Debug for ClientTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ClientTls(…)")
    }
}

/// The clock of certificates.
#[derive(Debug)]
struct Clock;

impl TimeProvider for Clock {
    fn current_time(&self) -> Option<UnixTime> {
        Some(UnixTime::since_unix_epoch(Duration::from_nanos(seam::now_ns().max(0) as u64)))
    }
}

fn provider() -> Arc<CryptoProvider> {
    let mut provider = ring::default_provider();
    // The fastest of those that are strong enough first; all implementations of TLS 1.3 have it.
    provider.cipher_suites.sort_by_key(|suite| suite.suite() != CipherSuite::TLS13_AES_128_GCM_SHA256);
    Arc::new(provider)
}

fn never(e: rustls::Error) -> Error {
    Error::internal(format!("TLS cannot be set up: {e}"))
}

fn load(what: &str, path: &Path) -> Result<(fs::File, Vec<u8>)> {
    let at = |e| Error::from(e).context(format!("the {what} {}", path.display()));
    let file = fs::File::open(path).map_err(at)?;
    let mut bytes = Vec::new();
    (&file).take(MOST).read_to_end(&mut bytes).map_err(at)?;
    Ok((file, bytes))
}

fn certificates(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let (_, bytes) = load("certificate", path)?;
    let all: std::result::Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&bytes).collect();
    match all {
        Ok(all) if !all.is_empty() => Ok(all),
        _ => Err(Error::invalid(format!(
            "{} holds no certificate: it is a file that begins with -----BEGIN CERTIFICATE-----",
            path.display()
        ))),
    }
}

impl ServerTls {
    /// Reads a chain of certificates, the daemon's own first, and its key, which nobody else may read.
    pub fn load(chain: &Path, key: &Path) -> Result<ServerTls> {
        let certificates = certificates(chain)?;
        let (file, bytes) = load("key", key)?;
        let facts = file.metadata().map_err(|e| Error::from(e).context(format!("the key {}", key.display())))?;
        if facts.mode() & 0o077 != 0 {
            return Err(Error::denied(format!(
                "the key {} can be read by others: chmod 600 it, and make a new one if somebody may have",
                key.display()
            ))
            .with_clause(Clause::A2));
        }
        // Why not is not told: it might tell of the key.
        let key_of = PrivateKeyDer::from_pem_slice(&bytes).map_err(|_| {
            Error::invalid(format!(
                "{} holds no key: it is a file that begins with -----BEGIN PRIVATE KEY-----, without a password",
                key.display()
            ))
        })?;
        let mut config = ServerConfig::builder_with_details(provider(), Arc::new(Clock))
            .with_protocol_versions(&[&TLS13])
            .map_err(never)?
            .with_no_client_auth()
            .with_single_cert(certificates, key_of)
            .map_err(|e| {
                let (chain, key) = (chain.display(), key.display());
                Error::invalid(format!("the certificate {chain} and the key {key} are of no use together: {e}"))
            })?;
        // A connection is made once and lasts: nothing is to be taken up again.
        config.send_tls13_tickets = 0;
        Ok(ServerTls(Arc::new(config)))
    }

    /// The daemon's side of a connection.
    pub fn accept(&self, fd: OwnedFd) -> Result<Stream> {
        let session = ServerConnection::new(self.0.clone()).map_err(never)?;
        Ok(Stream::Tls(Box::new(Channel::new(fd, session.into()))))
    }
}

impl ClientTls {
    /// Trusts the certificates of a file, and those that they have signed; `None`: whom the system trusts. A certificate that
    /// stands in the file is good for any host, any other one has to be for one of `hosts`.
    pub fn new(file: Option<&Path>, hosts: &[Host]) -> Result<ClientTls> {
        let trusted = match file {
            Some(file) => Trusted::certificates(certificates(file)?, hosts, provider())
                .map_err(|e| e.context(format!("the certificate {}", file.display())))?,
            None => Trusted::system(hosts, provider())?,
        };
        let mut config = ClientConfig::builder_with_details(provider(), Arc::new(Clock))
            .with_protocol_versions(&[&TLS13])
            .map_err(never)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(trusted))
            .with_no_client_auth();
        config.resumption = Resumption::disabled();
        Ok(ClientTls(Arc::new(config)))
    }

    /// The client's side of a connection with a host, at one of its addresses. Hands are not shaken yet.
    pub(crate) fn connect(&self, fd: OwnedFd, host: &Host, address: IpAddr) -> Result<Stream> {
        let name = trust::name_of(host).unwrap_or(ServerName::IpAddress(address.into()));
        let session = ClientConnection::new(self.0.clone(), name).map_err(never)?;
        Ok(Stream::Tls(Box::new(Channel::new(fd, session.into()))))
    }
}

#[cfg(test)]
mod tests;
