//! The roots of agents or of peers, which are replaced while listeners verify by them. Each handshake uses the newest ones, and running
//! connections go on.

use std::sync::{Arc, PoisonError, RwLock};
use std::time::SystemTime;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{DigitallySignedStruct, DistinguishedName, Error, RootCertStore, SignatureScheme};
use trust::{Intermediate, SignError};

use super::provider::provider;
use super::{ChainLengthVerifier, TlsError};

/// Requires a certificate that chains to the newest roots. Listeners share it.
///
/// It sends no names of authorities, because a name cannot outlive its roots here. An agent has one certificate, and shows it
/// whatever a server names.
#[derive(Debug)]
pub struct SharedRoots(RwLock<Arc<dyn ClientCertVerifier>>);

/// The reason why agents would be refused with what a signer issues.
#[derive(Debug, thiserror::Error)]
pub enum SignerNotAccepted {
    /// It issues no certificate for an agent.
    #[error(transparent)]
    Sign(SignError),
    /// Its certificates do not chain to the roots.
    #[error(transparent)]
    Verify(#[from] Error),
}

impl SharedRoots {
    /// Verifies certificates by these roots.
    ///
    /// # Errors
    /// [`TlsError`] if there is none, or one cannot be used.
    pub fn new(roots: Vec<CertificateDer<'static>>) -> Result<Arc<Self>, TlsError> {
        Ok(Arc::new(Self(RwLock::new(verifier(roots)?))))
    }

    /// Verifies by other roots from the next handshake on.
    ///
    /// # Errors
    /// [`TlsError`], as above. The old roots stay in force then.
    pub fn replace(&self, roots: Vec<CertificateDer<'static>>) -> Result<(), TlsError> {
        let verifier = verifier(roots)?;
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = verifier;
        Ok(())
    }

    /// Tries out whether what `signer` issues is accepted, by an agent's certificate for nobody.
    ///
    /// # Errors
    /// [`SignerNotAccepted`], with the reason.
    pub fn try_signer(&self, signer: &Intermediate) -> Result<(), SignerNotAccepted> {
        let issued = signer.sign_trial(SystemTime::now()).map_err(SignerNotAccepted::Sign)?;
        let (leaf, intermediates) = issued.chain.split_first().ok_or(Error::NoCertificatesPresented)?;
        self.verify_client_cert(leaf, intermediates, UnixTime::now())?;
        Ok(())
    }

    fn current(&self) -> Arc<dyn ClientCertVerifier> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn verifier(certificates: Vec<CertificateDer<'static>>) -> Result<Arc<dyn ClientCertVerifier>, TlsError> {
    let roots: Arc<RootCertStore> = Arc::new(super::roots(certificates)?);
    Ok(ChainLengthVerifier::wrap(WebPkiClientVerifier::builder_with_provider(roots, provider()).build()?))
}

impl ClientCertVerifier for SharedRoots {
    fn verify_client_cert(
        &self,
        end_entity: &CertificateDer<'_>,
        intermediates: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        self.current().verify_client_cert(end_entity, intermediates, now)
    }

    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        &[]
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls12_signature(message, certificate, signed)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.current().verify_tls13_signature(message, certificate, signed)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.current().supported_verify_schemes()
    }
}

#[cfg(test)]
mod tests {
    use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};

    use super::*;

    #[test]
    fn replaced_roots_verify_the_next_certificate_and_bad_ones_change_nothing() {
        let (old, new) = (Authority::new(), Authority::new());
        let roots = SharedRoots::new(vec![old.root.clone()]).unwrap();
        let accepts =
            |leaf: &CertificateDer<'_>| roots.verify_client_cert(leaf, &[], UnixTime::now()).is_ok();
        let (by_old, by_new) = (old.leaf(), new.leaf());
        assert_eq!((accepts(&by_old), accepts(&by_new)), (true, false));

        roots.replace(vec![old.root.clone(), new.root.clone()]).unwrap();
        assert_eq!((accepts(&by_old), accepts(&by_new)), (true, true));
        roots.replace(vec![new.root]).unwrap();
        assert_eq!((accepts(&by_old), accepts(&by_new)), (false, true));
        for bad in [Vec::new(), vec![CertificateDer::from(vec![1, 2])]] {
            assert!(roots.replace(bad).is_err());
        }
        assert_eq!((accepts(&by_old), accepts(&by_new)), (false, true));
    }

    struct Authority {
        issuer: Issuer<'static, KeyPair>,
        root: CertificateDer<'static>,
    }

    impl Authority {
        fn new() -> Self {
            let key = KeyPair::generate().unwrap();
            let mut params = CertificateParams::default();
            params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
            let root = params.self_signed(&key).unwrap().der().clone();
            Self { issuer: Issuer::new(params, key), root }
        }

        fn leaf(&self) -> CertificateDer<'static> {
            let mut params = CertificateParams::new(vec!["agent.test".to_owned()]).unwrap();
            params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
            params.signed_by(&KeyPair::generate().unwrap(), &self.issuer).unwrap().der().clone()
        }
    }
}
