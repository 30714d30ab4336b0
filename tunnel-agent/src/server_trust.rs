//! The agent's trust in its servers: the roots of its configuration, or those of the newest trust bundle that
//! they have signed.
//!
//! So roots are exchanged without touching a site. The old root signs a bundle that contains the new one, the
//! agent stores the bundle, and the old root can be retired.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::SystemTime;

use daemon::{StateDir, StateError, StateFile};
use proto::wire::Extension;
use rcgen::KeyPair;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use transport::DialTls;
use transport::tls::{ExpectedPeer, ExpectedServers, Material, TlsError};
use trust::bundle::{Anchors, BUNDLE_BYTES_MAX, BundleError, TrustBundle};
use trust::names::{NotATrustDomain, TrustDomain};
use trust::proof::{EXPORTER_BYTES, Proof, Purpose};
use trust::{OutsideValidity, Pin, Role, Serial};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The file in the state directory with the newest bundle, after the mark of the anchors that led to it.
const BUNDLE_FILE: StateFile = StateFile::TrustBundle;

/// Length of that mark, in bytes.
const MARK_BYTES: usize = 32;

/// The trust in the agent's servers, and the certificate that it shows them. Clones share it.
#[derive(Clone)]
pub struct ServerTrust(Arc<SharedTrust>);

struct SharedTrust {
    expected: ExpectedServers,
    /// The clock by which certificates are verified.
    clock: Arc<dyn TimeProvider>,
    state: StateDir,
    current: Mutex<CurrentTrust>,
    /// Counts replacements of the agent's certificate.
    replacements: watch::Sender<u64>,
}

struct CurrentTrust {
    /// The roots of the configuration.
    anchors: Anchors,
    /// The agent's own certificate, and intermediates after it.
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    bundle: Option<TrustBundle>,
    /// The roots of the bundle, or else those of the configuration.
    roots: Vec<CertificateDer<'static>>,
    tls: DialTls,
}

