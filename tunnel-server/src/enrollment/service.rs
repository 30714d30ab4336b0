//! The service `tombolo.enrollment.v1.Enrollment` for one connection: tokens and proofs in, certificates out.

mod attest;
mod check;
mod enroll;
mod renew;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use audit::{AuditError, FailureCause, User};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::error_chain;
use proto::ClusterId;
use proto::enrollment::{
    AttestRequest, AttestResponse, ChallengeRequest, ChallengeResponse, CheckPodRequest, CheckPodResponse,
    CheckTokenRequest, CheckTokenResponse, Credential, EnrollRequest, EnrollResponse, RenewRequest,
    RenewResponse, enrollment_server,
};
use proto::spiffe::AgentId;
use tonic::{Request, Response, Status, async_trait};
use tracing::{error, info, warn};
use trust::proof::EXPORTER_BYTES;
use trust::{Order, ProvenKey, SignError, Subject};

use super::audit_log::{self, Attempt, EnrollmentAction};
use super::nonce::Nonce;
use super::rate_limits::RateLimits;
use super::shared::{SharedEnrollment, source};
use crate::clocks::ClocksApart;
use crate::directory::{self, Agent, IssuedChain, UnixSeconds};
use crate::listener::failed_attempts::FailedAttempts;
use crate::metrics::{self, EnrollmentOutcome};

/// The service's state for one connection.
pub(super) struct EnrollmentService {
    pub(super) shared: Arc<SharedEnrollment>,
    pub(super) peer: SocketAddr,
    pub(super) exporter: [u8; EXPORTER_BYTES],
    pub(super) nonce: Nonce,
    /// Notes that the client of this connection has proved who it is.
    pub(super) proved: Box<dyn Fn() + Send + Sync>,
    /// True if an attempt over this connection has failed.
    pub(super) has_failed: AtomicBool,
}

/// The agent, the pod and the key of a certificate to issue.
struct CertificateSubject {
    agent: AgentId,
    /// The pod's name, if a pod has proved to be this agent.
    pod: Option<String>,
    key: ProvenKey,
}

