//! Verifies the API server's certificate as Go's clients do: by the CA certificates that a program was given, or
//! because it is one of these certificates itself.

use std::fmt;
use std::sync::Arc;

use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::server::ParsedCertificate;
use rustls::{CertificateError, DigitallySignedStruct, Error, OtherError, RootCertStore, SignatureScheme};
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, ServerName, TrustAnchor, UnixTime};
use tracing::{info, warn};
use x509_parser::prelude::{FromDer as _, X509Certificate};
use x509_parser::public_key::PublicKey;
use x509_parser::x509::X509Version;

/// Least bits of an RSA key in a chain. Shorter ones are refused by the library for signatures, too.
const RSA_BITS_MIN: usize = 2048;

/// Verifies the API server's certificate.
pub struct ServerCertificateVerifier {
    cas: Vec<Ca>,
    /// Every certificate that was given. Each is trusted as the server's own certificate.
    pins: Vec<CertificateDer<'static>>,
    algorithms: WebPkiSupportedAlgorithms,
}

/// A certificate that may sign others.
struct Ca {
    certificate: CertificateDer<'static>,
    /// The same certificate, as the library verifies chains by it.
    anchor: TrustAnchor<'static>,
    validity: ValidityPeriod,
}

/// The time in which a certificate is valid, in seconds since 1970.
#[derive(Clone, Copy)]
struct ValidityPeriod {
    begins: i64,
    ends: i64,
}

/// A reason why a certificate of the bundle cannot sign others, so it is trusted as the server's own
/// certificate alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
enum NotACa {
    /// It says that it is not a CA, as a server's own certificate does.
    #[error("it says that it is no CA")]
    Leaf,
    /// It is of version 3 and does not say whether it is a CA. Go's clients refuse it, too.
    #[error("it has no basic constraints, which say that it is a CA")]
    NoBasicConstraints,
    /// Its key must not sign certificates.
    #[error("its key usage does not allow it to sign certificates")]
    KeyUsage,
    /// The library cannot use it as a trust anchor.
    #[error("it cannot be used as a CA")]
    Unusable,
}

/// A certificate cannot be read at all.
#[derive(Debug, thiserror::Error)]
#[error("it is not a certificate that can be read")]
struct Unreadable;

/// No certificate of a bundle can be read, so no server can be verified.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0} has no CA certificate in PEM")]
pub struct BundleError(pub String);

/// A reason for refusing the server's certificate that the TLS library has no word for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ServerCertificateError {
    /// The CA that signed it has expired.
    #[error("the CA that signed the server's certificate has expired")]
    CaExpired,
    /// The CA that signed it is not valid yet.
    #[error("the CA that signed the server's certificate is not valid yet; check the clock of this host")]
    CaNotValidYet,
    /// A key of the chain is too short.
    #[error("a key in the server's chain is RSA of {0} bits; use {RSA_BITS_MIN} bits or more")]
    ShortKey(usize),
    /// The certificate may not be a server's.
    #[error("the server's certificate is not for servers, by its extended key usage")]
    NotForServers,
}

impl ServerCertificateVerifier {
    /// A verifier that trusts nothing yet.
    #[must_use]
    pub fn new(algorithms: WebPkiSupportedAlgorithms) -> Self {
        Self { cas: Vec::new(), pins: Vec::new(), algorithms }
    }

    /// Trusts every certificate of the PEM bundle that can be read, which is at `source`. One that cannot be
    /// read is skipped, as Go's clients do, because a bundle may hold certificates of many years.
    ///
    /// # Errors
    /// [`BundleError`] if nothing is trusted.
    pub fn trust_bundle(&mut self, pem: &[u8], source: &str) -> Result<(), BundleError> {
        for (index, certificate) in CertificateDer::pem_slice_iter(pem).enumerate() {
            let number = index + 1;
            let Ok(certificate) = certificate else {
                warn!(
                    bundle = source,
                    number, "a certificate of the API server's CA bundle is not PEM and is skipped"
                );
                continue;
            };
            match self.trust(certificate) {
                Ok(Ok(())) => {}
                // Most likely it was given for that.
                Ok(Err(NotACa::Leaf)) => {
                    info!(
                        bundle = source,
                        number,
                        "a certificate of the API server's CA bundle is trusted as that server's own alone"
                    );
                }
                Ok(Err(why)) => {
                    warn!(bundle = source, number, %why, "a certificate of the API server's CA bundle is not trusted as a CA");
                }
                Err(why) => {
                    warn!(bundle = source, number, %why, "a certificate of the API server's CA bundle is skipped");
                }
            }
        }
        if self.pins.is_empty() { Err(BundleError(source.to_owned())) } else { Ok(()) }
    }

    /// Trusts a certificate of the bundle: as a CA if it is one, and as the server's own in any case.
    fn trust(&mut self, certificate: CertificateDer<'static>) -> Result<Result<(), NotACa>, Unreadable> {
        let (rest, parsed) = X509Certificate::from_der(&certificate).map_err(|_| Unreadable)?;
        if !rest.is_empty() {
            return Err(Unreadable);
        }
        let validity = ValidityPeriod::of(&parsed);
        let as_ca = check_ca(&parsed)
            .and_then(|()| trust_anchor(&certificate).ok_or(NotACa::Unusable))
            .map(|anchor| self.cas.push(Ca { certificate: certificate.clone(), anchor, validity }));
        self.pins.push(certificate);
        Ok(as_ca)
    }

