//! The first certificate of an agent, for a token; and by what further pods of its cluster will be known.

use std::time::SystemTime;

use proto::ClusterId;
use proto::enrollment::{EnrollRequest, Workload as Sent};
use proto::spiffe::AgentId;
use tonic::Status;
use tracing::info;
use trust::SignError;

use super::super::attestation::{self, Judge, NotOurs};
use super::super::recorded::{self, Act, Known};
use super::{Certified, Desk, not_issued, unavailable};
use crate::directory::{Answer, Bearer, Entitled, NotAdmitted, TokenRefused, Workload};
use crate::identity::oidc::pod::Pod;
use crate::metrics::{self, EnrollmentOutcome};

/// Bytes of an instance's name, which are twice as many hexadecimal digits.
const INSTANCE_BYTES: usize = 8;

/// Why a token's holder becomes no agent by what came along with the token, which stays as it was.
#[derive(Debug, thiserror::Error)]
enum NotTaken {
    #[error("the ServiceAccount's token that came along is not taken: {0}")]
    Workload(#[from] NotOurs),
    #[error("this pod may not become an agent: {0}; delete it, and Kubernetes makes another")]
    Revoked(#[from] NotAdmitted),
}

impl Desk {
    /// What the token's holder is given, and whether further pods may prove themselves from now on.
    pub(super) async fn enrolled(&self, request: EnrollRequest) -> Result<(Answer, bool), Status> {
        let EnrollRequest { token, cluster: believed, certificate_request, workload } = request;
        let (failures, directory, now) = (&self.door.failures, &self.door.directory, SystemTime::now());
        let refused = |reason: &str, id: &str| {
            self.stranger("enroll", reason, id, failures);
            Status::permission_denied(
                "this token enrolls nobody; make another one with: tombolo token create --cluster NAME",
            )
        };
        let key = self.key(&certificate_request, failures)?;
        // The text of a token that is none is not logged: it may be one with a slip of the pen.
        let bearer: Bearer = token.trim().parse().map_err(|_| refused("it is not a token", ""))?;
        let id = bearer.id();
        let judged = |error: TokenRefused| {
            if let TokenRefused::Store(error) = &error {
                return unavailable(error);
            }
            refused(&error.to_string(), &id)
        };
        let pin = key.pin().to_string();
        let cluster = match directory.entitled(bearer.clone(), pin.clone(), now).await.map_err(judged)? {
            Entitled::ToTheSame(answer) => return Ok((answer, self.is_open(&believed).await?)),
            Entitled::ToOne(cluster) if cluster.as_str() == believed => cluster,
            Entitled::ToOne(_) => return Err(judged(TokenRefused::OtherCluster)),
        };
        let came = match &workload {
            Some(sent) => match self.workload(&cluster, sent, now).await? {
                Ok(came) => Some(came),
                Err(no) => return Err(self.not_taken(&cluster, &id, &no.into()).await),
            },
            None => None,
        };
        let (workload, pod) = came.unzip();
        let (instance, pod) = match pod {
            Some(pod) => (pod.uid, Some(pod.name)),
            None => (instance().ok_or_else(|| not_issued(&SignError::Randomness))?, None),
        };
        let agent = AgentId::new(cluster, &instance).ok_or_else(|| judged(TokenRefused::Unknown))?;
        if pod.is_some()
            && let Err(no) = self.admits(&agent, now)
        {
            return Err(self.not_taken(agent.cluster(), &id, &no.into()).await);
        }
        let known = Known {
            act: Act::Enroll,
            cluster: agent.cluster(),
            from: self.peer,
            user: recorded::holder(&id),
        };
        let (detail, named) = (detail(workload.as_ref(), pod.as_deref()), (pin, agent.instance().to_owned()));
        let certified = Certified { agent: agent.clone(), pod, key };
        let record =
            async |issued| directory.enroll(bearer, named, issued, workload, now).await.map_err(judged);
        let answer = self.certify(&known, detail, certified, now, record).await?;
        info!(%agent, token = id, from = %self.peer, "an agent was enrolled");
        metrics::enrollment(EnrollmentOutcome::Enrolled);
        Ok((answer, self.is_open(agent.cluster().as_str()).await?))
    }

    /// Whose pod it is that has come with a token, by what is recorded of the cluster, or by what came along if nothing is.
    async fn workload(
        &self,
        cluster: &ClusterId,
        sent: &Sent,
        now: SystemTime,
    ) -> Result<Result<(Workload, Pod), NotOurs>, Status> {
        let found = self.door.directory.attestation(cluster).await.map_err(|error| unavailable(&error))?;
        let audience = self.audience(cluster);
        let judge = Judge { verifier: self.door.verifier, audience: &audience, now };
        Ok(match found.workload {
            Some(workload) => judge.pod(&workload, &sent.service_account_token).map(|pod| (workload, pod)),
            None => judge.first(sent),
        })
    }

    /// To a token's holder it is said what is wrong.
    async fn not_taken(&self, cluster: &ClusterId, token: &str, reason: &NotTaken) -> Status {
        if let Err(limited) = self.charge(|allowance, now| allowance.cluster(cluster, now)) {
            return limited;
        }
        let reason = reason.to_string();
        let known = Known { act: Act::Enroll, cluster, from: self.peer, user: recorded::holder(token) };
        self.forbidden(&known, &reason, &self.door.failures).await;
        Status::invalid_argument(reason)
    }

    async fn is_open(&self, cluster: &str) -> Result<bool, Status> {
        let Ok(cluster) = cluster.parse::<ClusterId>() else { return Ok(false) };
        let found = self.door.directory.attestation(&cluster).await.map_err(|error| unavailable(&error))?;
        Ok(attestation::open(&found).is_some())
    }
}

/// What stands in the audit log of whom an agent is of.
fn detail(workload: Option<&Workload>, pod: Option<&str>) -> String {
    let Some(Workload { namespace, account, account_uid, issuer, .. }) = workload else {
        return "an agent of which no ServiceAccount is known".to_owned();
    };
    let pod = pod.unwrap_or_default();
    format!("pod {namespace}/{pod} of the ServiceAccount {account} (UID {account_uid}) of {issuer}")
}

/// A name that no other agent of the cluster has.
fn instance() -> Option<String> {
    let mut bytes = [0; INSTANCE_BYTES];
    aws_lc_rs::rand::fill(&mut bytes).ok()?;
    Some(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}
