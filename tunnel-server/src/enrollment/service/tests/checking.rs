//! Checks of tokens: they say what Enroll and Attest would say, and change nothing.

use super::*;

/// The pod whose token is checked; the first agent's pod has another UID.
const POD: &str = "1f";

#[tokio::test]
async fn a_checked_token_stays_unused_and_enrolls_afterwards() {
    let server = Server::start().await;
    let (token, key) = (server.token().await, AgentKey::new());

    for _ in 0..2 {
        answered(check(&server.service(), &token, "edge-a", &[]).await);
    }

    let tokens = server.shared.directory.tokens().await.unwrap();
    assert!(tokens.iter().all(|entry| entry.token.used.is_none()), "{tokens:?}");
    assert!(server.shared.directory.agents(Some(edge_a())).await.unwrap().is_empty());
    answered(server.service().enroll(Request::new(key.enroll(&token))).await);
    let (id, _) = token.split_once('.').unwrap();
    let line = format!("check-token enrollment-token:{id} allow 200: only checked; nothing was issued");
    assert_eq!(server.audited()[..2], [line.clone(), line]);
}

/// A used token is good for the key that used it, whose answer was perhaps lost.
#[tokio::test]
async fn a_check_says_of_a_token_what_its_enrollment_would_say() {
    let server = Server::start().await;
    let (unused, used, key) = (server.token().await, server.token().await, AgentKey::new());
    answered(server.service().enroll(Request::new(key.enroll(&used))).await);
    let other = AgentKey::new();

    answered(check(&server.service(), &used, "edge-a", &key.spki()).await);
    for (token, cluster, key) in [
        (&used, "edge-a", &other),
        (&unused, "edge-b", &other),
        (&"nonsense".to_owned(), "edge-a", &other),
        (&format!("{}.{}", "0".repeat(16), "0".repeat(64)), "edge-a", &other),
    ] {
        let checked = refused(check(&server.service(), token, cluster, &key.spki()).await);
        let request = EnrollRequest { cluster: cluster.to_owned(), ..key.enroll(token) };
        let enrolled = refused(server.service().enroll(Request::new(request)).await);
        assert_eq!(checked, enrolled, "{token} {cluster}");
        assert_eq!(checked.0, Code::PermissionDenied);
    }
}

/// Guesses by checks count like guesses by enrollments.
#[tokio::test]
async fn failed_checks_are_throttled_together_with_failed_enrollments() {
    let server = Server::start().await;
    let (token, key) = (server.token().await, AgentKey::new());
    let service = server.service();
    for attempt in 0..FAILURES_MAX {
        let code = if attempt % 2 == 0 {
            refused(check(&service, "nonsense", "edge-a", &[]).await).0
        } else {
            refused(service.enroll(Request::new(key.enroll("nonsense"))).await).0
        };
        assert_eq!(code, Code::PermissionDenied, "attempt {attempt}");
    }

    assert_eq!(refused(check(&service, &token, "edge-a", &[]).await).0, Code::ResourceExhausted);
    assert_eq!(refused(check(&server.service(), "nonsense", "edge-a", &[]).await).0, Code::ResourceExhausted);
    answered(check(&server.service(), &token, "edge-a", &[]).await);
}

#[tokio::test]
async fn no_check_is_answered_without_an_audit_entry() {
    let mut server = Server::start().await;
    let token = server.token().await;
    server.stop_auditing();

    let (code, message) = refused(check(&server.service(), &token, "edge-a", &[]).await);

    assert_eq!(code, Code::Unavailable, "{message}");
    assert!(message.contains("audit log"), "{message}");
}

/// The pod's agent, if there is one already, keeps its certificate.
#[tokio::test]
async fn a_checked_pod_gets_no_certificate_and_no_record() {
    let server = Server::start().await;
    let (own, other) = (issuer("a"), issuer("a"));
    let token = |of: &TestCluster| of.token_of(POD, "tombolo", ACCOUNT.0, ACCOUNT.1);
    let (code, message) = refused(check_pod(&server.service(), &token(&own)).await);
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.contains("enroll one with a token first"), "{message}");
    server.enrolled(&AgentKey::new(), Some(own.sent(ACCOUNT.0, ACCOUNT.1))).await;

    answered(check_pod(&server.service(), &token(&own)).await);
    assert_eq!(refused(check_pod(&server.service(), &token(&other)).await).0, Code::PermissionDenied);

    let agents = server.shared.directory.agents(Some(edge_a())).await.unwrap();
    assert_eq!(agents.len(), 1, "the agent that enrolled by a token");
    let agent = AgentId::new(edge_a(), POD).unwrap();
    assert!(server.shared.directory.agent(&agent).await.unwrap().is_none());
    let whose = "check-pod system:serviceaccount:tombolo:tunnel-agent";
    let lines = server.audited();
    assert_eq!(lines[2..], [format!("{whose} allow 200: only checked; nothing was issued")]);
}

async fn check(
    service: &EnrollmentService,
    token: &str,
    cluster: &str,
    public_key: &[u8],
) -> Result<Response<CheckTokenResponse>, Status> {
    let (token, cluster, public_key) = (token.to_owned(), cluster.to_owned(), public_key.to_vec());
    service.check_token(Request::new(CheckTokenRequest { token, cluster, public_key })).await
}

async fn check_pod(service: &EnrollmentService, token: &str) -> Result<Response<CheckPodResponse>, Status> {
    let (cluster, service_account_token) = ("edge-a".to_owned(), token.to_owned());
    service.check_pod(Request::new(CheckPodRequest { cluster, service_account_token })).await
}
