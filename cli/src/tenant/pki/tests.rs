//! Tests of the certificates of a control plane.

use std::collections::BTreeSet;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use x509_parser::prelude::{FromDer as _, GeneralName, X509Certificate};

use super::*;

#[test]
fn the_serving_certificate_has_every_address_by_which_callers_come() {
    let secrets = secrets();

    let names = names(&secrets["apiserver"]["apiserver.crt"]);

    let expected = [
        "127.0.0.1",
        "::1",
        "10.97.0.1",
        "10.96.0.7",
        "192.168.1.11",
        "192.168.1.12",
        "localhost",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster",
        "kubernetes.default.svc.cluster.local",
    ];
    assert_eq!(names, expected.map(str::to_owned).into());
}

/// A member of one etcd is no member of the other one, and an API server is a member of neither.
#[test]
fn members_of_an_etcd_have_its_name_and_the_addresses_of_their_services() {
    let secrets = secrets();
    for (etcd, address) in [("etcd-data", "10.96.0.11"), ("etcd-event", "10.96.0.21")] {
        for file in ["server.crt", "peer.crt"] {
            let pem = &secrets[etcd][file];
            assert_eq!(names(pem), ["127.0.0.1", address].map(str::to_owned).into(), "{etcd} {file}");
            assert_eq!(subject(pem), format!("CN={etcd}"));
        }
    }
    assert_eq!(subject(&secrets["apiserver"]["etcd-client.crt"]), "CN=kube-apiserver-etcd-client");
}

/// An interrupted creation goes on with the Secrets that are there if they are complete.
#[test]
fn the_lists_of_files_are_those_of_the_secrets() {
    let secrets = secrets();
    assert_eq!(secrets.keys().copied().collect::<BTreeSet<_>>(), SECRETS.into());
    for (name, files) in &secrets {
        assert_eq!(files.keys().copied().collect::<Vec<_>>(), files_of(name), "{name}");
    }
}

/// Its rights cannot be revoked, so only the bootstrap has it, which stays in memory.
#[test]
fn nothing_that_is_written_down_has_the_group_system_masters() {
    let roots = TenantRoots::generate(now()).unwrap();
    let mut written: Vec<String> = secrets_of(&roots).into_values().flat_map(Files::into_values).collect();
    let day = Duration::from_secs(86_400);
    let admin = roots.administrator("olga", now(), day).unwrap().certificate;
    assert_eq!(subject(&admin), format!("O={ADMINS}, CN=olga"));
    assert_eq!(validity(&admin), day.as_secs());
    written.push(admin);

    let bootstrap = roots.bootstrap(now()).unwrap().certificate;

    let certificates: Vec<&String> =
        written.iter().filter(|text| text.contains("BEGIN CERTIFICATE")).collect();
    assert!(certificates.len() > 10);
    assert!(certificates.iter().all(|pem| !subject(pem).contains("system:masters")));
    assert_eq!(subject(&bootstrap), "O=system:masters, CN=tombolo-bootstrap");
    assert_eq!(validity(&bootstrap), SHORT_VALIDITY.as_secs());
}

#[test]
fn every_certificate_is_of_the_ca_beside_it_and_holds_a_year() {
    let secrets = secrets();
    for (secret, certificate, ca) in [
        ("apiserver", "apiserver.crt", "ca.crt"),
        ("apiserver", "kubelet-client.crt", "ca.crt"),
        ("apiserver", "front-proxy-client.crt", "front-proxy-ca.crt"),
        ("apiserver", "etcd-client.crt", "etcd-ca.crt"),
        ("etcd-data", "server.crt", "ca.crt"),
        ("etcd-event", "peer.crt", "ca.crt"),
    ] {
        let (leaf, ca) = (der(&secrets[secret][certificate]), der(&secrets[secret][ca]));
        let (_, ca) = X509Certificate::from_der(&ca).unwrap();
        let (_, parsed) = X509Certificate::from_der(&leaf).unwrap();
        assert!(parsed.verify_signature(Some(ca.public_key())).is_ok(), "{secret} {certificate}");
        assert_eq!(validity(&secrets[secret][certificate]), LEAF_VALIDITY.as_secs());
    }
    // The CA of etcd is not that of the cluster: a kubelet's certificate opens no etcd.
    assert_ne!(secrets["apiserver"]["ca.crt"], secrets["apiserver"]["etcd-ca.crt"]);
    assert_ne!(secrets["apiserver"]["ca.crt"], secrets["apiserver"]["front-proxy-ca.crt"]);
}

#[test]
fn roots_that_are_read_again_issue_for_the_same_cas() {
    let roots = TenantRoots::generate(now()).unwrap();
    let ca = &roots.cluster;

    let again = TenantAuthority::parse(ca.certificate_pem(), &ca.key_pem()).unwrap();

    assert_eq!(again.certificate_pem(), ca.certificate_pem());
    let leaf = der(&again.issue(&Usage::Client("a", None), now(), LEAF_VALIDITY).unwrap().certificate);
    let ca = der(ca.certificate_pem());
    let (_, ca) = X509Certificate::from_der(&ca).unwrap();
    let (_, leaf) = X509Certificate::from_der(&leaf).unwrap();
    assert!(leaf.verify_signature(Some(ca.public_key())).is_ok());
    assert_eq!(leaf.issuer(), ca.subject());
    assert!(TenantAuthority::parse("no certificate", &roots.etcd.key_pem()).is_err());
}

fn secrets() -> Secrets {
    secrets_of(&TenantRoots::generate(now()).unwrap())
}

fn secrets_of(roots: &TenantRoots) -> Secrets {
    let ip = |text: &str| text.parse().unwrap();
    let addresses = Addresses {
        service: ip("10.96.0.7"),
        nodes: vec![ip("192.168.1.11"), ip("192.168.1.12")],
        kubernetes: ip("10.97.0.1"),
        etcd_data: vec![ip("10.96.0.11")],
        etcd_event: vec![ip("10.96.0.21")],
    };
    roots.secrets(&addresses, "https://10.96.0.7:16440", now()).unwrap()
}

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn der(pem: &str) -> Vec<u8> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap().to_vec()
}

fn subject(pem: &str) -> String {
    let der = der(pem);
    X509Certificate::from_der(&der).unwrap().1.subject().to_string()
}

/// The time from now to the end, in seconds.
fn validity(pem: &str) -> u64 {
    let (_, end) = trust::validity(&CertificateDer::from(der(pem))).unwrap();
    end - 1_800_000_000
}

fn names(pem: &str) -> BTreeSet<String> {
    let der = der(pem);
    let (_, certificate) = X509Certificate::from_der(&der).unwrap();
    let names = certificate.subject_alternative_name().unwrap().unwrap();
    let text = |name: &GeneralName<'_>| {
        if let GeneralName::DNSName(name) = name {
            return (*name).to_owned();
        }
        let GeneralName::IPAddress(bytes) = name else { panic!("{name:?}") };
        match *bytes {
            [a, b, c, d] => Ipv4Addr::new(*a, *b, *c, *d).to_string(),
            bytes => Ipv6Addr::from(<[u8; 16]>::try_from(bytes).unwrap()).to_string(),
        }
    };
    names.value.general_names.iter().map(text).collect()
}
