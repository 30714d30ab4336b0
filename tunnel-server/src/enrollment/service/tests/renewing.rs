//! Renewal: the next certificate, by the key of the last one.

use super::*;

/// A repeat can come over another connection.
#[tokio::test]
async fn the_recorded_key_renews_and_an_exact_repeat_gets_the_same_answer() {
    let server = Server::start().await;
    let (old, new) = (AgentKey::new(), AgentKey::new());
    let enrolled = Certificate::of(&server.enrolled(&old, None).await);
    let (service, elsewhere) = (server.service(), server.service());

    let given =
        answered(service.renew(Request::new(old.renew(&service, &enrolled, &new))).await).credential.unwrap();
    let again = elsewhere.renew(Request::new(old.renew(&elsewhere, &enrolled, &new))).await;

    assert_eq!(answered(again).credential.unwrap(), given);
    assert_eq!(given.trust_bundle, BUNDLE);
    let renewed = Certificate::of(&given);
    assert_eq!(renewed.instance, enrolled.instance);
    assert_ne!(renewed.serial, enrolled.serial);
    let record = server.shared.directory.agent(&renewed.agent()).await.unwrap().unwrap();
    assert_eq!(record.public_key, BASE64.encode(new.spki()));
    let whose = format!("renew agent:{} allow", enrolled.instance);
    let what = format!(": by the key of the certificate {}", enrolled.serial);
    assert_eq!(server.audited()[2..], [format!("{whose} {what}"), format!("{whose} 200 issued{what}")]);
}

#[tokio::test]
async fn a_replaced_key_is_refused_and_audited() {
    let server = Server::start().await;
    let (old, new, thief) = (AgentKey::new(), AgentKey::new(), AgentKey::new());
    let enrolled = Certificate::of(&server.enrolled(&old, None).await);
    let service = server.service();
    answered(service.renew(Request::new(old.renew(&service, &enrolled, &new))).await);

    let (code, message) = refused(service.renew(Request::new(old.renew(&service, &enrolled, &thief))).await);

    assert_eq!(code, Code::PermissionDenied);
    assert!(message.contains("enroll the agent again"), "{message}");
    let lines = server.audited();
    let refusal = format!("renew agent:{} forbid 403: its key was replaced", enrolled.instance);
    assert_eq!(lines[4..], [refusal]);
}

/// The agent asks again, here or at another server.
#[tokio::test]
async fn no_certificate_is_issued_while_the_clocks_of_servers_are_apart() {
    let server = Server::start().await;
    let (old, new) = (AgentKey::new(), AgentKey::new());
    let enrolled = Certificate::of(&server.enrolled(&old, None).await);
    let token = server.token().await;
    let service = server.service();
    let other = server.shared.clocks.read("server-2");
    let ahead = SystemTime::now().duration_since(UNIX_EPOCH).unwrap() + Duration::from_secs(60);
    other.take(u64::try_from(ahead.as_millis()).unwrap(), Duration::ZERO);

    let renewal = refused(service.renew(Request::new(old.renew(&service, &enrolled, &new))).await);
    let enrollment = refused(service.enroll(Request::new(new.enroll(&token))).await);

    for (code, message) in [renewal, enrollment] {
        assert_eq!(code, Code::Unavailable);
        assert!(message.contains("the clocks of the servers server-1 and server-2 differ by"), "{message}");
    }
    drop(other);
    answered(service.renew(Request::new(old.renew(&service, &enrolled, &new))).await);
    answered(service.enroll(Request::new(AgentKey::new().enroll(&token))).await);
}

/// The proof is also bound to the connection and to the key of the next certificate.
#[tokio::test]
async fn a_proof_that_is_not_by_the_recorded_key_renews_nothing() {
    let server = Server::start().await;
    let (old, new, refuse_unauthenticated) = (AgentKey::new(), AgentKey::new(), AgentKey::new());
    let enrolled = Certificate::of(&server.enrolled(&old, None).await);
    let service = server.service();
    let good = || old.renew(&service, &enrolled, &new);
    let serial = enrolled.serial.to_bytes().to_vec();
    for (what, request, code) in [
        ("another's key", refuse_unauthenticated.renew(&service, &enrolled, &new), Code::PermissionDenied),
        ("another connection", old.renew(&server.service(), &enrolled, &new), Code::PermissionDenied),
        (
            "another key than it is signed for",
            RenewRequest { certificate_request: refuse_unauthenticated.csr(), ..good() },
            Code::PermissionDenied,
        ),
        ("the key that it has", old.renew(&service, &enrolled, &old), Code::PermissionDenied),
        ("no certificate on record", RenewRequest { serial: vec![7; 16], ..good() }, Code::PermissionDenied),
        (
            "no agent on record",
            RenewRequest { instance: "nobody".to_owned(), ..good() },
            Code::PermissionDenied,
        ),
        ("no request", RenewRequest { certificate_request: Vec::new(), ..good() }, Code::InvalidArgument),
        ("no serial number", RenewRequest { serial: serial[1..].to_vec(), ..good() }, Code::InvalidArgument),
        ("no cluster", RenewRequest { cluster: "Edge A".to_owned(), ..good() }, Code::InvalidArgument),
    ] {
        assert_eq!(refused(service.renew(Request::new(request)).await).0, code, "{what}");
    }
    answered(service.renew(Request::new(good())).await);
}

