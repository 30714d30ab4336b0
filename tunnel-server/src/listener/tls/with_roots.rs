//! A server's certificate that is shown with its root, for clients that know only the root's pin.

use std::sync::{Arc, Mutex, PoisonError};

use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use rustls_pki_types::CertificateDer;
use tokio::sync::watch;
use transport::tls::SharedCertificate;
use trust::bundle::TrustBundle;
use trust::{Pin, Role};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The certificate of the server, and behind it the servers' roots of the trust bundle. Both may change.
#[derive(Debug)]
pub struct CertificateWithRoots {
    certificate: Arc<SharedCertificate>,
    trust_bundle: watch::Receiver<Arc<[u8]>>,
    shown: Mutex<Option<ShownChain>>,
}

/// The chain that was made of one certificate and one trust bundle.
#[derive(Debug)]
struct ShownChain {
    certificate: Arc<CertifiedKey>,
    bundle: Arc<[u8]>,
    chain: Arc<CertifiedKey>,
}

impl CertificateWithRoots {
    /// Shows `certificate` with the servers' roots of `trust_bundle`.
    #[must_use]
    pub fn new(certificate: Arc<SharedCertificate>, trust_bundle: watch::Receiver<Arc<[u8]>>) -> Arc<Self> {
        Arc::new(Self { certificate, trust_bundle, shown: Mutex::default() })
    }

    /// The pins of the roots that are shown now.
    #[must_use]
    pub fn pins(&self) -> Vec<String> {
        let bundle = Arc::clone(&self.trust_bundle.borrow());
        server_roots(&bundle).iter().filter_map(pin).map(|pin| pin.to_string()).collect()
    }

    fn current(&self) -> Arc<CertifiedKey> {
        let (certificate, bundle) = (self.certificate.current(), Arc::clone(&self.trust_bundle.borrow()));
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        let is_current = |shown: &ShownChain| {
            Arc::ptr_eq(&shown.certificate, &certificate) && Arc::ptr_eq(&shown.bundle, &bundle)
        };
        if let Some(shown) = shown.as_ref().filter(|shown| is_current(shown)) {
            return Arc::clone(&shown.chain);
        }
        let chain = Arc::new(CertifiedKey::new(
            certificate.cert.iter().cloned().chain(server_roots(&bundle)).collect(),
            Arc::clone(&certificate.key),
        ));
        *shown = Some(ShownChain { certificate, bundle, chain: Arc::clone(&chain) });
        chain
    }
}

impl ResolvesServerCert for CertificateWithRoots {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(self.current())
    }
}

/// The servers' roots of a bundle, which was verified when it was read.
fn server_roots(bundle: &[u8]) -> Vec<CertificateDer<'static>> {
    TrustBundle::decode_unverified(bundle)
        .map(|bundle| bundle.roots(Role::Server).to_vec())
        .unwrap_or_default()
}

/// The pin by which agents name a root before they trust it; `None` if it is no certificate.
fn pin(root: &CertificateDer<'_>) -> Option<Pin> {
    X509Certificate::from_der(root).ok().map(|(_, root)| Pin::of_certificate(&root))
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use rcgen::{CertificateParams, KeyPair};
    use rustls_pki_types::PrivateKeyDer;
    use trust::Root;

    use super::*;

    #[test]
    fn agents_name_a_root_by_its_key() {
        let root = root();
        assert_eq!(pin(root.certificate()), Some(root.pin()));
        assert_eq!(pin(&CertificateDer::from(vec![1, 2])), None);
    }

    #[test]
    fn a_replaced_certificate_and_bundle_are_shown_together_at_once() {
        let (first, second) = (root(), root());
        let (chain, key) = leaf_pair();
        let certificate = SharedCertificate::new(chain, key).unwrap();
        let (given, bundle) = watch::channel(encoded(&first));
        let shown = CertificateWithRoots::new(Arc::clone(&certificate), bundle);
        assert_eq!(shown.current().cert[1..], [first.certificate().clone()]);
        assert_eq!(shown.pins(), [first.pin().to_string()]);

        let (chain, key) = leaf_pair();
        certificate.replace(chain.clone(), key).unwrap();
        assert_eq!(shown.current().cert, [chain[0].clone(), first.certificate().clone()]);
        given.send_replace(encoded(&second));
        assert_eq!(shown.current().cert, [chain[0].clone(), second.certificate().clone()]);
        assert_eq!(shown.pins(), [second.pin().to_string()]);
        assert!(certificate.replace(chain.clone(), leaf_pair().1).is_err(), "the key of another certificate");
        assert_eq!(shown.current().cert[0], chain[0], "the last good one stays");
    }

    fn root() -> Root {
        Root::generate(Role::Server, "tombolo".parse().unwrap(), SystemTime::now()).unwrap()
    }

    fn encoded(root: &Root) -> Arc<[u8]> {
        let roots = [(Role::Server, root.certificate().clone())];
        let bundle = TrustBundle::new(1, "tombolo".parse().unwrap(), SystemTime::now(), roots).unwrap();
        bundle.sign(&[root]).unwrap().into()
    }

    fn leaf_pair() -> (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>) {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["gateway.example".to_owned()]).unwrap();
        let certificate = params.self_signed(&key).unwrap().der().clone();
        (vec![certificate], PrivateKeyDer::try_from(key.serialize_der()).unwrap())
    }
}
