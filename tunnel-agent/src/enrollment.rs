//! Enrollment: the agent gets its first certificate by a token or its pod's ServiceAccount, and each next one
//! by the key of the last one.

mod grpc_client;
mod service_account;
mod state;
mod token_file;
mod validity;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use daemon::{Scope, StateDir, error_chain};
use proto::ClusterId;
use proto::backoff::Backoff;
use proto::enrollment::{
    AttestRequest, AttestResponse, ChallengeRequest, ChallengeResponse, Credential, EnrollRequest,
    EnrollResponse, RenewRequest, RenewResponse, Workload,
};
use proto::spiffe::AgentId;
use rcgen::{CertificateParams, KeyPair};
use rustls_pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use tokio::net::lookup_host;
use tokio::time::sleep;
use tracing::{info, warn};
use transport::DialPath;
use transport::tls::{PinnedVerifier, TlsError};
use trust::bundle::{Anchors, BundleError};
use trust::proof::{Attestation, NONCE_BYTES, Proof, Purpose};
use trust::{Role, Serial};
use x509_parser::prelude::{FromDer as _, X509Certificate};

use crate::apiserver::ApiServer;
use crate::clock::Clock;
use crate::config::{Config, EnrollmentConfig, Proxies};
use crate::identity::{Identity, IdentityError};
use crate::metrics;
use crate::random::random;
use crate::server_trust::ServerTrust;
use grpc_client::{CallError, GrpcClient, ShownCertificate};
use service_account::{Issuer, IssuerError, ServiceAccount};
use state::{EnrollmentState, new_key, spki};
use token_file::{TokenFile, TokenFileError};
use validity::Validity;

pub use state::EnrollmentStateError;

/// Largest file with an enrollment token, in bytes.
const TOKEN_BYTES_MAX: u64 = 1024;

/// Shortest and longest wait after a failed attempt.
const RETRY: (Duration, Duration) = (Duration::from_secs(2), Duration::from_secs(120));

/// Longest single sleep before a renewal, so that a clock that jumps is noticed.
const CLOCK_CHECK_EVERY: Duration = Duration::from_secs(10);

/// Least time between two renewals: for a clock that is far ahead of the server's, every certificate is due.
const RENEWED_EVERY_MIN: Duration = Duration::from_secs(10 * 60);

/// The enrollment of this agent. Clones share it.
#[derive(Clone)]
pub struct Enrollment(Arc<SharedEnrollment>);

struct SharedEnrollment {
    config: EnrollmentConfig,
    /// The enrollment token. This or the ServiceAccount is present, or both.
    token: Option<Arc<TokenFile>>,
    service_account: Option<ServiceAccount>,
    cluster: ClusterId,
    trust_domain: String,
    proxies: Proxies,
    state_dir: StateDir,
    state: Mutex<EnrollmentState>,
    clock: Clock,
}

