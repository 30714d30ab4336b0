//! Audit log entries of enrollment: which agent got a certificate, and by which proof.

use std::net::SocketAddr;

use audit::{Annotation, AuditError, Completion, EndReason, Event, Log, Receipt, Status, User};
use proto::ClusterId;
use proto::spiffe::AgentId;

use crate::exchanges::grpc;
use crate::identity::oidc::pod::Pod;

/// An action of enrollment, as the audit log names it.
#[derive(Debug, Clone, Copy)]
pub(super) enum EnrollmentAction {
    /// The first certificate, by an enrollment token.
    Enroll,
    /// The certificate of a pod, by its ServiceAccount token.
    Attest,
    /// The next certificate, by the key of the last one.
    Renew,
    /// New keys of a cluster's issuer are recorded.
    AddKeys,
    /// An enrollment token is checked and stays as it is.
    CheckToken,
    /// A pod's ServiceAccount token is checked, and no certificate is issued.
    CheckPod,
}

/// An attempt by an authenticated client, for the audit log.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    pub(super) act: EnrollmentAction,
    pub(super) cluster: &'a ClusterId,
    pub(super) from: SocketAddr,
    pub(super) user: User,
}

impl Attempt<'_> {
    /// Writes the intent of the attempt, and waits until that is on disk.
    pub(super) async fn intent(&self, log: &Log, detail: String) -> Result<Receipt, AuditError> {
        log.intent(self.event(detail).with(Annotation::Decision, "allow")).await
    }

    /// Writes a check that passed, and waits until that is on disk.
    pub(super) async fn checked(&self, log: &Log) -> Result<(), AuditError> {
        let event = self.event("only checked; nothing was issued".to_owned());
        let completion = Completion::new(Some(Status::code(200)), EndReason::Clean);
        log.write(event.with(Annotation::Decision, "allow"), completion).await
    }

    /// Writes the refusal of the attempt.
    pub(super) async fn forbidden(&self, log: &Log, reason: &str) -> Result<(), AuditError> {
        let event = self.event(reason.to_owned()).with(Annotation::Decision, "forbid");
        log.write(event, refused()).await
    }

    /// The verb of the action in the audit log.
    pub(super) fn verb(&self) -> &'static str {
        self.names().0
    }

    /// The client's name in the server's own log.
    pub(super) fn whom(&self) -> String {
        match self.user.username.as_str() {
            "" => self.cluster.to_string(),
            name => format!("{name} of {}", self.cluster),
        }
    }

    fn names(&self) -> (&'static str, &'static str) {
        match self.act {
            EnrollmentAction::Enroll => ("enroll", "/tombolo.enrollment.v1.Enrollment/Enroll"),
            EnrollmentAction::Attest => ("attest", "/tombolo.enrollment.v1.Enrollment/Attest"),
            EnrollmentAction::Renew => ("renew", "/tombolo.enrollment.v1.Enrollment/Renew"),
            EnrollmentAction::AddKeys => ("add-issuer-keys", "/tombolo.enrollment.v1.Enrollment/Renew"),
            EnrollmentAction::CheckToken => ("check-token", "/tombolo.enrollment.v1.Enrollment/CheckToken"),
            EnrollmentAction::CheckPod => ("check-pod", "/tombolo.enrollment.v1.Enrollment/CheckPod"),
        }
    }

    fn event(&self, detail: String) -> Event {
        let (verb, path) = self.names();
        let mut event = Event::new(verb, path, self.user.clone())
            .with(Annotation::Listener, "enrollment")
            .with(Annotation::Cluster, self.cluster.as_str())
            .with(Annotation::Source, self.from.to_string())
            .with(Annotation::Detail, detail);
        event.source = Some(self.from);
        event
    }
}

/// The audit log's user for the holder of a token, by the token's ID.
pub(super) fn holder(token: &str) -> User {
    user(format!("enrollment-token:{token}"), "enrollment-token")
}

/// The audit log's user for a pod: the name that Kubernetes gives its account.
pub(super) fn pod(pod: &Pod) -> User {
    user(format!("system:serviceaccount:{}:{}", pod.namespace, pod.account), "service-account-token")
}

/// The audit log's user for an agent with the recorded key.
pub(super) fn agent(instance: &str) -> User {
    user(format!("agent:{instance}"), "recorded-key")
}

/// The audit log's user for a pod that the cluster's issuer has signed, but that is none of its agents.
pub(super) fn of_issuer() -> User {
    user(String::new(), "service-account-token")
}

/// The completion of an action that succeeded.
pub(super) fn done(instance: &str) -> Completion {
    Completion::new(Some(Status::code(200)), EndReason::Clean).with(Annotation::Agent, instance)
}

/// The completion of an action that issued a certificate with this serial number, or failed.
pub(super) fn outcome<T>(agent: &AgentId, outcome: &Result<(T, String), tonic::Status>) -> Completion {
    match outcome {
        Ok((_, serial)) => done(agent.instance()).with(Annotation::Issued, serial),
        Err(status) => Completion::new(Some(grpc::status(status.code())), EndReason::Refused),
    }
}

/// The completion of an action that was refused.
pub(super) fn refused() -> Completion {
    Completion::new(Some(Status { code: 403, reason: "Forbidden" }), EndReason::Refused)
}

fn user(username: String, method: &str) -> User {
    User { username, method: method.to_owned(), ..User::default() }
}
