//! How this agent comes by its certificate, and by the next one: its own key, a token once, then proof of the key it has.

mod call;
mod clock;
mod kept;
mod pinned;
mod span;
mod token;

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::{Scope, StateDir, chain};
use proto::ClusterId;
use proto::backoff::Backoff;
use proto::enrollment::{Credential, EnrollRequest, EnrollResponse, RenewRequest, RenewResponse};
use proto::spiffe::AgentId;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::lookup_host;
use tokio::time::sleep;
use tracing::{info, warn};
use transport::Way;
use transport::tls::TlsError;
use trust::bundle::{Anchors, BundleError};
use trust::proof::{Proof, Purpose};
use trust::{Role, Serial};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::config::{Config, EnrollAt, Proxies};
use crate::identity::{Identity, IdentityError};
use crate::metrics;
use crate::servers::Servers;
use call::{CallError, Line};
use kept::{Kept, new_key, spki};
use pinned::Pinned;
use span::Span;
use token::TokenFile;

pub use clock::Clock;
pub use kept::KeptError;

/// Waits between attempts in vain.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(120));

/// Waits are cut into pieces, so that a clock that jumps is noticed.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// The least time between two renewals: a clock that is far ahead of the server's finds every certificate old.
const RENEWED_EVERY_MIN: Duration = Duration::from_secs(10 * 60);

/// An agent that comes by its certificate itself. Clones are the same one.
#[derive(Clone)]
pub struct Enrollment(Arc<Inner>);

struct Inner {
    at: EnrollAt,
    token: Arc<TokenFile>,
    cluster: ClusterId,
    trust_domain: String,
    proxies: Proxies,
    state: StateDir,
    kept: Mutex<Kept>,
    clock: Clock,
}

