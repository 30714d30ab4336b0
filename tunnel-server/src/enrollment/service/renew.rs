//! The next certificate of an agent, for proof that it holds the key of its last one.

use std::time::SystemTime;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use proto::ClusterId;
use proto::enrollment::RenewRequest;
use proto::spiffe::AgentId;
use tonic::Status;
use tracing::{info, warn};
use trust::Serial;
use trust::proof::{Proof, Purpose};

use super::super::attestation;
use super::super::audit_log::{self, EnrollmentAction};
use super::super::shared::SharedEnrollment;
use super::{CertificateSubject, EnrollmentService, unavailable};
use crate::directory::{self, Agent, IssuedChain, RenewError, RenewalOutcome};
use crate::metrics::{self, EnrollmentOutcome};

impl EnrollmentService {
    /// The certificate chain for the agent. A request with the serial number of a recorded certificate, which
    /// nobody can guess, is not refused for the failures of others at its address: many sites share one
    /// address.
    pub(super) async fn renewed(&self, request: RenewRequest) -> Result<IssuedChain, Status> {
        let SharedEnrollment { failures, directory, settings, .. } = &*self.shared;
        let now = SystemTime::now();
        let cluster = request.cluster.parse::<ClusterId>().ok();
        let agent = cluster.and_then(|cluster| AgentId::new(cluster, &request.instance));
        let serial = <[u8; 16]>::try_from(request.serial.as_slice()).ok().map(Serial::from);
        let (Some(agent), Some(serial)) = (agent, serial) else {
            self.check_connection(failures)?;
            self.failed(failures);
            return Err(Status::invalid_argument("the request names no agent, or no serial number"));
        };
        let agent = &agent;
        let refused = |reason: &str| {
            self.refuse_unauthenticated("renew", reason, &agent.to_string(), failures, NOT_RENEWED)
        };
        let record = directory.agent(agent).await.map_err(|error| unavailable(&error))?;
        let Some(record) = record.filter(|record| record.has_serial(&serial.to_string())) else {
            return Err(refused("it was never enrolled, or its certificate is not on record"));
        };
        let key = self.key(&request.certificate_request, failures)?;
        let spki = key.spki();
        let claim = record
            .claims(&serial.to_string(), &BASE64.encode(&spki), now.into(), settings.grace)
            .map_err(|no| refused(&no.to_string()))?;
        let proof_input = Proof { purpose: Purpose::Renewal, exporter: &self.exporter, serial, spki: &spki };
        let signer = BASE64.decode(&claim.signer).unwrap_or_default();
        if !proof_input.is_signed(&signer, &request.proof) {
            return Err(refused("its proof is not by the key on record"));
        }
        let credential = directory::AgentCredential { serial: record.serial.clone(), issued: record.issued };
        let admitted = directory.admits(agent, &credential);
        let user = audit_log::agent(agent.instance());
        let attempt = self.attempt(EnrollmentAction::Renew, agent.cluster(), user);
        match (admitted, claim.outcome) {
            (Ok(()), RenewalOutcome::Again(answer)) => return Ok(answer),
            (_, RenewalOutcome::Replaced) => {
                self.alarm_of_copied_key(agent);
                self.count_request(|rate_limits, now| rate_limits.replaced(agent, now))?;
                self.refuse(&attempt, "its key was replaced", failures).await;
                return Err(not_renewed());
            }
            (Err(no), _) => {
                self.count_request(|rate_limits, now| rate_limits.agent(agent, now))?;
                self.refuse(&attempt, &no.to_string(), failures).await;
                return Err(not_renewed());
            }
            (Ok(()), RenewalOutcome::Next) => {
                self.count_request(|rate_limits, now| rate_limits.agent(agent, now))?
            }
        }
        self.learn(agent, &record, &request.issuer_keys, now).await;
        let subject = CertificateSubject { agent: agent.clone(), pod: record.pod, key };
        let detail = format!("by the key of the certificate {serial}");
        let renew = async |issued| {
            let answer = directory.renew(agent, serial.to_string(), issued).await;
            answer.map_err(|error| match error {
                RenewError::Changed => Status::aborted("another request was quicker; try again"),
                RenewError::Store(error) => unavailable(&error),
            })
        };
        let answer = self.certify(&attempt, detail, subject, now, renew).await?;
        info!(%agent, from = %self.peer, "an agent's certificate was renewed");
        metrics::enrollment(EnrollmentOutcome::Renewed);
        Ok(answer)
    }

    /// Raises the alarm for a client with a key that the agent has replaced.
    fn alarm_of_copied_key(&self, agent: &AgentId) {
        warn!(
            %agent,
            from = %self.peer,
            "a client has a key that this agent has replaced: it was copied, or the agent's state was \
             restored from a copy; revoke the agent and enroll it again"
        );
        metrics::key_copied();
    }

    /// Records new keys of the cluster's issuer. Only a pod with a valid certificate can add any, and the
    /// renewal does not depend on it.
    async fn learn(&self, agent: &AgentId, record: &Agent, shown: &[u8], now: SystemTime) {
        let may_speak = record.pod.is_some() && record.expires >= now.into();
        if shown.is_empty() || !may_speak {
            return;
        }
        let (directory, log, cluster) = (&self.shared.directory, &self.shared.log, agent.cluster());
        let Ok(seen) = directory.attestation(cluster).await else { return };
        let user = audit_log::agent(agent.instance());
        let attempt = self.attempt(EnrollmentAction::AddKeys, cluster, user);
        match attestation::add_keys(&seen, shown) {
            Ok(None) => {}
            Ok(Some((next, names))) => {
                // Without its audit line nothing is recorded. The next renewal brings the keys again.
                let Ok(receipt) = attempt.intent(log, format!("keys of the issuer: {names}")).await else {
                    return;
                };
                match directory.update_attestation(cluster, seen, next).await {
                    Ok(()) => {
                        receipt.complete(audit_log::done(agent.instance()));
                        warn!(%agent, names, "keys of this cluster's issuer were added, by one that was known");
                    }
                    Err(error) => {
                        receipt.complete(audit_log::refused());
                        info!(%agent, error = %daemon::error_chain(&error), "keys of a cluster's issuer were not added");
                    }
                }
            }
            Err(reason) => {
                let reason = reason.to_string();
                self.record_refusal(&attempt, &reason).await;
                warn!(
                    %agent,
                    reason,
                    "this cluster's issuer has keys that are not recorded, and further pods cannot prove themselves by them: \
                     look into it, then use: tombolo cluster attestation set-keys"
                );
            }
        }
    }
}

/// The one answer for every reason.
const NOT_RENEWED: &str = "this certificate cannot be renewed; enroll the agent again with a new token";

fn not_renewed() -> Status {
    Status::permission_denied(NOT_RENEWED)
}
