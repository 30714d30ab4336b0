//! Enrollment tokens: each is good for one key, once, for its cluster.

use super::*;

/// The token is good for its own cluster only, and refused with a second key.
#[tokio::test]
async fn a_token_enrolls_one_key_and_repeats_its_answer_to_the_same_key() {
    let server = Server::start().await;
    let (token, first, second) = (server.token().await, AgentKey::new(), AgentKey::new());
    let ask = async |request: EnrollRequest| server.service().enroll(Request::new(request)).await;
    let elsewhere = EnrollRequest { cluster: "edge-b".to_owned(), ..first.enroll(&token) };
    assert_eq!(refused(ask(elsewhere).await).0, Code::PermissionDenied);

    let given = answered(ask(first.enroll(&format!("{token}\n"))).await);
    let again = answered(ask(first.enroll(&token)).await);

    assert_eq!(given, again);
    assert!(!given.workload_recorded);
    let credential = given.credential.unwrap();
    assert_eq!((credential.chain.len(), credential.trust_bundle.as_slice()), (2, BUNDLE));
    let (_, certificate) = x509_parser::parse_x509_certificate(&credential.chain[0]).unwrap();
    assert_eq!(certificate.public_key().raw, first.spki());
    let agent = Certificate::of(&credential).agent();
    let record = server.shared.directory.agent(&agent).await.unwrap().unwrap();
    assert_eq!(record.serial, Certificate::of(&credential).serial.to_string());
    assert_eq!(record.expires.0, u64::try_from(certificate.validity().not_after.timestamp()).unwrap());
    let (code, message) = refused(ask(second.enroll(&token)).await);
    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("tombolo token create"), "{message}");
    let (id, _) = token.split_once('.').unwrap();
    let whose = format!("enroll enrollment-token:{id} allow");
    let what = ": an agent of which no ServiceAccount is known";
    assert_eq!(server.audited(), [format!("{whose} {what}"), format!("{whose} 200 issued{what}")]);
}

#[tokio::test]
async fn agents_that_are_no_pods_have_different_names() {
    let server = Server::start().await;
    let [one, other] =
        [server.enrolled(&AgentKey::new(), None).await, server.enrolled(&AgentKey::new(), None).await];
    let [one, other] = [one, other].map(|given| Certificate::of(&given).instance);
    assert_ne!(one, other);
    assert_eq!((one.len(), other.len()), (16, 16));
}

/// Of a source with too many failures, only the first attempt of each connection is looked at.
#[tokio::test]
async fn failed_enrollments_of_an_address_do_not_refuse_good_tokens_from_it() {
    let server = Server::start().await;
    let (token, key) = (server.token().await, AgentKey::new());
    let service = server.service();
    for attempt in 0..FAILURES_MAX {
        let wrong = match attempt % 3 {
            0 => key.enroll("nonsense"),
            1 => EnrollRequest { certificate_request: Vec::new(), ..key.enroll(&token) },
            _ => EnrollRequest { cluster: "edge-b".to_owned(), ..key.enroll(&token) },
        };
        let (code, _) = refused(service.enroll(Request::new(wrong)).await);
        let expected = if attempt % 3 == 1 { Code::InvalidArgument } else { Code::PermissionDenied };
        assert_eq!(code, expected, "attempt {attempt}");
    }

    let (code, message) = refused(service.enroll(Request::new(key.enroll(&token))).await);

    assert_eq!(code, Code::ResourceExhausted, "{message}");
    let wrong = server.service();
    for guess in ["nonsense", &token] {
        let (code, _) = refused(wrong.enroll(Request::new(key.enroll(guess))).await);
        assert_eq!(code, Code::ResourceExhausted);
    }
    answered(server.service().enroll(Request::new(key.enroll(&token))).await);
}

#[tokio::test]
async fn no_certificate_is_issued_without_an_audit_entry() {
    let mut server = Server::start().await;
    let (token, key) = (server.token().await, AgentKey::new());
    server.stop_auditing();

    let (code, message) = refused(server.service().enroll(Request::new(key.enroll(&token))).await);

    assert_eq!(code, Code::Unavailable, "{message}");
    assert!(message.contains("audit log"), "{message}");
    assert!(server.shared.directory.agents(Some(edge_a())).await.unwrap().is_empty());
}

#[tokio::test]
async fn a_token_stays_unused_and_is_audited_if_signing_fails() {
    // This is longer than the intermediate's validity.
    let server = Server::start_issuing_for(Duration::from_secs(100 * 365 * 24 * 60 * 60)).await;
    let (token, key) = (server.token().await, AgentKey::new());

    let (code, message) = refused(server.service().enroll(Request::new(key.enroll(&token))).await);

    assert_eq!(code, Code::Unavailable, "{message}");
    let tokens = server.shared.directory.tokens().await.unwrap();
    assert!(tokens.iter().all(|entry| entry.token.used.is_none()), "{tokens:?}");
    let lines = server.audited();
    assert!(lines[1].contains(" allow 503: "), "{lines:?}");
}

/// The holder can enroll afterwards with a workload that its issuer has signed.
#[tokio::test]
async fn a_token_with_an_unsigned_workload_stays_unused_and_gets_the_reason() {
    let server = Server::start().await;
    let (token, key, own, other) = (server.token().await, AgentKey::new(), issuer("a"), issuer("a"));
    let workload = Some(Workload { issuer_keys: other.keys(), ..own.sent(ACCOUNT.0, ACCOUNT.1) });
    let wrong = EnrollRequest { workload, ..key.enroll(&token) };
    let right = EnrollRequest { workload: Some(own.sent(ACCOUNT.0, ACCOUNT.1)), ..key.enroll(&token) };

    let (code, message) = refused(server.service().enroll(Request::new(wrong)).await);
    let given = answered(server.service().enroll(Request::new(right)).await);

    assert_eq!(code, Code::InvalidArgument);
    assert!(message.contains("token that came along is not taken"), "{message}");
    assert!(given.workload_recorded);
    let lines = server.audited();
    let (id, _) = token.split_once('.').unwrap();
    let refusal = format!("enroll enrollment-token:{id} forbid 403: {message}");
    assert_eq!(lines[0], refusal);
    assert!(lines[1].contains("pod tombolo/pod of the ServiceAccount tunnel-agent (UID 7d)"), "{lines:?}");
}
