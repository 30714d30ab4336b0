//! The first certificate of a further pod, for a token of its ServiceAccount.

use std::time::SystemTime;

use proto::ClusterId;
use proto::enrollment::AttestRequest;
use proto::spiffe::AgentId;
use tonic::Status;
use tracing::{info, warn};
use trust::proof::Attestation;

use super::super::attestation::{self, PodVerification};
use super::super::audit_log::{self, Attempt, EnrollmentAction};
use super::{CertificateSubject, EnrollmentService, unavailable};
use crate::directory::{AttestError, IssuedChain, Workload};
use crate::identity::oidc::pod::Pod;
use crate::metrics::{self, EnrollmentOutcome};

impl EnrollmentService {
    /// The certificate chain for the pod.
    pub(super) async fn attested(&self, request: AttestRequest) -> Result<IssuedChain, Status> {
        let AttestRequest { cluster, service_account_token: token, certificate_request, nonce, proof } =
            request;
        let (failures, directory) = (&self.shared.pod_failures, &self.shared.directory);
        self.check_connection(failures)?;
        // The nonce is used up in any case.
        let nonce = self.nonce.take(&nonce);
        let cluster: ClusterId = cluster.parse().map_err(|_| {
            self.failed(failures);
            Status::invalid_argument("the request names no cluster")
        })?;
        let now = SystemTime::now();
        let seen = directory.attestation(&cluster).await.map_err(|error| unavailable(&error))?;
        let Some(workload) = attestation::open(&seen) else {
            return Err(self.closed(&cluster));
        };
        let Some(nonce) = nonce else {
            return Err(
                self.refuse_pod(&cluster, "it does not show the nonce that this connection was given")
            );
        };
        let (agent, pod) =
            self.verified_pod(EnrollmentAction::Attest, &cluster, workload, &token, now).await?;
        let key = self.key(&certificate_request, failures)?;
        let spki = key.spki();
        let proof_input = Attestation { exporter: &self.exporter, nonce: &nonce, token: &token, spki: &spki };
        if !proof_input.is_signed(&proof) {
            let reason = "its proof is not by the key that a certificate is asked for";
            let attempt = self.attempt(EnrollmentAction::Attest, &cluster, audit_log::pod(&pod));
            return Err(self.refuse_signed_pod(&attempt, reason).await);
        }
        self.check_admitted(EnrollmentAction::Attest, &agent, &pod, now).await?;
        let attempt = self.attempt(EnrollmentAction::Attest, &cluster, audit_log::pod(&pod));
        let subject = CertificateSubject { agent: agent.clone(), pod: Some(pod.name.clone()), key };
        let detail = format!("pod {}/{}", pod.namespace, pod.name);
        let record = async |issued| {
            let answer = directory.attest(&agent, seen.clone(), issued, now).await;
            answer.map_err(|error| match error {
                AttestError::Changed => Status::aborted("the cluster's records have changed; try again"),
                AttestError::Full => {
                    warn!(%cluster, "a pod has proved itself, but its cluster has as many agents as it can have");
                    Status::resource_exhausted(error.to_string())
                }
                AttestError::Store(error) => unavailable(&error),
            })
        };
        let answer = self.certify(&attempt, detail, subject, now, record).await?;
        info!(%agent, pod = pod.name, from = %self.peer, "a pod has proved itself and is an agent");
        metrics::enrollment(EnrollmentOutcome::Attested);
        Ok(answer)
    }

    /// The pod that a token of the recorded `workload` names, and the agent that it is. Counts against the limits of both.
    pub(super) async fn verified_pod(
        &self,
        act: EnrollmentAction,
        cluster: &ClusterId,
        workload: &Workload,
        token: &str,
        now: SystemTime,
    ) -> Result<(AgentId, Pod), Status> {
        let audience = self.audience(cluster);
        let verification = PodVerification { verifier: self.shared.verifier, audience: &audience, now };
        let pod = match verification.pod(workload, token) {
            Ok(pod) => pod,
            Err(no) if no.is_signed() => {
                self.count_request(|rate_limits, now| rate_limits.cluster(cluster, now))?;
                let attempt = self.attempt(act, cluster, audit_log::of_issuer());
                return Err(self.refuse_signed_pod(&attempt, &no.to_string()).await);
            }
            Err(no) => return Err(self.refuse_pod(cluster, &no.to_string())),
        };
        let Some(agent) = AgentId::new(cluster.clone(), &pod.uid) else {
            return Err(self.refuse_pod(cluster, "its pod's UID names no agent"));
        };
        self.count_request(|rate_limits, now| rate_limits.agent(&agent, now))?;
        Ok((agent, pod))
    }

    /// Refuses a pod that was revoked.
    pub(super) async fn check_admitted(
        &self,
        act: EnrollmentAction,
        agent: &AgentId,
        pod: &Pod,
        now: SystemTime,
    ) -> Result<(), Status> {
        let Err(no) = self.admits(agent, now) else { return Ok(()) };
        let reason =
            format!("pod {} may not be an agent ({no}); delete it, and Kubernetes makes another", pod.name);
        let attempt = self.attempt(act, agent.cluster(), audit_log::pod(pod));
        Err(self.refuse_signed_pod(&attempt, &reason).await)
    }

    /// The answer for a cluster that is closed to pods or does not exist: one answer for both. It is no
    /// failure, because nothing was verified.
    pub(super) fn closed(&self, cluster: &ClusterId) -> Status {
        info!(from = %self.peer, %cluster, "a pod cannot enroll: its cluster has no recorded account, or is closed to pods");
        metrics::enrollment(EnrollmentOutcome::Refused);
        Status::failed_precondition(
            "pods of this cluster cannot prove themselves by their ServiceAccount: enroll one with a token first (tombolo token \
             create --cluster NAME); where agents were revoked, an administrator reopens it (tombolo cluster attestation reopen)",
        )
    }

    /// Refuses a pod whose token no recorded key has signed.
    fn refuse_pod(&self, cluster: &ClusterId, reason: &str) -> Status {
        let answer = "this pod could not prove that it is an agent of this cluster; the server's log says why, and `tombolo cluster \
                      attestation show` what is recorded";
        self.refuse_unauthenticated("attest", reason, cluster.as_str(), &self.shared.pod_failures, answer)
    }

    /// Refuses a pod whose token the cluster's issuer has signed, and tells it why.
    async fn refuse_signed_pod(&self, attempt: &Attempt<'_>, reason: &str) -> Status {
        self.refuse(attempt, reason, &self.shared.pod_failures).await;
        Status::permission_denied(format!("this pod is not let in: {reason}"))
    }
}
