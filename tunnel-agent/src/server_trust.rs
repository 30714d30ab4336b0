//! Whom the agent takes for its servers: the roots of its configuration, and then those of the newest trust bundle to which
//! they have led.
//!
//! So roots are exchanged without touching a site: the old one signs a bundle that has the new one in it, the agent keeps
//! that, and the old one can go.

use std::sync::{Arc, Mutex, PoisonError};

use daemon::{StateDir, StateError};
use proto::wire::Extension;
use rcgen::KeyPair;
use rustls::time_provider::TimeProvider;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use tokio::sync::watch;
use transport::DialTls;
use transport::tls::{Material, MeantServers, TlsError};
use trust::bundle::{Anchors, BUNDLE_BYTES_MAX, BundleError, TrustBundle};
use trust::names::{NotATrustDomain, TrustDomain};
use trust::proof::{EXPORTER_BYTES, Proof, Purpose};
use trust::{Pin, Role, Serial};
use x509_parser::prelude::{FromDer as _, X509Certificate};

/// The file in the state directory that holds the newest bundle, behind the mark of the anchors that led to it.
const BUNDLE_FILE: &str = "trust.bundle";

/// Bytes of that mark.
const MARK_BYTES: usize = 32;

/// The agent's servers, as they are trusted at the moment.
#[derive(Clone)]
pub struct Servers(Arc<Inner>);

struct Inner {
    meant: MeantServers,
    /// By which their certificates are judged.
    clock: Arc<dyn TimeProvider>,
    /// The roots of the configuration.
    anchors: Anchors,
    state: StateDir,
    now: Mutex<Now>,
    /// How often the agent's certificate was exchanged.
    shown: watch::Sender<u64>,
}

struct Now {
    /// What the agent shows.
    chain: Vec<CertificateDer<'static>>,
    key: PrivateKeyDer<'static>,
    held: Option<TrustBundle>,
    /// The bundle's, or else the configuration's.
    roots: Vec<CertificateDer<'static>>,
    tls: DialTls,
}

