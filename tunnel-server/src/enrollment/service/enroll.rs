//! The first certificate of an agent, for a token; and the account by which further pods of its cluster
//! enroll.

use std::time::SystemTime;

use proto::ClusterId;
use proto::enrollment::{EnrollRequest, Workload as SentWorkload};
use proto::spiffe::AgentId;
use tonic::Status;
use tracing::info;
use trust::SignError;

use super::super::attestation::{self, NotOurPod, PodVerification};
use super::super::audit_log::{self, EnrollmentAction};
use super::{CertificateSubject, EnrollmentService, not_issued, unavailable};
use crate::directory::{BearerToken, IssuedChain, NotAdmitted, TokenGrant, TokenRefused, Workload};
use crate::identity::oidc::pod::Pod;
use crate::metrics::{self, EnrollmentOutcome};

/// Bytes of an instance name, which has twice as many hexadecimal digits.
const INSTANCE_BYTES: usize = 8;

/// The reason why the workload that came with a token is refused. The token stays unused.
#[derive(Debug, thiserror::Error)]
enum WorkloadRefused {
    #[error("the ServiceAccount's token that came along is not taken: {0}")]
    Workload(#[from] NotOurPod),
    #[error("this pod may not become an agent: {0}; delete it, and Kubernetes makes another")]
    Revoked(#[from] NotAdmitted),
}

impl EnrollmentService {
    /// The certificate chain for the token's holder, and whether further pods can enroll by themselves from
    /// now on.
    pub(super) async fn enrolled(&self, request: EnrollRequest) -> Result<(IssuedChain, bool), Status> {
        let EnrollRequest { token, cluster: believed, certificate_request, workload } = request;
        let (failures, directory, now) = (&self.shared.failures, &self.shared.directory, SystemTime::now());
        let key = self.key(&certificate_request, failures)?;
        let pin = key.pin().to_string();
        let (bearer, grant) = self.granted("enroll", &token, &believed, pin.clone(), now).await?;
        let id = bearer.id();
        let refusal = |error: TokenRefused| self.refuse_token("enroll", &error, &id);
        let cluster = match grant {
            TokenGrant::Repeat(answer) => return Ok((answer, self.is_open(&believed).await?)),
            TokenGrant::NewAgent(cluster) => cluster,
        };
        let came = match &workload {
            Some(sent) => match self.workload(&cluster, sent, now).await? {
                Ok(came) => Some(came),
                Err(no) => return Err(self.refuse_workload(&cluster, &id, &no.into()).await),
            },
            None => None,
        };
        let (workload, pod) = came.unzip();
        let (instance, pod) = match pod {
            Some(pod) => (pod.uid, Some(pod.name)),
            None => (instance().ok_or_else(|| not_issued(&SignError::Randomness))?, None),
        };
        let agent = AgentId::new(cluster, &instance).ok_or_else(|| refusal(TokenRefused::Unknown))?;
        if pod.is_some()
            && let Err(no) = self.admits(&agent, now)
        {
            return Err(self.refuse_workload(agent.cluster(), &id, &no.into()).await);
        }
        let attempt = self.attempt(EnrollmentAction::Enroll, agent.cluster(), audit_log::holder(&id));
        let (detail, named) = (detail(workload.as_ref(), pod.as_deref()), (pin, agent.instance().to_owned()));
        let subject = CertificateSubject { agent: agent.clone(), pod, key };
        let record =
            async |issued| directory.enroll(bearer, named, issued, workload, now).await.map_err(refusal);
        let answer = self.certify(&attempt, detail, subject, now, record).await?;
        info!(%agent, token = id, from = %self.peer, "an agent was enrolled");
        metrics::enrollment(EnrollmentOutcome::Enrolled);
        Ok((answer, self.is_open(agent.cluster().as_str()).await?))
    }

    /// The right that a token gives to the holder of the key `pin`, who believes to be an agent of `believed`. `act` is the call,
    /// for the log.
    pub(super) async fn granted(
        &self,
        act: &str,
        token: &str,
        believed: &str,
        pin: String,
        now: SystemTime,
    ) -> Result<(BearerToken, TokenGrant), Status> {
        // An invalid token is not logged: it can be a valid one with a typing mistake.
        let parsed = token.trim().parse::<BearerToken>();
        let bearer = parsed.map_err(|_| self.refuse_bearer(act, "it is not a token", ""))?;
        let id = bearer.id();
        let refusal = |error: TokenRefused| self.refuse_token(act, &error, &id);
        match self.shared.directory.token_grant(bearer.clone(), pin, now).await.map_err(refusal)? {
            TokenGrant::NewAgent(cluster) if cluster.as_str() != believed => {
                Err(refusal(TokenRefused::OtherCluster))
            }
            grant @ (TokenGrant::NewAgent(_) | TokenGrant::Repeat(_)) => Ok((bearer, grant)),
        }
    }

    fn refuse_token(&self, act: &str, error: &TokenRefused, id: &str) -> Status {
        if let TokenRefused::Store(error) = error {
            return unavailable(error);
        }
        self.refuse_bearer(act, &error.to_string(), id)
    }

    /// Refuses the holder of a token with one answer for every reason.
    fn refuse_bearer(&self, act: &str, reason: &str, id: &str) -> Status {
        let answer = "this token enrolls nobody; make another one with: tombolo token create --cluster NAME";
        self.refuse_unauthenticated(act, reason, id, &self.shared.failures, answer)
    }

    /// The pod that came with a token, verified against the recorded workload of the cluster, or against the
    /// sent one if none is recorded.
    async fn workload(
        &self,
        cluster: &ClusterId,
        sent: &SentWorkload,
        now: SystemTime,
    ) -> Result<Result<(Workload, Pod), NotOurPod>, Status> {
        let found = self.shared.directory.attestation(cluster).await.map_err(|error| unavailable(&error))?;
        let audience = self.audience(cluster);
        let verification = PodVerification { verifier: self.shared.verifier, audience: &audience, now };
        Ok(match found.workload {
            Some(workload) => {
                verification.pod(&workload, &sent.service_account_token).map(|pod| (workload, pod))
            }
            None => verification.first(sent),
        })
    }

    /// Refuses the workload, and tells the token's holder why.
    async fn refuse_workload(&self, cluster: &ClusterId, token: &str, reason: &WorkloadRefused) -> Status {
        if let Err(limited) = self.count_request(|rate_limits, now| rate_limits.cluster(cluster, now)) {
            return limited;
        }
        let reason = reason.to_string();
        let attempt = self.attempt(EnrollmentAction::Enroll, cluster, audit_log::holder(token));
        self.refuse(&attempt, &reason, &self.shared.failures).await;
        Status::invalid_argument(reason)
    }

    async fn is_open(&self, cluster: &str) -> Result<bool, Status> {
        let Ok(cluster) = cluster.parse::<ClusterId>() else { return Ok(false) };
        let found = self.shared.directory.attestation(&cluster).await.map_err(|error| unavailable(&error))?;
        Ok(attestation::open(&found).is_some())
    }
}

/// The audit log's detail about an agent's pod and account.
fn detail(workload: Option<&Workload>, pod: Option<&str>) -> String {
    let Some(Workload { namespace, account, account_uid, issuer, .. }) = workload else {
        return "an agent of which no ServiceAccount is known".to_owned();
    };
    let pod = pod.unwrap_or_default();
    format!("pod {namespace}/{pod} of the ServiceAccount {account} (UID {account_uid}) of {issuer}")
}

/// An instance name that no other agent of the cluster has, from random bytes.
fn instance() -> Option<String> {
    let mut bytes = [0; INSTANCE_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