#[tokio::test]
async fn failures_of_others_at_its_address_block_no_recorded_agent() {
    let server = Server::start().await;
    let (old, new) = (AgentKey::new(), AgentKey::new());
    let enrolled = Certificate::of(&server.enrolled(&old, None).await);
    let service = server.service();
    let guess = || RenewRequest { serial: vec![7; 16], ..old.renew(&service, &enrolled, &new) };
    for attempt in 0..FAILURES_MAX {
        let code = refused(service.renew(Request::new(guess())).await).0;
        assert_eq!(code, Code::PermissionDenied, "attempt {attempt}");
    }

    assert_eq!(refused(service.renew(Request::new(guess())).await).0, Code::ResourceExhausted);
    let nobody = RenewRequest { serial: Vec::new(), ..guess() };
    assert_eq!(refused(service.renew(Request::new(nobody)).await).0, Code::ResourceExhausted);
    answered(service.renew(Request::new(old.renew(&service, &enrolled, &new))).await);
}

#[tokio::test]
async fn a_revoked_agent_renews_nothing_and_is_audited() {
    let server = Server::start().await;
    let (old, new) = (AgentKey::new(), AgentKey::new());
    let enrolled = Certificate::of(&server.enrolled(&old, None).await);
    let revoked = Revoked::Agent(edge_a(), enrolled.instance.clone());
    server.shared.directory.revoke(revoked, SystemTime::now()).await.unwrap();
    let service = server.service();

    let (code, _) = refused(service.renew(Request::new(old.renew(&service, &enrolled, &new))).await);

    assert_eq!(code, Code::PermissionDenied);
    let lines = server.audited();
    assert!(lines[2].starts_with(&format!("renew agent:{} forbid 403: ", enrolled.instance)), "{lines:?}");
}

#[tokio::test]
async fn a_pod_adds_new_keys_of_its_issuer_if_one_is_known() {
    let server = Server::start().await;
    let [first, second, third] = ["one", "two", "three"].map(issuer);
    let pod = AgentKey::new();
    let enrolled = server.enrolled(&pod, Some(first.sent(ACCOUNT.0, ACCOUNT.1))).await;
    let renewed = async |old: &AgentKey, of: &Credential, shown: Vec<u8>| {
        let (service, next) = (server.service(), AgentKey::new());
        let request = RenewRequest { issuer_keys: shown, ..old.renew(&service, &Certificate::of(of), &next) };
        (answered(service.renew(Request::new(request)).await).credential.unwrap(), next)
    };
    let attempt = async || {
        let found = server.shared.directory.attestation(&edge_a()).await.unwrap().workload.unwrap();
        ["one", "two", "three"].map(|name| found.issuer_keys.contains(&format!("\"{name}\"")))
    };

    let (credential, key) = renewed(&pod, &enrolled, keys(&[&first, &second])).await;
    assert_eq!(attempt().await, [true, true, false]);
    let (credential, key) = renewed(&key, &credential, third.keys()).await;
    assert_eq!(attempt().await, [true, true, false], "none of them was known");
    renewed(&key, &credential, keys(&[&first, &second])).await;

    let agent = format!("add-issuer-keys agent:{}", Certificate::of(&enrolled).instance);
    let lines: Vec<String> =
        server.audited().into_iter().filter(|line| line.starts_with("add-issuer-keys")).collect();
    assert_eq!(
        lines[..2],
        ["allow ", "allow 200"].map(|end| format!("{agent} {end}: keys of the issuer: one, two"))
    );
    assert!(lines[2].starts_with(&format!("{agent} forbid 403: ")), "{lines:?}");
    assert_eq!(lines.len(), 3);
}

#[tokio::test]
async fn an_agent_that_is_no_pod_adds_no_keys() {
    let server = Server::start().await;
    let [first, second] = ["one", "two"].map(issuer);
    server.enrolled(&AgentKey::new(), Some(first.sent(ACCOUNT.0, ACCOUNT.1))).await;
    let old = AgentKey::new();
    let enrolled = Certificate::of(&server.enrolled(&old, None).await);
    let service = server.service();

    let shown = keys(&[&first, &second]);
    let request = RenewRequest { issuer_keys: shown, ..old.renew(&service, &enrolled, &AgentKey::new()) };
    answered(service.renew(Request::new(request)).await);

    let found = server.shared.directory.attestation(&edge_a()).await.unwrap().workload.unwrap();
    assert!(!found.issuer_keys.contains("\"two\""), "{}", found.issuer_keys);
}