/// No server can be dialed.
#[derive(Debug, thiserror::Error)]
pub enum ServerTrustError {
    /// The configured trust domain is not valid.
    #[error("trustDomain is not a trust domain")]
    Domain(#[from] NotATrustDomain),
    /// The stored bundle cannot be read.
    #[error(transparent)]
    State(#[from] StateError),
    /// The roots or the agent's own certificate cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// A trust bundle was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum TrustBundleError {
    /// Its signature, its version, or its form is not valid.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// It could not be stored, so the next start would not know it.
    #[error("the trust bundle could not be stored")]
    State(#[from] StateError),
    /// Its roots cannot be used.
    #[error("the trust bundle's roots cannot be used")]
    Tls(#[from] TlsError),
}

impl ServerTrust {
    /// Trusts servers below `roots`, or below those of the bundle that was stored in `state` because of the
    /// same `roots`. The agent shows them `chain`.
    ///
    /// # Errors
    /// [`ServerTrustError`] names the cause.
    pub fn new(
        (chain, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
        roots: &[CertificateDer<'static>],
        expected: ExpectedServers,
        state: StateDir,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, ServerTrustError> {
        let domain: TrustDomain = expected.trust_domain.parse()?;
        let anchors = Anchors::new(domain).and_roots(roots);
        let bundle = stored_bundle(&state, &anchors)?;
        let roots = bundle.as_ref().map_or(roots, |bundle| bundle.roots(Role::Server)).to_vec();
        let tls = tls(&chain, &key, roots.clone(), &expected, &clock)?;
        let current = Mutex::new(CurrentTrust { anchors, chain, key, bundle, roots, tls });
        Ok(Self(Arc::new(SharedTrust {
            expected,
            clock,
            state,
            current,
            replacements: watch::Sender::new(0),
        })))
    }

    /// The TLS configuration of the next dial of any server, by its name.
    #[must_use]
    pub fn tls(&self) -> DialTls {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).tls.clone()
    }

    /// The TLS configuration of the next dial of the server with this ID, whatever name or address it is dialed by. Without an ID,
    /// the same as [`tls`](Self::tls).
    ///
    /// # Errors
    /// `TlsError`.
    pub fn tls_for(&self, server_id: Option<&str>) -> Result<DialTls, TlsError> {
        let Some(server_id) = server_id else { return Ok(self.tls()) };
        let trust_domain = self.0.expected.trust_domain.clone();
        let server = ExpectedPeer { trust_domain, server_id: server_id.to_owned() };
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (chain, key) = (current.chain.clone(), current.key.clone_key());
        let material = Material { chain, key, peer_roots: current.roots.clone() };
        drop(current);
        DialTls::for_server(material, server, Arc::clone(&self.0.clock))
    }

    /// Returns true if the configuration allows tunnels to the server with this ID.
    #[must_use]
    pub fn expects(&self, server_id: &str) -> bool {
        let ids = &self.0.expected.ids;
        ids.is_empty() || ids.iter().any(|expected| expected == server_id)
    }

    /// The roots to which servers' certificates have to chain now.
    #[must_use]
    pub fn roots(&self) -> Vec<CertificateDer<'static>> {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).roots.clone()
    }

    /// Shows another certificate of the agent's from now on.
    ///
    /// # Errors
    /// `TlsError`. The old certificate stays in use then.
    pub fn replace_certificate(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), TlsError> {
        let mut current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.tls = tls(&chain, &key, current.roots.clone(), &self.0.expected, &self.0.clock)?;
        (current.chain, current.key) = (chain, key);
        drop(current);
        self.0.replacements.send_modify(|times| *times += 1);
        Ok(())
    }

    /// Returns true if the agent shows this chain now.
    #[must_use]
    pub fn shows(&self, chain: &[CertificateDer<'_>]) -> bool {
        self.0.current.lock().unwrap_or_else(PoisonError::into_inner).chain == chain
    }

    /// The distance of the shown certificate from its validity at `now`; `None` while it is valid.
    #[must_use]
    pub fn outside_validity(&self, now: SystemTime) -> Option<OutsideValidity> {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        OutsideValidity::of_certificate(current.chain.first()?, now)
    }

    /// Trusts servers below other roots of the configuration from the next dial on, as after a restart: a bundle that the old
    /// ones have led to counts no more. Returns false if they are the same. Blocks.
    ///
    /// # Errors
    /// [`ServerTrustError`]. The old trust stays in use then.
    pub fn replace_roots(&self, roots: &[CertificateDer<'static>]) -> Result<bool, ServerTrustError> {
        let shared = &*self.0;
        let mut current = shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        let anchors = Anchors::new(shared.expected.trust_domain.parse()?).and_roots(roots);
        if anchors.mark() == current.anchors.mark() {
            return Ok(false);
        }
        let bundle = stored_bundle(&shared.state, &anchors)?;
        let roots = bundle.as_ref().map_or(roots, |bundle| bundle.roots(Role::Server)).to_vec();
        let tls = tls(&current.chain, &current.key, roots.clone(), &shared.expected, &shared.clock)?;
        (current.anchors, current.bundle, current.roots, current.tls) = (anchors, bundle, roots, tls);
        Ok(true)
    }

    /// Changes whenever the agent's certificate is replaced. Counts as changed at once if it ever was
    /// replaced.
    #[must_use]
    pub fn renewals(&self) -> watch::Receiver<u64> {
        let mut renewals = self.0.replacements.subscribe();
        if *renewals.borrow_and_update() > 0 {
            renewals.mark_changed();
        }
        renewals
    }

    /// Proves the current certificate on a tunnel that may have been opened with an earlier one.
    #[must_use]
    pub fn extension(&self, exporter: &[u8; EXPORTER_BYTES]) -> Option<Extension> {
        let current = self.0.current.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, leaf) = X509Certificate::from_der(current.chain.first()?).ok()?;
        let (serial, key) = (Serial::of(&leaf)?, KeyPair::try_from(&current.key).ok()?);
        let proof = Proof { purpose: Purpose::Extension, exporter, serial, spki: leaf.public_key().raw };
        Some(Extension { serial: serial.to_bytes().to_vec(), proof: proof.sign(&key)? })
    }

    /// Accepts the bundle that a server has sent: stores it, and uses it for dials from now on. Returns its
    /// version, or `None` if it is not newer. Blocks.
    ///
    /// # Errors
    /// [`TrustBundleError`]. The old trust stays in use then.
    pub fn accept_bundle(&self, bytes: &[u8]) -> Result<Option<u64>, TrustBundleError> {
        let shared = &*self.0;
        let mut current = shared.current.lock().unwrap_or_else(PoisonError::into_inner);
        // Only the current roots: one that a bundle has dropped signs no bundles any more.
        let anchors = current.anchors.replaced_by(&current.roots);
        let Some(bundle) = anchors.accept(bytes, current.bundle.as_ref())? else {
            return Ok(None);
        };
        let roots = bundle.roots(Role::Server).to_vec();
        let tls = tls(&current.chain, &current.key, roots.clone(), &shared.expected, &shared.clock)?;
        // Stored before it is used, so that a restart does not return to an older one.
        shared.state.write(BUNDLE_FILE, &[current.anchors.mark().as_bytes().as_slice(), bytes].concat())?;
        let version = bundle.version();
        (current.bundle, current.roots, current.tls) = (Some(bundle), roots, tls);
        Ok(Some(version))
    }
}

/// The stored bundle, unless other anchors have led to it: then the agent's configuration has changed.
fn stored_bundle(state: &StateDir, anchors: &Anchors) -> Result<Option<TrustBundle>, StateError> {
    // It was verified when it was accepted, and nobody else can write here.
    let parse = |bytes: &[u8]| {
        let (mark, bundle) = bytes.split_first_chunk::<MARK_BYTES>().ok_or(BundleError::Malformed)?;
        Ok::<_, BundleError>((Pin::from(*mark), TrustBundle::decode_unverified(bundle)?))
    };
    let bytes_max = (MARK_BYTES + BUNDLE_BYTES_MAX) as u64;
    let stored = state.read_or_replace(BUNDLE_FILE, bytes_max, parse)?;
    Ok(stored.filter(|(mark, _)| *mark == anchors.mark()).map(|(_, bundle)| bundle))
}

fn tls(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    roots: Vec<CertificateDer<'static>>,
    expected: &ExpectedServers,
    clock: &Arc<dyn TimeProvider>,
) -> Result<DialTls, TlsError> {
    let material = Material { chain: chain.to_vec(), key: key.clone_key(), peer_roots: roots };
    DialTls::with_clock(material, expected.clone(), Arc::clone(clock))
}

#[cfg(test)]
mod tests;