/// Why nobody can be dialed.
#[derive(Debug, thiserror::Error)]
pub enum ServersError {
    /// The domain of the configuration.
    #[error("trustDomain is not a trust domain")]
    Domain(#[from] NotATrustDomain),
    /// The file that was kept.
    #[error(transparent)]
    State(#[from] StateError),
    /// The roots, or the agent's own certificate.
    #[error(transparent)]
    Tls(#[from] TlsError),
}

/// Why a bundle was not taken.
#[derive(Debug, thiserror::Error)]
pub enum NotLearned {
    /// Its signature, its version, or its form.
    #[error(transparent)]
    Bundle(#[from] BundleError),
    /// It could not be kept, so the next start would not know it.
    #[error("the trust bundle could not be kept")]
    State(#[from] StateError),
    /// Its roots are of no use.
    #[error("the trust bundle's roots cannot be used")]
    Tls(#[from] TlsError),
}

impl Servers {
    /// The servers below `roots`, or below those of the bundle that was kept in `state` because of the same `roots`. The agent
    /// shows them `chain`.
    ///
    /// # Errors
    /// [`ServersError`].
    pub fn new(
        (chain, key): (Vec<CertificateDer<'static>>, PrivateKeyDer<'static>),
        roots: &[CertificateDer<'static>],
        meant: MeantServers,
        state: StateDir,
        clock: Arc<dyn TimeProvider>,
    ) -> Result<Self, ServersError> {
        let domain: TrustDomain = meant.trust_domain.parse()?;
        let anchors = Anchors::new(domain).and_roots(roots);
        let held = kept(&state, &anchors)?;
        let roots = held.as_ref().map_or(roots, |bundle| bundle.roots(Role::Server)).to_vec();
        let tls = tls(&chain, &key, roots.clone(), &meant, &clock)?;
        let now = Mutex::new(Now { chain, key, held, roots, tls });
        Ok(Self(Arc::new(Inner { meant, clock, anchors, state, now, shown: watch::Sender::new(0) })))
    }

    /// What the next dial is made with.
    #[must_use]
    pub fn tls(&self) -> DialTls {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner).tls.clone()
    }

    /// The roots that servers' certificates must chain to at the moment.
    #[must_use]
    pub fn roots(&self) -> Vec<CertificateDer<'static>> {
        self.0.now.lock().unwrap_or_else(PoisonError::into_inner).roots.clone()
    }

    /// Shows another certificate of the agent's from now on.
    ///
    /// # Errors
    /// `TlsError`; everything is as before then.
    pub fn show(
        &self,
        chain: Vec<CertificateDer<'static>>,
        key: PrivateKeyDer<'static>,
    ) -> Result<(), TlsError> {
        let mut now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        now.tls = tls(&chain, &key, now.roots.clone(), &self.0.meant, &self.0.clock)?;
        (now.chain, now.key) = (chain, key);
        drop(now);
        self.0.shown.send_modify(|times| *times += 1);
        Ok(())
    }

    /// Is told whenever the agent has another certificate; has changed already, if it ever had.
    #[must_use]
    pub fn renewals(&self) -> watch::Receiver<u64> {
        let mut renewals = self.0.shown.subscribe();
        if *renewals.borrow_and_update() > 0 {
            renewals.mark_changed();
        }
        renewals
    }

    /// What shows the certificate of the moment on a tunnel that may have been opened with an earlier one.
    #[must_use]
    pub fn extension(&self, exporter: &[u8; EXPORTER_BYTES]) -> Option<Extension> {
        let now = self.0.now.lock().unwrap_or_else(PoisonError::into_inner);
        let (_, leaf) = X509Certificate::from_der(now.chain.first()?).ok()?;
        let (serial, key) = (Serial::of(&leaf)?, KeyPair::try_from(&now.key).ok()?);
        let said = Proof { purpose: Purpose::Extension, exporter, serial, spki: leaf.public_key().raw };
        Some(Extension { serial: serial.to_bytes().to_vec(), proof: said.sign(&key)? })
    }

    /// Takes the bundle that a server has sent, keeps it, and dials by it from now on; its version, if it was news. Blocks.
    ///
    /// # Errors
    /// [`NotLearned`]; everything is as before then.
    pub fn learn(&self, bytes: &[u8]) -> Result<Option<u64>, NotLearned> {
        let inner = &*self.0;
        let mut now = inner.now.lock().unwrap_or_else(PoisonError::into_inner);
        // Only these: a root that a bundle has dropped vouches for nothing any more.
        let known = inner.anchors.replaced_by(&now.roots);
        let Some(bundle) = known.accept(bytes, now.held.as_ref())? else {
            return Ok(None);
        };
        let roots = bundle.roots(Role::Server).to_vec();
        let tls = tls(&now.chain, &now.key, roots.clone(), &inner.meant, &inner.clock)?;
        // Kept before it is used: a start must not fall back behind it.
        inner.state.write(BUNDLE_FILE, &[inner.anchors.mark().as_bytes().as_slice(), bytes].concat())?;
        let version = bundle.version();
        (now.held, now.roots, now.tls) = (Some(bundle), roots, tls);
        Ok(Some(version))
    }
}

/// The bundle that was kept, unless other anchors led to it: then somebody has configured the agent anew.
fn kept(state: &StateDir, anchors: &Anchors) -> Result<Option<TrustBundle>, StateError> {
    let Some(bytes) = state.read(BUNDLE_FILE, (MARK_BYTES + BUNDLE_BYTES_MAX) as u64)? else {
        return Ok(None);
    };
    let Some((mark, bundle)) = bytes.split_first_chunk::<MARK_BYTES>() else {
        return Ok(None);
    };
    // It was verified when it was taken, and nobody else can write here.
    let bundle = TrustBundle::look(bundle).ok();
    Ok(bundle.filter(|_| Pin::from(*mark) == anchors.mark()))
}

fn tls(
    chain: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    roots: Vec<CertificateDer<'static>>,
    meant: &MeantServers,
    clock: &Arc<dyn TimeProvider>,
) -> Result<DialTls, TlsError> {
    let material = Material { chain: chain.to_vec(), key: key.clone_key(), peer_roots: roots };
    DialTls::by_clock(material, meant.clone(), Arc::clone(clock))
}

#[cfg(test)]
mod tests;