    fn verify_pinned(&self, shown: &CertificateDer<'_>, now: UnixTime) -> Result<(), Error> {
        let (_, parsed) = X509Certificate::from_der(shown).map_err(|_| CertificateError::BadEncoding)?;
        match ValidityPeriod::of(&parsed).at(now) {
            Ok(()) => {}
            Err(NotNow::Ended) => return Err(CertificateError::Expired.into()),
            Err(NotNow::NotBegun) => return Err(CertificateError::NotValidYet.into()),
        }
        let usage = parsed.extended_key_usage().map_err(|_| CertificateError::BadEncoding)?;
        if usage.is_some_and(|usage| !(usage.value.any || usage.value.server_auth)) {
            return Err(other(ServerCertificateError::NotForServers));
        }
        Ok(())
    }

    fn verify_chain(
        &self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let valid = self.cas.iter().filter(|ca| ca.validity.at(now).is_ok());
        let Err(error) = self.verify_by(valid, leaf, shown, now) else {
            return Ok(());
        };
        // The chain may end at a CA that is not valid now.
        for (why, refused) in [
            (NotNow::Ended, ServerCertificateError::CaExpired),
            (NotNow::NotBegun, ServerCertificateError::CaNotValidYet),
        ] {
            let invalid = self.cas.iter().filter(|ca| ca.validity.at(now) == Err(why));
            if self.verify_by(invalid, leaf, shown, now).is_ok() {
                return Err(other(refused));
            }
        }
        let mut chain = shown.iter().chain(self.cas.iter().map(|ca| &ca.certificate));
        let is_signature = matches!(error, Error::InvalidCertificate(CertificateError::BadSignature));
        match chain.find_map(short_rsa_key) {
            Some(bits) if is_signature => Err(other(ServerCertificateError::ShortKey(bits))),
            Some(_) | None => Err(error),
        }
    }

    fn verify_by<'a>(
        &self,
        cas: impl Iterator<Item = &'a Ca>,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), Error> {
        let roots: RootCertStore = cas.map(|ca| ca.anchor.clone()).collect();
        let leaf = ParsedCertificate::try_from(leaf)?;
        verify_server_cert_signed_by_trust_anchor(&leaf, &roots, shown, now, self.algorithms.all)
    }
}

impl ServerCertVerifier for ServerCertificateVerifier {
    fn verify_server_cert(
        &self,
        leaf: &CertificateDer<'_>,
        shown: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        if let Some(bits) = short_rsa_key(leaf) {
            return Err(other(ServerCertificateError::ShortKey(bits)));
        }
        if self.pins.iter().any(|pin| pin == leaf) {
            self.verify_pinned(leaf, now)?;
        } else {
            self.verify_chain(leaf, shown, now)?;
        }
        verify_server_name(&ParsedCertificate::try_from(leaf)?, name)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls12_signature(message, certificate, signature, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        verify_tls13_signature(message, certificate, signature, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl fmt::Debug for ServerCertificateVerifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerCertificateVerifier")
            .field("cas", &self.cas.len())
            .field("pins", &self.pins.len())
            .finish_non_exhaustive()
    }
}

/// A time outside of a certificate's validity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum NotNow {
    NotBegun,
    Ended,
}

impl ValidityPeriod {
    fn of(certificate: &X509Certificate<'_>) -> Self {
        let validity = certificate.validity();
        Self { begins: validity.not_before.timestamp(), ends: validity.not_after.timestamp() }
    }

    fn at(self, now: UnixTime) -> Result<(), NotNow> {
        let now = i64::try_from(now.as_secs()).unwrap_or(i64::MAX);
        if now < self.begins {
            Err(NotNow::NotBegun)
        } else if now > self.ends {
            Err(NotNow::Ended)
        } else {
            Ok(())
        }
    }
}

/// Checks whether a certificate may sign others, as Go's `CheckSignatureFrom` does. A root of version 1 has no
/// extensions, and may.
fn check_ca(certificate: &X509Certificate<'_>) -> Result<(), NotACa> {
    match certificate.basic_constraints() {
        Ok(Some(constraints)) if constraints.value.ca => {}
        Ok(Some(_)) => return Err(NotACa::Leaf),
        Ok(None) if certificate.version() != X509Version::V3 => {}
        Ok(None) => return Err(NotACa::NoBasicConstraints),
        Err(_) => return Err(NotACa::Unusable),
    }
    match certificate.key_usage() {
        Ok(Some(usage)) if !usage.value.key_cert_sign() => Err(NotACa::KeyUsage),
        Ok(_) => Ok(()),
        Err(_) => Err(NotACa::Unusable),
    }
}

/// The part of a CA's certificate by which chains are verified. `None` if the library cannot use it.
fn trust_anchor(certificate: &CertificateDer<'_>) -> Option<TrustAnchor<'static>> {
    let mut store = RootCertStore::empty();
    store.add(certificate.clone()).ok()?;
    store.roots.pop()
}

/// The bits of a certificate's key, if it is an RSA key that is too short.
fn short_rsa_key(certificate: &CertificateDer<'_>) -> Option<usize> {
    let (_, parsed) = X509Certificate::from_der(certificate).ok()?;
    match parsed.public_key().parsed() {
        Ok(PublicKey::RSA(key)) => Some(key.key_size()).filter(|bits| *bits < RSA_BITS_MIN),
        Ok(_) | Err(_) => None,
    }
}

fn other(error: ServerCertificateError) -> Error {
    CertificateError::Other(OtherError(Arc::new(error))).into()
}

#[cfg(test)]
mod tests;
