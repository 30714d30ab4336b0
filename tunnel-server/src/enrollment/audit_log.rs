//! What the audit log learns of who became an agent, and by what.

use std::net::SocketAddr;

use audit::{Completion, EndReason, Event, Log, NotRecorded, Note, Receipt, Status, User};
use proto::ClusterId;
use proto::spiffe::AgentId;

use crate::exchanges::grpc;
use crate::identity::oidc::pod::Pod;

/// What is done, as the log has it.
#[derive(Debug, Clone, Copy)]
pub(super) enum EnrollmentAction {
    /// By a token.
    Enroll,
    /// By a pod's ServiceAccount.
    Attest,
    /// By the key of the last certificate.
    Renew,
    /// An issuer's new keys are recorded.
    AddKeys,
}

/// Somebody who is known, and what they want.
#[derive(Debug)]
pub(super) struct Attempt<'a> {
    pub(super) act: EnrollmentAction,
    pub(super) cluster: &'a ClusterId,
    pub(super) from: SocketAddr,
    pub(super) user: User,
}

impl Attempt<'_> {
    /// Records what is about to be done, and waits until that is written.
    pub(super) async fn intent(&self, log: &Log, detail: String) -> Result<Receipt, NotRecorded> {
        log.intent(self.event(detail).with(Note::Decision, "allow")).await
    }

    /// Records what was refused.
    pub(super) async fn forbidden(&self, log: &Log, reason: &str) -> Result<(), NotRecorded> {
        let event = self.event(reason.to_owned()).with(Note::Decision, "forbid");
        log.record(event, refused()).await
    }

    /// What is wanted, in a word.
    pub(super) fn verb(&self) -> &'static str {
        self.names().0
    }

    /// Who wants it, for the server's own log.
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
        }
    }

    fn event(&self, detail: String) -> Event {
        let (verb, path) = self.names();
        let mut event = Event::new(verb, path, self.user.clone())
            .with(Note::Listener, "enrollment")
            .with(Note::Cluster, self.cluster.as_str())
            .with(Note::Source, self.from.to_string())
            .with(Note::Detail, detail);
        event.source = Some(self.from);
        event
    }
}

/// The holder of a token, by its id.
pub(super) fn holder(token: &str) -> User {
    user(format!("enrollment-token:{token}"), "enrollment-token")
}

/// A pod, as Kubernetes calls its account.
pub(super) fn pod(pod: &Pod) -> User {
    user(format!("system:serviceaccount:{}:{}", pod.namespace, pod.account), "service-account-token")
}

/// An agent by the key on record.
pub(super) fn agent(instance: &str) -> User {
    user(format!("agent:{instance}"), "recorded-key")
}

/// Somebody for whom the cluster's issuer has signed, but who is none of its agents.
pub(super) fn of_issuer() -> User {
    user(String::new(), "service-account-token")
}

/// It was done.
pub(super) fn done(instance: &str) -> Completion {
    Completion::new(Some(Status::code(200)), EndReason::Clean).with(Note::Agent, instance)
}

/// A certificate was issued, with this serial number, or it was not.
pub(super) fn outcome<T>(agent: &AgentId, outcome: &Result<(T, String), tonic::Status>) -> Completion {
    match outcome {
        Ok((_, serial)) => done(agent.instance()).with(Note::Issued, serial),
        Err(status) => Completion::new(Some(grpc::status(status.code())), EndReason::Refused),
    }
}

/// It was not.
pub(super) fn refused() -> Completion {
    Completion::new(Some(Status { code: 403, reason: "Forbidden" }), EndReason::Refused)
}

fn user(username: String, method: &str) -> User {
    User { username, method: method.to_owned(), ..User::default() }
}
