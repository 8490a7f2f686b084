//! Whether a daemon's certificate is believed.

use std::sync::Arc;

use iov_types::{Error, Result};
use rustls::{
    CertificateError, DigitallySignedStruct, OtherError, RootCertStore, SignatureScheme,
    client::{
        WebPkiServerVerifier,
        danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier},
    },
    crypto::CryptoProvider,
    pki_types::{CertificateDer, ServerName, UnixTime},
};

use crate::tcp::Host;

/// The certificates that are believed.
#[derive(Debug)]
pub(super) struct Trusted {
    /// These themselves, whatever host and time they name.
    pinned: Vec<CertificateDer<'static>>,
    /// Those that these have signed, for one of `names`; `None`: none of them signs.
    roots: Option<Arc<WebPkiServerVerifier>>,
    names: Vec<ServerName<'static>>,
    provider: Arc<CryptoProvider>,
}

/// The name of a host as certificates have it.
pub(super) fn name_of(host: &Host) -> Option<ServerName<'static>> {
    // Which interface leads to an address is no part of it.
    let name = host.name.split('%').next().unwrap_or_default();
    ServerName::try_from(name.to_owned()).ok()
}

fn verifier(roots: RootCertStore, provider: &Arc<CryptoProvider>) -> Result<Option<Arc<WebPkiServerVerifier>>> {
    if roots.is_empty() {
        return Ok(None);
    }
    WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider.clone())
        .build()
        .map(Some)
        .map_err(|e| Error::invalid(format!("certificates that cannot be used: {e}")))
}

impl Trusted {
    /// These, and those that they have signed.
    pub(super) fn certificates(
        pinned: Vec<CertificateDer<'static>>,
        hosts: &[Host],
        provider: Arc<CryptoProvider>,
    ) -> Result<Trusted> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(pinned.iter().cloned());
        let roots = verifier(roots, &provider)?;
        Ok(Trusted { pinned, roots, names: hosts.iter().filter_map(name_of).collect(), provider })
    }

    /// Those that the system trusts.
    pub(super) fn system(hosts: &[Host], provider: Arc<CryptoProvider>) -> Result<Trusted> {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        let roots = verifier(roots, &provider)?;
        if roots.is_none() {
            return Err(Error::not_found(
                "this system has no certificates that it trusts (package ca-certificates): name a file, as ?tls=FILE",
            ));
        }
        Ok(Trusted { pinned: Vec::new(), roots, names: hosts.iter().filter_map(name_of).collect(), provider })
    }
}

impl ServerCertVerifier for Trusted {
    fn verify_server_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        ocsp_response: &[u8],
        now: UnixTime,
    ) -> std::result::Result<ServerCertVerified, rustls::Error> {
        if self.pinned.iter().any(|pinned| pinned == end_entity) {
            return Ok(ServerCertVerified::assertion());
        }
        let Some(roots) = &self.roots else { return Err(CertificateError::UnknownIssuer.into()) };
        // The hosts of a URL are one store. Addresses of which its daemon has told stand for them too.
        let mut failed = CertificateError::Other(OtherError(Arc::new(Nameless))).into();
        for name in &self.names {
            match roots.verify_server_cert(end_entity, intermediates, name, ocsp_response, now) {
                Err(e) => failed = e,
                verified => return verified,
            }
        }
        Err(failed)
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        Err(rustls::Error::General("TLS 1.2 is not spoken".into()))
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> std::result::Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider.signature_verification_algorithms.supported_schemes()
    }
}

/// None of the hosts has a name that a certificate can have.
#[derive(Debug)]
struct Nameless;

impl std::fmt::Display for Nameless {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the host has no name that a certificate can have")
    }
}

impl std::error::Error for Nameless {}
