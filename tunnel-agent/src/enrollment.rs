//! How this agent comes by its certificate, and by the next one: its own key, a token once or its pod's ServiceAccount, then
//! proof of the key it has.

mod call;
mod clock;
mod kept;
mod pinned;
mod span;
mod token;
mod workload;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::{Scope, StateDir, chain};
use proto::ClusterId;
use proto::backoff::Backoff;
use proto::enrollment::{
    AttestRequest, AttestResponse, ChallengeRequest, ChallengeResponse, Credential, EnrollRequest,
    EnrollResponse, RenewRequest, RenewResponse, Workload as Shown,
};
use proto::spiffe::AgentId;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::lookup_host;
use tokio::time::sleep;
use tracing::{info, warn};
use transport::Way;
use transport::tls::TlsError;
use trust::bundle::{Anchors, BundleError};
use trust::proof::{NONCE_BYTES, Newcomer, Proof, Purpose};
use trust::{Role, Serial};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::apiserver::ApiServer;
use crate::config::{Config, EnrollAt, Proxies};
use crate::identity::{Identity, IdentityError};
use crate::metrics;
use crate::servers::Servers;
use call::{CallError, Line};
use kept::{Kept, new_key, spki};
use pinned::Pinned;
use span::Span;
use token::{TokenFile, Unread};
use workload::{Issuer, NoIssuer, Workload};

pub use clock::Clock;
pub use kept::KeptError;

