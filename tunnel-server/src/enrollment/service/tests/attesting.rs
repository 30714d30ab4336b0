//! Further pods, by tokens of their ServiceAccount.

use super::*;

/// The first agent's pod has another UID.
const POD: &str = "1f";

/// Another cluster's key, another connection's nonce and a used nonce are refused.
#[tokio::test]
async fn a_pod_enrolls_once_for_each_nonce_by_its_own_clusters_key() {
    let server = Server::start().await;
    let (own, other) = (issuer("a"), issuer("a"));
    server.enrolled(&AgentKey::new(), Some(own.sent(ACCOUNT.0, ACCOUNT.1))).await;
    let (service, key) = (server.service(), AgentKey::new());
    let ask = async |request: AttestRequest| service.attest(Request::new(request)).await;
    let nonce = async || answered(service.challenge(Request::new(ChallengeRequest {})).await).nonce;
    let token = token(&own);

    let unasked = key.attest(&service, &[7; 32], &token);
    assert_eq!(refused(ask(unasked).await).0, Code::PermissionDenied);
    let unknown = key.attest(&service, &nonce().await, &self::token(&other));
    let (code, message) = refused(ask(unknown).await);
    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("could not prove"), "nothing is said of why: {message}");
    let elsewhere = key.attest(&server.service(), &nonce().await, &token);
    assert!(refused(ask(elsewhere).await).1.contains("its proof is not by the key"), "another connection's");
    let nameless =
        AttestRequest { cluster: "Edge A".to_owned(), ..key.attest(&service, &nonce().await, &token) };
    assert_eq!(refused(ask(nameless).await).0, Code::InvalidArgument);

    let request = key.attest(&service, &nonce().await, &token);
    let given = answered(ask(request.clone()).await).credential.unwrap();

    assert_eq!((given.chain.len(), given.trust_bundle.as_slice()), (2, BUNDLE));
    let agent = Certificate::of(&given).agent();
    assert_eq!(agent.instance(), POD);
    let record = server.shared.directory.agent(&agent).await.unwrap().unwrap();
    assert_eq!((record.pod.as_deref(), record.public_key), (Some("pod"), BASE64.encode(key.spki())));
    assert_eq!(refused(ask(request).await).0, Code::PermissionDenied, "the nonce is used up");
    let whose = "attest system:serviceaccount:tombolo:tunnel-agent";
    let lines = server.audited();
    assert_eq!(
        lines[2..],
        [
            format!("{whose} forbid 403: its proof is not by the key that a certificate is asked for"),
            format!("{whose} allow : pod tombolo/pod"),
            format!("{whose} allow 200 issued: pod tombolo/pod"),
        ]
    );
}

#[tokio::test]
async fn a_refused_pod_with_a_signed_token_gets_the_reason() {
    let server = Server::start().await;
    let own = issuer("a");
    server.enrolled(&AgentKey::new(), Some(own.sent(ACCOUNT.0, ACCOUNT.1))).await;
    let (service, key) = (server.service(), AgentKey::new());
    let other_account = own.token_of(POD, "tombolo", "default", "8e");

    let (code, message) = refused(attested(&service, &key, &other_account).await);

    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("tombolo/default (UID 8e)"), "{message}");
    let lines = server.audited();
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(lines[2].starts_with("attest  forbid 403: it is of the ServiceAccount"), "{lines:?}");
}

/// It makes no difference whether the pod itself or all agents of its cluster were revoked.
#[tokio::test]
async fn no_pod_enrolls_without_a_record_or_after_a_revocation() {
    let server = Server::start().await;
    let (own, key) = (issuer("a"), AgentKey::new());
    let refusal = async |service: &EnrollmentService| refused(attested(service, &key, &token(&own)).await);
    let (code, message) = refusal(&server.service()).await;
    assert_eq!(code, Code::FailedPrecondition);
    assert!(message.contains("tombolo cluster attestation reopen"), "{message}");
    server.enrolled(&AgentKey::new(), Some(own.sent(ACCOUNT.0, ACCOUNT.1))).await;
    answered(attested(&server.service(), &key, &token(&own)).await);

    let directory = &server.shared.directory;
    directory.revoke(Revoked::Agent(edge_a(), POD.to_owned()), SystemTime::now()).await.unwrap();

    let (code, message) = refusal(&server.service()).await;
    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("pod pod may not be an agent"), "{message}");
    directory.revoke(Revoked::Agents(edge_a()), SystemTime::now()).await.unwrap();
    assert_eq!(refusal(&server.service()).await.0, Code::FailedPrecondition, "its cluster is closed");
}

/// Nor holders of tokens. A pod that has failed itself is not looked at again.
#[tokio::test]
async fn failures_of_other_pods_at_its_address_block_no_good_pod() {
    let server = Server::start().await;
    let (own, other, key) = (issuer("a"), issuer("a"), AgentKey::new());
    server.enrolled(&AgentKey::new(), Some(own.sent(ACCOUNT.0, ACCOUNT.1))).await;
    for attempt in 0..FAILURES_MAX {
        let (code, _) = refused(attested(&server.service(), &key, &token(&other)).await);
        assert_eq!(code, Code::PermissionDenied, "attempt {attempt}");
    }

    let guessing = server.service();
    for token in [token(&other), token(&own)] {
        assert_eq!(refused(attested(&guessing, &key, &token).await).0, Code::ResourceExhausted);
    }
    answered(attested(&server.service(), &key, &token(&own)).await);
    server.enrolled(&AgentKey::new(), None).await;
}

#[tokio::test]
async fn a_pod_that_enrolls_again_and_again_is_rate_limited() {
    let server = Server::start().await;
    let (own, key) = (issuer("a"), AgentKey::new());
    server.enrolled(&AgentKey::new(), Some(own.sent(ACCOUNT.0, ACCOUNT.1))).await;
    for _ in 0..20 {
        answered(attested(&server.service(), &key, &token(&own)).await);
    }

    let (code, message) = refused(attested(&server.service(), &key, &token(&own)).await);

    assert_eq!(code, Code::ResourceExhausted, "{message}");
}

/// The answer to a pod that follows the protocol.
async fn attested(
    service: &EnrollmentService,
    key: &AgentKey,
    token: &str,
) -> Result<Response<AttestResponse>, Status> {
    let nonce = answered(service.challenge(Request::new(ChallengeRequest {})).await).nonce;
    service.attest(Request::new(key.attest(service, &nonce, token))).await
}

/// The token of a pod of the agents' account.
fn token(of: &TestCluster) -> String {
    of.token_of(POD, "tombolo", ACCOUNT.0, ACCOUNT.1)
}
