//! Renewals seen from outside: their audit lines, and the limit for each agent.

use rcgen::KeyPair;
use serde_json::Value;
use tests::audit_log::{AuditLog, note};
use tests::enroll::{
    AttestationClient, EnrollmentClaim, EnrollmentListener, named, request_for_token, start, token,
    unauthenticated_client,
};
use tests::rig::Rig;
use tonic::Code;
use trust::Serial;
use trust::proof::Purpose;

/// The value of the product's `CERTIFICATES_MAX`.
const CERTIFICATES_MAX: usize = 20;

/// An agent has as many renewals as the limit allows and not one more.
#[tokio::test]
async fn each_renewal_is_audited_and_an_agents_renewals_are_limited() {
    let (rig, listener) = start("").await;
    let (instance, first) = enrolled_agent(&rig, &listener).await;
    let (other_instance, other_key) = enrolled_agent(&rig, &listener).await;
    let mut line = AttestationClient::connect(&rig, &listener).await;
    let (mut held, mut replaced, mut issued) = (first, None, Vec::new());
    for _ in 0..CERTIFICATES_MAX {
        let key = KeyPair::generate().expect("a key");
        let claim = EnrollmentClaim { key: &key, ..claim(&instance, &held) };
        let (_, serial) = named(&line.renew(&claim, None).await.expect("a proof"));
        issued.push(serial.to_string());
        replaced = Some(std::mem::replace(&mut held, (key, serial)));
    }
    let (next, replaced) = (KeyPair::generate().expect("a key"), replaced.expect("a key before it"));
    let limited = line
        .renew(&EnrollmentClaim { key: &next, ..claim(&instance, &held) }, None)
        .await
        .expect_err("one more");
    assert_eq!(limited.code(), Code::ResourceExhausted, "{limited:?}");
    // A lost answer is still repeated, a replaced key raises its alarm, and other agents renew.
    line.renew(&EnrollmentClaim { key: &held.0, ..claim(&instance, &replaced) }, None)
        .await
        .expect("the last one's repeat");
    let stolen = line.renew(&EnrollmentClaim { key: &next, ..claim(&instance, &replaced) }, None).await;
    assert_eq!(stolen.expect_err("a replaced key").code(), Code::PermissionDenied);
    let other = line.renew(&EnrollmentClaim { key: &next, ..claim(&other_instance, &other_key) }, None).await;
    let (_, others) = named(&other.expect("a proof"));

    let is_others = |line: &Value| note(line, "issued") == others.to_string();
    let log =
        AuditLog::found(&rig, |log| log.completions().into_iter().any(is_others).then(|| log.clone())).await;
    let of_agent = |line: &&Value| line["user"]["username"] == format!("agent:{instance}");
    let (intents, completions) = (log.intents(), log.completions());
    let renewed: Vec<&Value> = completions.into_iter().filter(|line| line["verb"] == "renew").collect();
    let audited: Vec<&str> =
        renewed.iter().copied().filter(of_agent).map(|line| note(line, "issued")).collect();
    let serials: Vec<&str> = issued.iter().map(String::as_str).collect();
    assert_eq!(audited, [serials.as_slice(), &[""]].concat(), "and one that was forbidden");
    let forbidden = renewed.iter().copied().rfind(of_agent).expect("it was recorded");
    assert_eq!((note(forbidden, "decision"), note(forbidden, "detail")), ("forbid", "its key was replaced"));
    assert_eq!(intents.into_iter().filter(|line| line["verb"] == "renew").count(), CERTIFICATES_MAX + 1);
    assert!(renewed.iter().any(|line| is_others(line)), "the neighbour's");
}

/// Enrolls an agent, and returns its instance, its key and its serial number.
async fn enrolled_agent(rig: &Rig, listener: &EnrollmentListener) -> (String, (KeyPair, Serial)) {
    let ((secret, _), key) = (token(rig, "edge-a").await, KeyPair::generate().expect("a key"));
    let asked = request_for_token(&secret, "edge-a", &key);
    let answer =
        unauthenticated_client(rig, listener).await.enroll(asked).await.expect("a certificate").into_inner();
    let (instance, serial) = named(&answer.credential.expect("a credential"));
    (instance, (key, serial))
}

/// A proof by the holder of a key and its certificate. It asks for a certificate of the same key, unless that
/// is replaced.
fn claim<'a>(instance: &'a str, (key, serial): &'a (KeyPair, Serial)) -> EnrollmentClaim<'a> {
    EnrollmentClaim { instance, serial: *serial, key, signer: key, purpose: Purpose::Renewal }
}
