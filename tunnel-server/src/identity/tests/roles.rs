//! Certificates of agents and administrators.

use trust::BACKDATED;

use super::*;

#[test]
fn agents_and_administrators_certificates_have_issue_and_end_times() {
    let leaf = issue(with_uri("spiffe://tombolo/cluster/edge-a/agent/one"));
    let AgentCertificate { agent: _, serial, issued, ends } =
        agent_identity(std::slice::from_ref(&leaf), "tombolo").unwrap().into_inner();
    assert_eq!((serial, issued, ends), facts(&leaf));

    let leaf = issue(with_uri("spiffe://tombolo/admin/olga"));
    let AdminCertificate { name, serial, issued, ends } =
        admin_identity(std::slice::from_ref(&leaf), "tombolo").unwrap().into_inner();
    assert_eq!(name.as_str(), "olga");
    assert_eq!((serial, issued, ends), facts(&leaf));
}

#[test]
fn only_an_exact_administrators_certificate_is_accepted() {
    let not_an_admin = || NotOfRole::Uri(SpiffeError::NotAnAdmin { domain: "tombolo".to_owned() });
    let mut a_server = with_uri("spiffe://tombolo/admin/olga");
    a_server.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    for (params, refused) in [
        (with_names(vec![]), NotOfRole::Names),
        (a_server, NotOfRole::Usage(Role::Admin)),
        (with_uri("spiffe://other/admin/olga"), not_an_admin()),
        (with_uri("spiffe://tombolo/cluster/edge-a/agent/one"), not_an_admin()),
        (with_uri("spiffe://tombolo/caller"), not_an_admin()),
        (with_uri("spiffe://tombolo/peer/olga"), not_an_admin()),
    ] {
        assert_eq!(admin_identity(&[issue(params)], "tombolo"), Err(refused.into()));
    }
    assert_eq!(admin_identity(&[], "tombolo"), Err(NotAnAdmin::NoCertificate));
    assert_eq!(
        admin_identity(&[CertificateDer::from(vec![0x30, 0])], "tombolo"),
        Err(NotOfRole::Unreadable.into())
    );
}

/// The serial number of a certificate, the time of its issue, and the first moment at which it is no longer
/// valid.
fn facts(leaf: &CertificateDer<'_>) -> (String, SystemTime, SystemTime) {
    let (_, parsed) = x509_parser::parse_x509_certificate(leaf).unwrap();
    let [begins, last] = [parsed.validity().not_before, parsed.validity().not_after]
        .map(|time| SystemTime::from(time.to_datetime()));
    (trust::serial_text(&parsed), begins + BACKDATED, last + Duration::from_secs(1))
}
