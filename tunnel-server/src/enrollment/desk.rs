//! The service `tombolo.enrollment.v1.Enrollment` for one connection: tokens and proofs in, certificates out.

mod attest;
mod enroll;
mod renew;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use audit::{NotRecorded, Why};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use daemon::chain;
use proto::ClusterId;
use proto::enrollment::{
    AttestRequest, AttestResponse, ChallengeRequest, ChallengeResponse, Credential, EnrollRequest,
    EnrollResponse, RenewRequest, RenewResponse, enrollment_server,
};
use proto::spiffe::AgentId;
use tonic::{Request, Response, Status, async_trait};
use tracing::{error, info, warn};
use trust::proof::EXPORTER_BYTES;
use trust::{Order, ProvenKey, SignError, Subject};

use super::allowance::Allowance;
use super::nonce::Nonce;
use super::recorded::{self, Known};
use super::{Inner, source};
use crate::directory::{self, Agent, Answer, UnixSeconds};
use crate::listener::failed_attempts::FailedAttempts;
use crate::metrics::{self, EnrollmentOutcome};

/// One connection's.
pub(super) struct Desk {
    pub(super) door: Arc<Inner>,
    pub(super) peer: SocketAddr,
    pub(super) exporter: [u8; EXPORTER_BYTES],
    pub(super) nonce: Nonce,
}

/// Whom a certificate is for, and of which key.
struct Certified {
    agent: AgentId,
    /// The pod's name, where a pod has proved to be this agent.
    pod: Option<String>,
    key: ProvenKey,
}

#[async_trait]
impl enrollment_server::Enrollment for Desk {
    async fn enroll(&self, request: Request<EnrollRequest>) -> Result<Response<EnrollResponse>, Status> {
        self.listen(&self.door.failures)?;
        let (answer, workload_recorded) = self.enrolled(request.into_inner()).await?;
        let credential = Some(self.credential(&answer));
        Ok(Response::new(EnrollResponse { credential, workload_recorded }))
    }

    async fn renew(&self, request: Request<RenewRequest>) -> Result<Response<RenewResponse>, Status> {
        let answer = self.renewed(request.into_inner()).await?;
        Ok(Response::new(RenewResponse { credential: Some(self.credential(&answer)) }))
    }

    async fn challenge(&self, _: Request<ChallengeRequest>) -> Result<Response<ChallengeResponse>, Status> {
        let nonce = self.nonce.fresh().ok_or_else(|| not_issued(&SignError::Randomness))?;
        Ok(Response::new(ChallengeResponse { nonce: nonce.to_vec() }))
    }

    async fn attest(&self, request: Request<AttestRequest>) -> Result<Response<AttestResponse>, Status> {
        let answer = self.attested(request.into_inner()).await?;
        Ok(Response::new(AttestResponse { credential: Some(self.credential(&answer)) }))
    }
}

impl Desk {
    /// Has a certificate made, of which nobody knows yet.
    async fn issue(&self, certified: Certified, now: SystemTime) -> Result<Agent, SignError> {
        let Certified { agent, pod, key } = certified;
        let public_key = BASE64.encode(key.spki());
        let (subject, lasting) = (Subject::Agent(agent), self.door.terms.lifetime);
        let issued = self.door.signer.issue(Order { subject, key, now, lasting }).await?;
        Ok(Agent {
            public_key,
            serial: issued.serial.to_string(),
            issued: now.into(),
            expires: UnixSeconds(u64::try_from(issued.not_after.unix_timestamp()).unwrap_or_default()),
            answer: Answer::of(&issued.chain),
            previous: None,
            pod,
        })
    }

    /// Has a certificate made, and recorded by `record`, between its two lines of the audit log.
    async fn certify(
        &self,
        known: &Known<'_>,
        detail: String,
        certified: Certified,
        now: SystemTime,
        record: impl AsyncFnOnce(Agent) -> Result<Answer, Status>,
    ) -> Result<Answer, Status> {
        let receipt = known.intent(&self.door.log, detail).await.map_err(|error| not_recorded(&error))?;
        let agent = certified.agent.clone();
        let answer = match self.issue(certified, now).await {
            Ok(issued) => {
                let serial = issued.serial.clone();
                record(issued).await.map(|answer| (answer, serial))
            }
            Err(error) => Err(not_issued(&error)),
        };
        receipt.complete(recorded::outcome(&agent, &answer));
        answer.map(|(answer, _)| answer)
    }

    /// Whether an agent may be given a certificate that is made now.
    fn admits(&self, agent: &AgentId, now: SystemTime) -> Result<(), directory::NotAdmitted> {
        let credential = directory::Credential { serial: String::new(), issued: now.into() };
        self.door.directory.admits(agent, &credential)
    }

    fn credential(&self, answer: &Answer) -> Credential {
        Credential { chain: answer.chain(), trust_bundle: self.door.terms.trust_bundle.borrow().to_vec() }
    }

    /// For whom pods' tokens of a cluster must be meant.
    fn audience(&self, cluster: &ClusterId) -> String {
        proto::enrollment::audience(&self.door.terms.trust_domain, cluster)
    }

    fn listen(&self, failures: &FailedAttempts) -> Result<(), Status> {
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
            failures.failed(source(self.peer), Instant::now());
            Status::invalid_argument(error.to_string())
        })
    }

    /// Tells of somebody of whom nothing is known that has refused them; what such do is summed up in the audit log. Outside there is
    /// one answer to each act for every reason.
    fn stranger(&self, act: &str, reason: &str, whom: &str, failures: &FailedAttempts) {
        self.refused(act, reason, whom, failures);
        self.door.log.stranger(source(self.peer), Why::Refused);
    }

    /// Tells of somebody who is known what has refused them, in the audit log too.
    async fn forbidden(&self, known: &Known<'_>, reason: &str, failures: &FailedAttempts) {
        self.refused(known.verb(), reason, &known.whom(), failures);
        self.record_refusal(known, reason).await;
    }

    /// Has the audit log know what was refused.
    async fn record_refusal(&self, known: &Known<'_>, reason: &str) {
        if let Err(error) = known.forbidden(&self.door.log, reason).await {
            warn!(%error, "refused, and not in the audit log");
        }
    }

    /// Counts that somebody asks for a certificate.
    fn charge(&self, count: impl FnOnce(&Allowance, Instant) -> Result<(), Status>) -> Result<(), Status> {
        count(&self.door.allowance, Instant::now()).inspect_err(|limited| {
            info!(from = %self.peer, reason = limited.message(), "somebody asks for certificates too often");
            metrics::enrollment(EnrollmentOutcome::Limited);
        })
    }

    /// Counts a failure, and tells the server's own log of it.
    fn refused(&self, act: &str, reason: &str, whom: &str, failures: &FailedAttempts) {
        failures.failed(source(self.peer), Instant::now());
        metrics::enrollment(EnrollmentOutcome::Refused);
        info!(from = %self.peer, act, whom, reason, "somebody was refused a certificate");
    }
}

fn not_issued(error: &SignError) -> Status {
    error!(error = %chain(error), "no certificate can be issued");
    Status::unavailable("no certificate can be issued now; try again later")
}

fn unavailable(error: &directory::StoreError) -> Status {
    error!(error = %chain(error), "the directory cannot be asked");
    Status::unavailable("the server cannot look at its records now; try again later")
}

fn not_recorded(error: &NotRecorded) -> Status {
    error!(error = %chain(error), "nobody is given a certificate while the audit log cannot be written");
    Status::unavailable("the server cannot write its audit log now; try again later")
}

#[cfg(test)]
mod tests;