/// Largest file with a token of the enrollment door's.
const TOKEN_BYTES_MAX: u64 = 1024;

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
    /// Of these two, one is there.
    token: Option<Arc<TokenFile>>,
    workload: Option<Workload>,
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
    #[error(transparent)]
    Token(Unread),
    #[error(
        "the pod's ServiceAccount cannot be shown: mount a projected token of it, with the audience {1} and expirationSeconds 600"
    )]
    ServiceAccount(#[source] Unread, String),
    #[error(
        "the API server does not tell who issues its tokens: let this ServiceAccount read that, as the ClusterRole \
         system:service-account-issuer-discovery does, which Kubernetes binds to every ServiceAccount"
    )]
    Issuer(#[from] NoIssuer),
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
    #[error("the enrollment door gave no nonce")]
    NoNonce,
    #[error("the new certificate cannot be shown")]
    NotShown(#[source] TlsError),
    #[error(transparent)]
    Kept(#[from] KeptError),
}

impl Enrollment {
    /// What the state directory has of an earlier enrollment, or a new key; `api_server` vouches for the cluster's pods. Blocks.
    ///
    /// # Errors
    /// [`KeptError`].
    pub fn open(
        config: &Config,
        at: EnrollAt,
        state: StateDir,
        api_server: ApiServer,
    ) -> Result<Self, KeptError> {
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
            token: at.token_file.clone().map(|path| Arc::new(TokenFile::at(path, TOKEN_BYTES_MAX))),
            workload: at.service_account_token_file.clone().map(|path| Workload::new(path, api_server)),
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
                None => self.0.join(scope).await.and_then(|()| self.0.identity()),
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
    /// Asks for the first certificate: as a further pod where the cluster knows of its pods, else with the token.
    async fn join(&self, scope: &Scope) -> Result<(), NotIssued> {
        let mut line = self.line(Vec::new(), scope).await?;
        let Some(workload) = &self.workload else { return self.enroll(&mut line, None).await };
        match self.attested(&mut line, workload).await {
            Ok(credential) => self.take_first(credential),
            Err(NotIssued::Call(error)) if error.is_not_set_up() => {
                // Another one's, or no token at all: what the door has said is then what is to be done.
                match &self.token {
                    Some(token) if token::read(token).await.is_ok_and(|token| !token.is_empty()) => {
                        self.enroll(&mut line, Some(workload)).await
                    }
                    Some(_) | None => Err(error.into()),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Enrolls with the token, and shows by what further pods are to be known.
    async fn enroll(&self, line: &mut Line, workload: Option<&Workload>) -> Result<(), NotIssued> {
        let token = match &self.token {
            Some(token) => token::read(token).await.map_err(NotIssued::Token)?,
            None => return Err(NotIssued::Nothing),
        };
        let workload = match workload {
            Some(workload) => {
                let Issuer { name, keys } = workload.issuer().await?;
                let service_account_token = self.service_account_token(workload).await?;
                Some(Shown { service_account_token, issuer: name, issuer_keys: keys })
            }
            None => None,
        };
        let certificate_request = request(&self.kept().key)?;
        let cluster = self.cluster.to_string();
        let asked = EnrollRequest { token, cluster, certificate_request, workload };
        let EnrollResponse { credential, workload_recorded } = line.ask("Enroll", &asked).await?;
        self.take_first(credential.ok_or(NotIssued::Nothing)?)?;
        if workload_recorded {
            info!("this agent was enrolled; further pods of its ServiceAccount need no token");
        } else {
            info!(
                "this agent was enrolled; further pods of this cluster need a token each, because nothing is recorded of its \
                 ServiceAccount: set enrollment.serviceAccountTokenFile in a pod"
            );
        }
        Ok(())
    }

    /// Proves to be a pod of the cluster's agents, by its ServiceAccount's token and the key that asks.
    async fn attested(&self, line: &mut Line, workload: &Workload) -> Result<Credential, NotIssued> {
        let token = self.service_account_token(workload).await?;
        let ChallengeResponse { nonce } = line.ask("Challenge", &ChallengeRequest {}).await?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| NotIssued::NoNonce)?;
        let asked = {
            let kept = self.kept();
            let key = kept.asking().ok_or(NotIssued::Nothing)?;
            let spki = spki(key);
            let said = Newcomer { exporter: &line.exporter, nonce: &nonce, token: &token, spki: &spki };
            AttestRequest {
                cluster: self.cluster.to_string(),
                certificate_request: request(key)?,
                nonce: nonce.to_vec(),
                proof: said.sign(key).ok_or(NotIssued::Nothing)?,
                service_account_token: token,
            }
        };
        let AttestResponse { credential } = line.ask("Attest", &asked).await?;
        info!("this pod has proved itself by its ServiceAccount");
        credential.ok_or(NotIssued::Nothing)
    }

    async fn service_account_token(&self, workload: &Workload) -> Result<String, NotIssued> {
        let audience = || proto::enrollment::audience(&self.trust_domain, &self.cluster);
        workload.token().await.map_err(|error| NotIssued::ServiceAccount(error, audience()))
    }

    /// Writes down the first certificate, and whom to trust from now on.
    fn take_first(&self, credential: Credential) -> Result<(), NotIssued> {
        let Credential { chain, trust_bundle } = credential;
        let domain = self.trust_domain.parse().map_err(|_| NotIssued::Nothing)?;
        let bundle = Anchors::new(domain).and_pin(self.at.pin).accept(&trust_bundle, None)?;
        let roots = bundle.map_or_else(Vec::new, |bundle| bundle.roots(Role::Server).to_vec());
        self.take(chain, roots)
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
        let asked = self.renewal(&line, self.issuer_keys().await)?;
        let credential = match (line.ask("Renew", &asked).await, &self.workload) {
            (Ok(RenewResponse { credential }), _) => credential.ok_or(NotIssued::Nothing)?,
            // It was off for too long, or its key was copied and replaced: the pod is still the pod.
            (Err(error), Some(workload)) if error.is_refusal() => {
                warn!(error = %chain(&error), "this certificate is not renewed; the pod proves itself anew");
                self.attested(&mut line, workload).await?
            }
            (Err(error), _) => return Err(error.into()),
        };
        let Credential { chain, trust_bundle } = credential;
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

    /// The keys of the cluster's issuer as they are now, which may be new; none where that cannot be told.
    async fn issuer_keys(&self) -> Vec<u8> {
        let Some(workload) = &self.workload else { return Vec::new() };
        workload.issuer_keys().await.unwrap_or_else(|error| {
            warn!(error = %chain(&error), "the keys of this cluster's issuer are not known, and are not told to the server");
            Vec::new()
        })
    }

    fn renewal(&self, line: &Line, issuer_keys: Vec<u8>) -> Result<RenewRequest, NotIssued> {
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
            issuer_keys,
        })
    }

    /// Writes down what the door gave, if it fits.
    fn take(&self, chain: Vec<Vec<u8>>, server_roots: Vec<CertificateDer<'static>>) -> Result<(), NotIssued> {
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
        let span = Span::of(&chain).ok_or(NotIssued::Nothing)?;
        let key = {
            let kept = self.kept();
            kept.asking().map(KeyPair::serialize_der).ok_or(NotIssued::Nothing)?
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
