//! Callers with revoked credentials: by name, by serial number and by time, until they are restored.

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use tests::caller::{GATEWAY, Http1Caller, head};
use tests::fake_api::FakeApi;
use tests::pki::Issued;
use tests::rig::{ApiServer, GROUP, Rig, ask};
use x509_parser::prelude::{FromDer as _, X509Certificate};

const SOCKET: [&str; 2] = ["--socket", "admin/admin.sock"];
const PATH: &str = "/clusters/edge-a/version";
/// The fake API server knows no path.
const SERVED: u16 = 404;

/// It is refused on a live connection, and after a restart.
#[tokio::test]
async fn a_revoked_name_is_refused_until_it_is_restored() {
    let (mut rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let (ann, ben) = (rig.caller("ann", &[GROUP]).await, rig.caller("ben", &[GROUP]).await);
    let mut connection = Http1Caller::dial_name(&rig, GATEWAY, Some(&ann)).await;
    assert_eq!(asked(&mut connection).await, SERVED);

    at(&rig, &["user", "revoke", "--name", "ann"]).await;

    assert_eq!(asked(&mut connection).await, 401);
    let refused =
        ask(rig.gateway(), &rig.server_ca(), Some(&ann), "GET", PATH, &[]).await.expect("an answer");
    assert!(refused.status == 401 && refused.body.contains("CredentialRevoked"), "{}", refused.body);
    assert_eq!(status(&rig, &ben).await, SERVED);
    rig.kill_server();
    rig.start_server().await;
    rig.connected("edge-a").await;
    assert_eq!([status(&rig, &ann).await, status(&rig, &ben).await], [401, SERVED]);
    let listed = at(&rig, &["user", "list"]).await;
    assert!(listed.contains("user ann") && !listed.contains("ben"), "{listed}");

    at(&rig, &["user", "restore", "--name", "ann"]).await;

    assert_eq!(status(&rig, &ann).await, SERVED);
    let none = rig.tombolo_fails(&[&["user", "restore", "--name", "ann"], SOCKET.as_slice()].concat()).await;
    assert!(none.contains("nothing of that is revoked"), "{none}");
}

#[tokio::test]
async fn one_certificate_is_revoked_and_its_users_next_one_is_not() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let lost = rig.caller("ann", &[GROUP]).await;
    let end = std::time::SystemTime::now() + std::time::Duration::from_secs(3600);
    let next = rig.caller_until("ann", &[GROUP], end);

    at(&rig, &["user", "revoke", "--serial", &serial_with_colons(&lost)]).await;

    assert_eq!([status(&rig, &lost).await, status(&rig, &next).await], [401, SERVED]);
}

/// A certificate that does not say when it was issued is revoked, too.
#[tokio::test]
async fn certificates_issued_before_a_time_are_revoked() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    let ann = rig.caller("ann", &[GROUP]).await;
    let by_token = async || rig.ask_with_token("GET", PATH, &[]).await.status;

    at(&rig, &["user", "revoke", "--issued-before", "2020-01-01T00:00:00Z"]).await;
    assert_eq!([status(&rig, &ann).await, by_token().await], [SERVED, 401]);
    at(&rig, &["user", "revoke", "--issued-before", "2120-01-01T00:00:00Z"]).await;
    assert_eq!([status(&rig, &ann).await, by_token().await], [401, 401]);

    at(&rig, &["user", "restore", "--everyone"]).await;
    assert_eq!([status(&rig, &ann).await, by_token().await], [SERVED, SERVED]);
}

/// The status of one more answer on this connection.
async fn asked(connection: &mut Http1Caller) -> u16 {
    let request = head("GET", PATH, "");
    // Its certificate is its credential, and one is enough.
    let request: String =
        request.split_inclusive("\r\n").filter(|line| !line.starts_with("Authorization")).collect();
    connection.write(request).await;
    let answer = connection.read_head().await;
    let length = answer
        .lines()
        .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
    connection.read_exactly(length.unwrap_or(0)).await;
    answer.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status")
}

async fn status(rig: &Rig, caller: &Issued) -> u16 {
    ask(rig.gateway(), &rig.server_ca(), Some(caller), "GET", PATH, &[]).await.expect("an answer").status
}

async fn at(rig: &Rig, words: &[&str]) -> String {
    rig.tombolo(&[words, &SOCKET].concat()).await
}

/// The serial number in openssl's notation.
pub(crate) fn serial_with_colons(issued: &Issued) -> String {
    let der = CertificateDer::from_pem_slice(issued.certificate_pem.as_bytes()).expect("a certificate");
    let (_, certificate) = X509Certificate::from_der(&der).expect("a certificate");
    certificate.raw_serial_as_string()
}