/// Why there is no certificate, for now.
#[derive(Debug, thiserror::Error)]
enum NotIssued {
    #[error("cannot read the token in {}", .0.display())]
    Token(PathBuf, #[source] std::io::Error),
    #[error("{0} has no address")]
    NoAddress(String, #[source] Option<std::io::Error>),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("no certificate signing request could be made")]
    Request(#[source] rcgen::Error),
    #[error("the enrollment door gave what cannot be used")]
    NotUsable(#[source] IdentityError),
    #[error("the enrollment door gave no certificate")]
    Nothing,
    #[error("the enrollment door gave a trust bundle that is not to be trusted")]
    Bundle(#[from] BundleError),
    #[error("the new certificate cannot be shown")]
    NotShown(#[source] TlsError),
    #[error(transparent)]
    Kept(#[from] KeptError),
}

impl Enrollment {
    /// What the state directory has of an earlier enrollment, or a new key. Blocks.
    ///
    /// # Errors
    /// [`KeptError`].
    pub fn open(config: &Config, at: EnrollAt, state: StateDir) -> Result<Self, KeptError> {
        let kept = match Kept::read(&state)? {
            Some(kept) => kept,
            None => {
                let kept = Kept::new()?;
                // Before it is asked for: if the answer is lost, the same key asks again.
                kept.write(&state)?;
                kept
            }
        };
        // A time that a server has told: one that this machine's clock once had might be far ahead.
        let clock = Clock::from(Span::of(&kept.chain).map_or(0, |span| span.begins));
        Ok(Self(Arc::new(Inner {
            token: Arc::new(TokenFile::at(at.token_file.clone())),
            at,
            cluster: config.cluster.clone(),
            trust_domain: config.trust_domain.clone(),
            proxies: config.proxies.clone(),
            state,
            kept: Mutex::new(kept),
            clock,
        })))
    }

    /// The time by which certificates are judged.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.0.clock.clone()
    }

    /// The certificate that is there, expired or not; else a first one, however long it takes. Cancel-safe: what was received
    /// is written down.
    pub async fn identity(&self, scope: &Scope) -> Identity {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        loop {
            let got = match self.0.span() {
                Some(_) => self.0.identity(),
                None => self.0.enroll(scope).await.and_then(|()| self.0.identity()),
            };
            match got {
                Ok(identity) => return identity,
                Err(error) => in_vain(&error, &mut backoff).await,
            }
        }
    }

    /// Renews a certificate that has expired, however long it takes: nobody would be let in with it. Cancel-safe, as above.
    pub async fn renew_expired(&self, servers: &Servers, scope: &Scope) {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        while self.0.span().is_some_and(|span| self.0.clock.seconds() >= span.ends) {
            match self.0.renewed(servers, scope).await {
                // By whichever clock it holds or not, there is no better one.
                Ok(()) => return,
                Err(error) => in_vain(&error, &mut backoff).await,
            }
        }
    }

    /// Renews the certificate whenever two thirds of its life are over, and has it shown to `servers`, until it is dropped.
    pub async fn keep(self, servers: Servers, scope: Scope) {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let mut share = random();
        while let Some(span) = self.0.span() {
            let (due, now) = (span.due(share), self.0.clock.seconds());
            if now < due {
                sleep(Duration::from_secs(due - now).min(LOOK_EVERY)).await;
                continue;
            }
            match self.0.renewed(&servers, &scope).await {
                Ok(()) => {
                    backoff.reset();
                    share = random();
                    sleep(RENEWED_EVERY_MIN).await;
                }
                Err(error) => in_vain(&error, &mut backoff).await,
            }
        }
    }
}

async fn in_vain(error: &NotIssued, backoff: &mut Backoff) {
    let wait = backoff.next(random());
    warn!(error = %chain(error), again_in = ?wait, "this agent was given no certificate");
    sleep(wait).await;
}

impl Inner {
    /// Asks for the first certificate.
    async fn enroll(&self, scope: &Scope) -> Result<(), NotIssued> {
        let token = self.token().await?;
        let certificate_request = request(&self.kept().key)?;
        let mut line = self.line(Vec::new(), scope).await?;
        let asked = EnrollRequest { token, cluster: self.cluster.to_string(), certificate_request };
        let EnrollResponse { credential } = line.ask("Enroll", &asked).await?;
        let Credential { chain, trust_bundle } = credential.ok_or(NotIssued::Nothing)?;
        let domain = self.trust_domain.parse().map_err(|_| NotIssued::Nothing)?;
        let bundle = Anchors::new(domain).and_pin(self.at.pin).accept(&trust_bundle, None)?;
        let roots = bundle.map_or_else(Vec::new, |bundle| bundle.roots(Role::Server).to_vec());
        self.take(chain, roots)?;
        info!("this agent was enrolled");
        Ok(())
    }

    /// Asks for the next certificate, with a key that is written down first, and has it shown.
    async fn renewed(&self, servers: &Servers, scope: &Scope) -> Result<(), NotIssued> {
        self.change(|kept| {
            if kept.next.is_none() {
                kept.next = Some(new_key()?);
            }
            Ok(())
        })?;
        let mut line = self.line(servers.roots(), scope).await?;
        let asked = self.renewal(&line)?;
        let RenewResponse { credential } = line.ask("Renew", &asked).await?;
        let Credential { chain, trust_bundle } = credential.ok_or(NotIssued::Nothing)?;
        let roots = self.kept().server_roots.clone();
        self.take(chain, roots)?;
        if let Err(error) = servers.learn(&trust_bundle) {
            warn!(error = %daemon::chain(&error), "a trust bundle was not taken");
        }
        let Identity { chain, key, .. } = self.identity()?;
        metrics::certificates("agent", &chain[..chain.len().min(1)]);
        servers.show(chain, key).map_err(NotIssued::NotShown)?;
        info!("this agent's certificate was renewed");
        Ok(())
    }

    fn renewal(&self, line: &Line) -> Result<RenewRequest, NotIssued> {
        let kept = self.kept();
        let (agent, serial) = self.named(&kept.chain)?;
        let next = kept.next.as_ref().ok_or(NotIssued::Nothing)?;
        let spki = spki(next);
        let said = Proof { purpose: Purpose::Renewal, exporter: &line.exporter, serial, spki: &spki };
        Ok(RenewRequest {
            cluster: agent.cluster().to_string(),
            instance: agent.instance().to_owned(),
            serial: serial.to_bytes().to_vec(),
            certificate_request: request(next)?,
            proof: said.sign(&kept.key).ok_or(NotIssued::Nothing)?,
        })
    }

    /// Writes down what the door gave, if it fits.
    fn take(&self, chain: Vec<Vec<u8>>, server_roots: Vec<CertificateDer<'static>>) -> Result<(), NotIssued> {
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
        let span = Span::of(&chain).ok_or(NotIssued::Nothing)?;
        let key = {
            let kept = self.kept();
            let key = if kept.chain.is_empty() { Some(&kept.key) } else { kept.next.as_ref() };
            key.map(KeyPair::serialize_der).ok_or(NotIssued::Nothing)?
        };
        let key = PrivatePkcs8KeyDer::from(key).into();
        Identity::of(chain.clone(), key, server_roots.clone(), &self.cluster, &self.trust_domain)
            .map_err(NotIssued::NotUsable)?;
        self.change(move |kept| {
            (kept.chain, kept.server_roots) = (chain, server_roots);
            if let Some(next) = kept.next.take() {
                kept.key = next;
            }
            Ok(())
        })?;
        self.clock.raise(span.begins);
        Ok(())
    }

    fn identity(&self) -> Result<Identity, NotIssued> {
        let kept = self.kept();
        let (chain, key, roots) = (kept.chain.clone(), kept.tls_key(), kept.server_roots.clone());
        Identity::of(chain, key, roots, &self.cluster, &self.trust_domain).map_err(NotIssued::NotUsable)
    }

    fn named(&self, chain: &[CertificateDer<'_>]) -> Result<(AgentId, Serial), NotIssued> {
        let leaf = chain.first().and_then(|leaf| X509Certificate::from_der(leaf).ok());
        let (_, leaf) = leaf.ok_or(NotIssued::Nothing)?;
        let serial = Serial::of(&leaf).ok_or(NotIssued::Nothing)?;
        let agent = Identity::agent_of(&leaf, &self.cluster, &self.trust_domain);
        Ok((agent.map_err(NotIssued::NotUsable)?, serial))
    }

    /// A connection to the door, which must chain to one of `roots`, or to the pinned one where there is none.
    async fn line(&self, roots: Vec<CertificateDer<'static>>, scope: &Scope) -> Result<Line, NotIssued> {
        let server = &self.at.server;
        let way = match self.proxies.to(&server.host, server.port) {
            Some(proxy) => {
                Way::Through { proxy: proxy.clone(), host: server.host.clone(), port: server.port }
            }
            None => Way::Direct(self.address().await?),
        };
        let pinned = Pinned {
            pin: self.at.pin,
            roots,
            trust_domain: self.trust_domain.clone(),
            provider: transport::tls::provider(),
        };
        let name = self.at.server_name.as_ref().unwrap_or(&server.host);
        Ok(Line::open(&way, name, pinned, self.clock.clone(), scope).await?)
    }

    async fn address(&self) -> Result<SocketAddr, NotIssued> {
        let server = &self.at.server;
        let found = lookup_host((server.host.as_str(), server.port)).await;
        let mut found = found.map_err(|error| NotIssued::NoAddress(server.to_string(), Some(error)))?;
        found.next().ok_or_else(|| NotIssued::NoAddress(server.to_string(), None))
    }

    async fn token(&self) -> Result<String, NotIssued> {
        let token = Arc::clone(&self.token);
        let unread = |error| NotIssued::Token(self.token.path().to_owned(), error);
        let read = tokio::task::spawn_blocking(move || token.read()).await;
        read.map_err(|_| unread(std::io::ErrorKind::Interrupted.into()))?.map_err(unread)
    }

    fn span(&self) -> Option<Span> {
        Span::of(&self.kept().chain)
    }

    /// Changes what is kept, in memory and on disk.
    fn change(&self, act: impl FnOnce(&mut Kept) -> Result<(), KeptError>) -> Result<(), NotIssued> {
        let mut kept = self.kept();
        act(&mut kept)?;
        Ok(kept.write(&self.state)?)
    }

    fn kept(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn request(key: &KeyPair) -> Result<Vec<u8>, NotIssued> {
    let request = CertificateParams::default().serialize_request(key).map_err(NotIssued::Request)?;
    Ok(request.der().to_vec())
}

/// For jitter, where a generator that fails costs nothing but the jitter.
fn random() -> u64 {
    let mut bytes = [0; 8];
    let _ = aws_lc_rs::rand::fill(&mut bytes);
    u64::from_le_bytes(bytes)
}