#[async_trait]
impl enrollment_server::Enrollment for EnrollmentService {
    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollResponse>, Status> {
        self.check_connection(&self.shared.failures)?;
        let (answer, workload_recorded) = self.enrolled(request.into_inner()).await?;
        (self.proved)();
        let credential = Some(self.credential(&answer));
        Ok(Response::new(EnrollResponse { credential, workload_recorded }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewResponse>, Status> {
        let answer = self.renewed(request.into_inner()).await?;
        (self.proved)();
        Ok(Response::new(RenewResponse { credential: Some(self.credential(&answer)) }))
    }

    async fn challenge(&self, _: Request<ChallengeRequest>) -> Result<Response<ChallengeResponse>, Status> {
        let nonce = self.nonce.fresh().ok_or_else(|| not_issued(&SignError::Randomness))?;
        Ok(Response::new(ChallengeResponse { nonce: nonce.to_vec() }))
    }

    async fn attest(&self, request: Request<AttestRequest>) -> Result<Response<AttestResponse>, Status> {
        let answer = self.attested(request.into_inner()).await?;
        (self.proved)();
        Ok(Response::new(AttestResponse { credential: Some(self.credential(&answer)) }))
    }

    async fn check_token(
        &self,
        request: Request<CheckTokenRequest>,
    ) -> Result<Response<CheckTokenResponse>, Status> {
        self.check_connection(&self.shared.failures)?;
        self.token_checked(request.into_inner()).await?;
        (self.proved)();
        Ok(Response::new(CheckTokenResponse {}))
    }

    async fn check_pod(
        &self,
        request: Request<CheckPodRequest>,
    ) -> Result<Response<CheckPodResponse>, Status> {
        self.pod_checked(request.into_inner()).await?;
        (self.proved)();
        Ok(Response::new(CheckPodResponse {}))
    }
}

impl EnrollmentService {
    /// An attempt of this connection's client, for the audit log.
    fn attempt<'a>(&self, act: EnrollmentAction, cluster: &'a ClusterId, user: User) -> Attempt<'a> {
        Attempt { act, cluster, from: self.peer, user }
    }

    /// Issues a certificate, which is not recorded yet.
    async fn issue(&self, subject: CertificateSubject, now: SystemTime) -> Result<Agent, SignError> {
        let CertificateSubject { agent, pod, key } = subject;
        let public_key = BASE64.encode(key.spki());
        let (subject, lasting) = (Subject::Agent(agent), self.shared.settings.lifetime);
        let signer = Arc::clone(&self.shared.signer.borrow());
        let issued = signer.issue(Order { subject, key, now, lasting }).await?;
        Ok(Agent {
            public_key,
            serial: issued.serial.to_string(),
            issued: now.into(),
            expires: UnixSeconds(u64::try_from(issued.not_after.unix_timestamp()).unwrap_or_default()),
            answer: IssuedChain::of(&issued.chain),
            previous: None,
            pod,
        })
    }

    /// Issues a certificate and has `record` store it, between its two lines of the audit log.
    async fn certify(
        &self,
        attempt: &Attempt<'_>,
        detail: String,
        subject: CertificateSubject,
        now: SystemTime,
        record: impl AsyncFnOnce(Agent) -> Result<IssuedChain, Status>,
    ) -> Result<IssuedChain, Status> {
        let receipt = attempt.intent(&self.shared.log, detail).await.map_err(|error| not_recorded(&error))?;
        let agent = subject.agent.clone();
        let issued = match self.shared.clocks.agree() {
            Ok(()) => self.issue(subject, now).await.map_err(|error| not_issued(&error)),
            Err(apart) => Err(clocks_apart(&apart)),
        };
        let answer = match issued {
            Ok(issued) => {
                let serial = issued.serial.clone();
                record(issued).await.map(|answer| (answer, serial))
            }
            Err(refused) => Err(refused),
        };
        receipt.complete(audit_log::outcome(&agent, &answer));
        answer.map(|(answer, _)| answer)
    }

    /// Checks whether an agent can get a certificate that is issued now.
    fn admits(&self, agent: &AgentId, now: SystemTime) -> Result<(), directory::NotAdmitted> {
        let credential = directory::AgentCredential { serial: String::new(), issued: now.into() };
        self.shared.directory.admits(agent, &credential)
    }

    fn credential(&self, answer: &IssuedChain) -> Credential {
        Credential {
            chain: answer.chain(),
            trust_bundle: self.shared.settings.trust_bundle.borrow().to_vec(),
        }
    }

    /// The audience that pods' tokens of a cluster must have.
    fn audience(&self, cluster: &ClusterId) -> String {
        proto::enrollment::audience(&self.shared.settings.trust_domain, cluster)
    }

    /// Refuses a further attempt over a connection on which one has failed, if too many of its source have. The first
    /// attempt of each connection is looked at whatever others at its address do: it costs no more than the handshake.
    fn check_connection(&self, failures: &FailedAttempts) -> Result<(), Status> {
        if self.has_failed.load(Ordering::Relaxed) { self.check_failures(failures) } else { Ok(()) }
    }

    /// Refuses clients of a source with too many failures.
    fn check_failures(&self, failures: &FailedAttempts) -> Result<(), Status> {
        if failures.may_try(source(self.peer), Instant::now()) {
            return Ok(());
        }
        metrics::enrollment(EnrollmentOutcome::Limited);
        Err(Status::resource_exhausted(
            "too many attempts from this address have failed; try again in a minute",
        ))
    }

    fn key(&self, request: &[u8], failures: &FailedAttempts) -> Result<ProvenKey, Status> {
        ProvenKey::of_csr(request).map_err(|error| {
            self.failed(failures);
            Status::invalid_argument(error.to_string())
        })
    }

    /// Refuses an unauthenticated client with `answer`, which is the same for every reason. The audit log counts it in a
    /// summary, and the server's own log has a line for each until its source has too many failures.
    fn refuse_unauthenticated(
        &self,
        act: &str,
        reason: &str,
        whom: &str,
        failures: &FailedAttempts,
        answer: &str,
    ) -> Status {
        self.shared.log.unauthenticated(source(self.peer), FailureCause::Refused);
        if let Err(limited) = self.check_failures(failures) {
            self.has_failed.store(true, Ordering::Relaxed);
            return limited;
        }
        self.refused(act, reason, whom, failures);
        Status::permission_denied(answer)
    }

    /// Logs the refusal of an authenticated client, and writes it to the audit log.
    async fn refuse(&self, attempt: &Attempt<'_>, reason: &str, failures: &FailedAttempts) {
        self.refused(attempt.verb(), reason, &attempt.whom(), failures);
        self.record_refusal(attempt, reason).await;
    }

    /// Writes a refusal to the audit log.
    async fn record_refusal(&self, attempt: &Attempt<'_>, reason: &str) {
        if let Err(error) = attempt.forbidden(&self.shared.log, reason).await {
            warn!(%error, "a refusal is not in the audit log");
        }
    }

    /// Counts a request for a certificate against the rate limits.
    fn count_request(
        &self,
        count: impl FnOnce(&RateLimits, Instant) -> Result<(), Status>,
    ) -> Result<(), Status> {
        count(&self.shared.rate_limits, Instant::now()).inspect_err(|limited| {
            info!(from = %self.peer, reason = limited.message(), "a client requests certificates too often");
            metrics::enrollment(EnrollmentOutcome::Limited);
        })
    }

    /// Counts a failure of the source and of the connection.
    fn failed(&self, failures: &FailedAttempts) {
        self.has_failed.store(true, Ordering::Relaxed);
        failures.failed(source(self.peer), Instant::now());
    }

    /// Counts a failure of the source, and logs it in the server's own log.
    fn refused(&self, act: &str, reason: &str, whom: &str, failures: &FailedAttempts) {
        self.failed(failures);
        metrics::enrollment(EnrollmentOutcome::Refused);
        info!(from = %self.peer, act, whom, reason, "a client was refused a certificate");
    }
}

fn not_issued(error: &SignError) -> Status {
    error!(error = %error_chain(error), "no certificate can be issued");
    Status::unavailable("no certificate can be issued now; try again later")
}

fn clocks_apart(error: &ClocksApart) -> Status {
    error!(%error, "no certificate is issued, because this server's clock may be wrong");
    Status::unavailable(error.to_string())
}

fn unavailable(error: &directory::StoreError) -> Status {
    error!(error = %error_chain(error), "the directory cannot be read");
    Status::unavailable("the server cannot read its records now; try again later")
}

fn not_recorded(error: &AuditError) -> Status {
    error!(error = %error_chain(error), "no certificate is issued while the audit log cannot be written");
    Status::unavailable("the server cannot write its audit log now; try again later")
}

#[cfg(test)]
mod tests;