/// An attempt to get a certificate failed.
#[derive(Debug, thiserror::Error)]
enum EnrollmentError {
    #[error(transparent)]
    Token(TokenFileError),
    #[error(
        "the pod's ServiceAccount cannot be shown: mount a projected token of it, with the audience {1} and expirationSeconds 600"
    )]
    ServiceAccount(#[source] TokenFileError, String),
    #[error(
        "the API server does not name the issuer of its tokens: let this ServiceAccount read it, as the ClusterRole \
         system:service-account-issuer-discovery does, which Kubernetes binds to every ServiceAccount"
    )]
    Issuer(#[from] IssuerError),
    #[error("{0} has no address")]
    NoAddress(String, #[source] Option<std::io::Error>),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error("no certificate signing request could be made")]
    Request(#[source] rcgen::Error),
    #[error("the enrollment server gave an identity that cannot be used")]
    InvalidIdentity(#[source] IdentityError),
    #[error("the enrollment server gave no certificate")]
    NoCertificate,
    #[error("the enrollment server gave a trust bundle that cannot be trusted")]
    Bundle(#[from] BundleError),
    #[error("the enrollment server gave no nonce")]
    NoNonce,
    #[error("the new certificate cannot be used")]
    Tls(#[source] TlsError),
    #[error(transparent)]
    State(#[from] EnrollmentStateError),
}

impl Enrollment {
    /// Opens the state of an earlier enrollment, or makes a new key. `api_server` names the issuer of
    /// pods' tokens: it is that of the cluster that the pods run in. Raises `clock` to the begin of the agent's certificate. Blocks.
    ///
    /// # Errors
    /// [`EnrollmentStateError`]: the state cannot be read or written.
    pub fn open(
        config: &Config,
        enrollment: EnrollmentConfig,
        state_dir: StateDir,
        api_server: ApiServer,
        clock: Clock,
    ) -> Result<Self, EnrollmentStateError> {
        let state = match EnrollmentState::read(&state_dir)? {
            Some(state) => state,
            None => {
                let state = EnrollmentState::new()?;
                // Written before the first request: if an answer is lost, the same key is used again.
                state.write(&state_dir)?;
                state
            }
        };
        // A time of the server's: an earlier time of this machine's clock might be far ahead.
        clock.raise(Validity::from_chain(&state.chain).map_or(0, |validity| validity.begins));
        Ok(Self(Arc::new(SharedEnrollment {
            token: enrollment.token_file.clone().map(|path| Arc::new(TokenFile::at(path, TOKEN_BYTES_MAX))),
            service_account: enrollment
                .service_account_token_file
                .clone()
                .map(|path| ServiceAccount::new(path, api_server)),
            config: enrollment,
            cluster: config.cluster.clone(),
            trust_domain: config.trust_domain.clone(),
            proxies: config.proxies.clone(),
            state_dir,
            state: Mutex::new(state),
            clock,
        })))
    }

    /// The certificate on disk, expired or not, or else a first one, however long it takes. Cancel-safe: a
    /// certificate is written to disk as soon as it is received.
    pub async fn identity(&self, scope: &Scope) -> Identity {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        loop {
            let got = match self.0.validity() {
                Some(_) => self.0.identity(),
                None => self.0.enroll_first(scope).await.and_then(|()| self.0.identity()),
            };
            match got {
                Ok(identity) => return identity,
                Err(error) => wait_after_failure(&error, &mut backoff).await,
            }
        }
    }

    /// Renews a certificate that has expired, however long it takes, because no server accepts it.
    /// Cancel-safe, as above.
    pub async fn renew_expired(&self, trust: &ServerTrust, scope: &Scope) {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        while self.0.validity().is_some_and(|validity| self.0.clock.seconds() >= validity.ends) {
            match self.0.renew(trust, scope).await {
                // Even if this clock finds it expired, there is no better certificate.
                Ok(()) => return,
                Err(error) => wait_after_failure(&error, &mut backoff).await,
            }
        }
    }

    /// Renews the certificate when two thirds of its life are over, again and again, and shows it to servers
    /// by `trust`.
    pub async fn keep_renewed(self, trust: ServerTrust, scope: Scope) {
        let mut backoff = Backoff::new(RETRY.0, RETRY.1);
        let mut share = random();
        while let Some(validity) = self.0.validity() {
            let (due, now) = (validity.due(share), self.0.clock.seconds());
            if now < due {
                sleep(Duration::from_secs(due - now).min(CLOCK_CHECK_EVERY)).await;
                continue;
            }
            match self.0.renew(&trust, &scope).await {
                Ok(()) => {
                    backoff.reset();
                    share = random();
                    sleep(RENEWED_EVERY_MIN).await;
                }
                Err(error) => wait_after_failure(&error, &mut backoff).await,
            }
        }
    }
}

async fn wait_after_failure(error: &EnrollmentError, backoff: &mut Backoff) {
    let mut wait = backoff.next(random());
    if matches!(error, EnrollmentError::Call(error) if error.is_clock()) {
        // A clock may be set at any moment.
        wait = wait.min(CLOCK_CHECK_EVERY);
    }
    warn!(error = %error_chain(error), retry_in = ?wait, "this agent got no certificate");
    sleep(wait).await;
}

impl SharedEnrollment {
    /// Requests the first certificate: as a further pod where the server knows the cluster's issuer, or else
    /// with the token.
    async fn enroll_first(&self, scope: &Scope) -> Result<(), EnrollmentError> {
        let mut client = self.connect(Vec::new(), None, scope).await?;
        let Some(service_account) = &self.service_account else {
            return self.enroll(&mut client, None).await;
        };
        match self.attest(&mut client, service_account).await {
            Ok(credential) => self.store_first(credential),
            Err(EnrollmentError::Call(error)) if error.is_not_set_up() => {
                // Without a token, the server's message says what to do.
                match &self.token {
                    Some(token) if token_file::read(token).await.is_ok() => {
                        self.enroll(&mut client, Some(service_account)).await
                    }
                    Some(_) | None => Err(error.into()),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Enrolls with the token, and sends the ServiceAccount's issuer, by which further pods will be accepted.
    async fn enroll(
        &self,
        client: &mut GrpcClient,
        service_account: Option<&ServiceAccount>,
    ) -> Result<(), EnrollmentError> {
        let token = match &self.token {
            Some(token) => token_file::read(token).await.map_err(EnrollmentError::Token)?,
            None => return Err(EnrollmentError::NoCertificate),
        };
        let workload = match service_account {
            Some(service_account) => {
                let Issuer { name, keys } = service_account.issuer().await?;
                let service_account_token = self.service_account_token(service_account).await?;
                Some(Workload { service_account_token, issuer: name, issuer_keys: keys })
            }
            None => None,
        };
        let certificate_request = signing_request(&self.state().key)?;
        let cluster = self.cluster.to_string();
        let request = EnrollRequest { token, cluster, certificate_request, workload };
        let EnrollResponse { credential, workload_recorded } = client.call("Enroll", &request).await?;
        self.store_first(credential.ok_or(EnrollmentError::NoCertificate)?)?;
        if workload_recorded {
            info!("this agent was enrolled; further pods of its ServiceAccount need no token");
        } else {
            info!(
                "this agent was enrolled; further pods of this cluster need a token each, because the server has no record of its \
                 ServiceAccount: set enrollment.serviceAccountTokenFile in a pod"
            );
        }
        Ok(())
    }

    /// Proves by the ServiceAccount's token and the requesting key that this is a pod of the cluster's
    /// agents.
    async fn attest(
        &self,
        client: &mut GrpcClient,
        service_account: &ServiceAccount,
    ) -> Result<Credential, EnrollmentError> {
        let token = self.service_account_token(service_account).await?;
        let ChallengeResponse { nonce } = client.call("Challenge", &ChallengeRequest {}).await?;
        let nonce: [u8; NONCE_BYTES] = nonce.try_into().map_err(|_| EnrollmentError::NoNonce)?;
        let request = {
            let state = self.state();
            let key = state.requesting_key().ok_or(EnrollmentError::NoCertificate)?;
            let spki = spki(key);
            let proof = Attestation { exporter: &client.exporter, nonce: &nonce, token: &token, spki: &spki };
            AttestRequest {
                cluster: self.cluster.to_string(),
                certificate_request: signing_request(key)?,
                nonce: nonce.to_vec(),
                proof: proof.sign(key).ok_or(EnrollmentError::NoCertificate)?,
                service_account_token: token,
            }
        };
        let AttestResponse { credential } = client.call("Attest", &request).await?;
        info!("this pod was enrolled by its ServiceAccount");
        credential.ok_or(EnrollmentError::NoCertificate)
    }

    async fn service_account_token(
        &self,
        service_account: &ServiceAccount,
    ) -> Result<String, EnrollmentError> {
        let audience = || proto::enrollment::audience(&self.trust_domain, &self.cluster);
        service_account.token().await.map_err(|error| EnrollmentError::ServiceAccount(error, audience()))
    }

    /// Stores the first certificate, and the roots to trust from now on.
    fn store_first(&self, credential: Credential) -> Result<(), EnrollmentError> {
        let Credential { chain, trust_bundle } = credential;
        let domain = self.trust_domain.parse().map_err(|_| EnrollmentError::NoCertificate)?;
        let bundle = Anchors::new(domain).and_pin(self.config.pin).accept(&trust_bundle, None)?;
        let roots = bundle.map_or_else(Vec::new, |bundle| bundle.roots(Role::Server).to_vec());
        self.store(chain, roots)
    }

    /// Requests the next certificate with a key that is stored first, and shows it to servers.
    async fn renew(&self, trust: &ServerTrust, scope: &Scope) -> Result<(), EnrollmentError> {
        self.change(|state| {
            if state.next.is_none() {
                state.next = Some(new_key()?);
            }
            Ok(())
        })?;
        // Shown although the proof is in the request: a server under attack has places for who has a certificate.
        let shown = {
            let state = self.state();
            (!state.chain.is_empty()).then(|| (state.chain.clone(), state.tls_key()))
        };
        let mut client = self.connect(trust.roots(), shown, scope).await?;
        let request = self.renew_request(&client, self.issuer_keys().await)?;
        let credential = match (client.call("Renew", &request).await, &self.service_account) {
            (Ok(RenewResponse { credential }), _) => credential.ok_or(EnrollmentError::NoCertificate)?,
            // The agent was down for too long, or its key was copied and replaced. Its pod can still prove
            // itself.
            (Err(error), Some(service_account)) if error.is_refusal() => {
                warn!(error = %error_chain(&error), "this certificate cannot be renewed; the pod enrolls again by its ServiceAccount");
                self.attest(&mut client, service_account).await?
            }
            (Err(error), _) => return Err(error.into()),
        };
        let Credential { chain, trust_bundle } = credential;
        let roots = self.state().server_roots.clone();
        self.store(chain, roots)?;
        if let Err(error) = trust.accept_bundle(&trust_bundle) {
            warn!(error = %error_chain(&error), "a trust bundle was not accepted");
        }
        let Identity { chain, key, .. } = self.identity()?;
        metrics::certificates("agent", &chain[..chain.len().min(1)]);
        trust.replace_certificate(chain, key).map_err(EnrollmentError::Tls)?;
        info!("this agent's certificate was renewed");
        Ok(())
    }

    /// The current keys of the cluster's issuer. Empty where they cannot be read.
    async fn issuer_keys(&self) -> Vec<u8> {
        let Some(service_account) = &self.service_account else { return Vec::new() };
        service_account.issuer_keys().await.unwrap_or_else(|error| {
            warn!(error = %error_chain(&error), "the keys of this cluster's issuer cannot be read, and are not sent to the server");
            Vec::new()
        })
    }

    fn renew_request(
        &self,
        client: &GrpcClient,
        issuer_keys: Vec<u8>,
    ) -> Result<RenewRequest, EnrollmentError> {
        let state = self.state();
        let (agent, serial) = self.agent_and_serial(&state.chain)?;
        let next = state.next.as_ref().ok_or(EnrollmentError::NoCertificate)?;
        let spki = spki(next);
        let proof = Proof { purpose: Purpose::Renewal, exporter: &client.exporter, serial, spki: &spki };
        Ok(RenewRequest {
            cluster: agent.cluster().to_string(),
            instance: agent.instance().to_owned(),
            serial: serial.to_bytes().to_vec(),
            certificate_request: signing_request(next)?,
            proof: proof.sign(&state.key).ok_or(EnrollmentError::NoCertificate)?,
            issuer_keys,
        })
    }

    /// Stores the certificate that the server gave, after all checks.
    fn store(
        &self,
        chain: Vec<Vec<u8>>,
        server_roots: Vec<CertificateDer<'static>>,
    ) -> Result<(), EnrollmentError> {
        let chain: Vec<_> = chain.into_iter().map(CertificateDer::from).collect();
        let validity = Validity::from_chain(&chain).ok_or(EnrollmentError::NoCertificate)?;
        let key = {
            let state = self.state();
            state.requesting_key().map(KeyPair::serialize_der).ok_or(EnrollmentError::NoCertificate)?
        };
        let key = PrivatePkcs8KeyDer::from(key).into();
        Identity::from_enrollment(
            chain.clone(),
            key,
            server_roots.clone(),
            &self.cluster,
            &self.trust_domain,
        )
        .map_err(EnrollmentError::InvalidIdentity)?;
        self.change(move |state| {
            (state.chain, state.server_roots) = (chain, server_roots);
            if let Some(next) = state.next.take() {
                state.key = next;
            }
            Ok(())
        })?;
        self.clock.raise(validity.begins);
        Ok(())
    }

    fn identity(&self) -> Result<Identity, EnrollmentError> {
        let state = self.state();
        let (chain, key, roots) = (state.chain.clone(), state.tls_key(), state.server_roots.clone());
        Identity::from_enrollment(chain, key, roots, &self.cluster, &self.trust_domain)
            .map_err(EnrollmentError::InvalidIdentity)
    }

    fn agent_and_serial(&self, chain: &[CertificateDer<'_>]) -> Result<(AgentId, Serial), EnrollmentError> {
        let leaf = chain.first().and_then(|leaf| X509Certificate::from_der(leaf).ok());
        let (_, leaf) = leaf.ok_or(EnrollmentError::NoCertificate)?;
        let serial = Serial::of(&leaf).ok_or(EnrollmentError::NoCertificate)?;
        let agent = Identity::agent_in(&leaf, &self.cluster, &self.trust_domain);
        Ok((agent.map_err(EnrollmentError::InvalidIdentity)?, serial))
    }

    /// Connects to the enrollment server, which has to chain to one of `roots`, or to the pinned root where
    /// there are none. `shown` is the agent's certificate with its key, if it has one.
    async fn connect(
        &self,
        roots: Vec<CertificateDer<'static>>,
        shown: Option<ShownCertificate>,
        scope: &Scope,
    ) -> Result<GrpcClient, EnrollmentError> {
        let server = &self.config.server;
        let way = match self.proxies.to(&server.host, server.port) {
            Some(proxy) => {
                DialPath::Proxied { proxy: proxy.clone(), host: server.host.clone(), port: server.port }
            }
            None => DialPath::Direct(self.address().await?),
        };
        let verifier = PinnedVerifier {
            pin: self.config.pin,
            roots,
            trust_domain: self.trust_domain.clone(),
            provider: transport::tls::provider(),
        };
        let name = self.config.server_name.as_ref().unwrap_or(&server.host);
        Ok(GrpcClient::open(&way, name, verifier, shown, self.clock.clone(), scope).await?)
    }

    async fn address(&self) -> Result<SocketAddr, EnrollmentError> {
        let server = &self.config.server;
        let found = lookup_host((server.host.as_str(), server.port)).await;
        let mut found = found.map_err(|error| EnrollmentError::NoAddress(server.to_string(), Some(error)))?;
        found.next().ok_or_else(|| EnrollmentError::NoAddress(server.to_string(), None))
    }

    fn validity(&self) -> Option<Validity> {
        Validity::from_chain(&self.state().chain)
    }

    /// Changes the state in memory and on disk.
    fn change(
        &self,
        act: impl FnOnce(&mut EnrollmentState) -> Result<(), EnrollmentStateError>,
    ) -> Result<(), EnrollmentError> {
        let mut state = self.state();
        act(&mut state)?;
        Ok(state.write(&self.state_dir)?)
    }

    fn state(&self) -> std::sync::MutexGuard<'_, EnrollmentState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn signing_request(key: &KeyPair) -> Result<Vec<u8>, EnrollmentError> {
    let request = CertificateParams::default().serialize_request(key).map_err(EnrollmentError::Request)?;
    Ok(request.der().to_vec())
}
