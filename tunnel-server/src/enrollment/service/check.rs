//! Checks of tokens that change nothing, for `tombolo doctor agent`.

use std::time::SystemTime;

use proto::ClusterId;
use proto::enrollment::{CheckPodRequest, CheckTokenRequest};
use tonic::Status;
use tracing::info;
use trust::Pin;

use super::super::attestation;
use super::super::audit_log::{self, Attempt, EnrollmentAction};
use super::{EnrollmentService, not_recorded, unavailable};
use crate::directory::TokenGrant;

impl EnrollmentService {
    /// Fails as `enrolled` does if the token enrolls nobody. The token stays as it was.
    pub(super) async fn token_checked(&self, request: CheckTokenRequest) -> Result<(), Status> {
        let CheckTokenRequest { token, cluster: believed, public_key } = request;
        // The key need not be proven: nothing is issued for it, and only the token's holder gets an answer.
        let pin = Pin::of_spki(&public_key).to_string();
        let (bearer, grant) = self.granted("check-token", &token, &believed, pin, SystemTime::now()).await?;
        let TokenGrant::NewAgent(cluster) = grant else {
            // As for Enroll, a repeat is neither counted nor recorded.
            return Ok(());
        };
        self.count_request(|rate_limits, now| rate_limits.cluster(&cluster, now))?;
        let user = audit_log::holder(&bearer.id());
        self.checked(&self.attempt(EnrollmentAction::CheckToken, &cluster, user)).await
    }

    /// Fails as `attested` does if the pod's token proves no agent of the cluster. No certificate is issued, so the pod's agent
    /// keeps its own.
    pub(super) async fn pod_checked(&self, request: CheckPodRequest) -> Result<(), Status> {
        let CheckPodRequest { cluster, service_account_token: token } = request;
        let failures = &self.shared.pod_failures;
        self.check_connection(failures)?;
        let cluster: ClusterId = cluster.parse().map_err(|_| {
            self.failed(failures);
            Status::invalid_argument("the request names no cluster")
        })?;
        let now = SystemTime::now();
        let seen = self.shared.directory.attestation(&cluster).await.map_err(|error| unavailable(&error))?;
        let Some(workload) = attestation::open(&seen) else {
            return Err(self.closed(&cluster));
        };
        let act = EnrollmentAction::CheckPod;
        let (agent, pod) = self.verified_pod(act, &cluster, workload, &token, now).await?;
        self.check_admitted(act, &agent, &pod, now).await?;
        self.checked(&self.attempt(act, &cluster, audit_log::pod(&pod))).await
    }

    /// Records a check that passed. Without a record there is no answer, as for a certificate.
    async fn checked(&self, attempt: &Attempt<'_>) -> Result<(), Status> {
        attempt.checked(&self.shared.log).await.map_err(|error| not_recorded(&error))?;
        info!(from = %self.peer, act = attempt.verb(), whom = attempt.whom(), "a token was checked, and nothing was issued");
        Ok(())
    }
}
