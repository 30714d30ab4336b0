//! The etcd in which servers share their records.

use super::*;

/// The beginning of the section, and its files.
const ETCD: &str = "directory: { etcd: { endpoints: ['https://etcd-0:2379', 'https://[::1]'], caFile: etcd-ca.crt, \
                    certificateFile: client.crt, keyFile: client.key";

#[test]
fn without_the_key_records_are_in_the_state_directory() {
    assert!(load(&with_client(), SMALLEST, &Flags::default()).unwrap().etcd.is_none());
}

#[test]
fn the_members_the_files_the_prefix_and_the_limit_are_read() {
    let files = with_client();
    let section = |more: &str| {
        let text = format!("{SMALLEST}serverId: west\ntrustDomain: edge.example\n{ETCD}{more} }} }}\n");
        load(&files, &text, &Flags::default()).unwrap().etcd.unwrap()
    };

    let etcd = section("");

    let endpoints: Vec<String> = etcd.endpoints.iter().map(ToString::to_string).collect();
    assert_eq!(endpoints, ["https://etcd-0:2379", "https://[::1]:2379"]);
    assert_eq!(
        (etcd.prefix.as_str(), etcd.stale_limit),
        ("/tombolo/edge.example/", Duration::from_secs(300))
    );
    let tls = etcd.tls.unwrap();
    assert_eq!((tls.roots.certificates.len(), tls.certificate.chain.len()), (1, 1));
    let other = section(", prefix: /shared/tunnels, staleLimitSeconds: 10");
    assert_eq!(
        (other.prefix.as_str(), other.stale_limit.as_secs()),
        ("/shared/tunnels/edge.example/", STALE_LIMIT_SECONDS_MIN)
    );
}

#[test]
fn members_without_tls_are_allowed_on_loopback_alone() {
    let files = with_client();
    let of = |endpoint: &str, more: &str| {
        let text = format!("{SMALLEST}directory: {{ etcd: {{ endpoints: ['{endpoint}']{more} }} }}\n");
        load(&files, &text, &Flags::default()).map(|config| config.etcd.unwrap().tls.is_none())
    };
    for endpoint in ["http://127.0.0.1:2379", "http://[::1]:2379"] {
        assert!(of(endpoint, "").unwrap(), "{endpoint}");
    }
    for endpoint in ["http://10.0.0.1:2379", "http://localhost:2379", "http://etcd:2379"] {
        let refused = of(endpoint, "").unwrap_err().to_string();
        assert!(refused.contains("directory.etcd.endpoints") && refused.contains("https://"), "{refused}");
    }
    let refused = of("http://127.0.0.1:2379", ", caFile: etcd-ca.crt").unwrap_err().to_string();
    assert!(refused.contains("directory.etcd.caFile") && refused.contains("no TLS"), "{refused}");
}

#[test]
fn a_wrong_section_names_its_key_and_what_is_allowed() {
    let files = with_client();
    for (from, to, key, allowed) in [
        (ETCD, "directory: { etcd: { endpoints: []", "directory.etcd.endpoints", "1 to 9"),
        (ETCD, "directory: { etcd: null", "directory.etcd", "a section"),
        ("https://etcd-0:2379", "etcd-0:2379", "directory.etcd.endpoints", "https://HOST:2379"),
        ("https://etcd-0:2379", "https://etcd-0/x", "directory.etcd.endpoints", "https://HOST:2379"),
        ("https://etcd-0:2379", "https://[::1]:2379", "directory.etcd.endpoints", "each member once"),
        ("https://etcd-0:2379", "http://127.0.0.1", "directory.etcd.endpoints", "one of them"),
        (", caFile: etcd-ca.crt", "", "directory.etcd.caFile", "the path of a file"),
        ("certificateFile: client.crt", "certificateFile: ''", "directory.etcd.certificateFile", "the path"),
        ("client.crt", "server.crt", "directory.etcd.keyFile", "the key that belongs"),
        ("client.key", "other.key", "directory.etcd.keyFile", "the key that belongs"),
        ("client.key", "client.key, prefix: tombolo", "directory.etcd.prefix", "a path such as /tombolo"),
        ("client.key", "client.key, prefix: /a/", "directory.etcd.prefix", "a path such as /tombolo"),
        ("client.key", "client.key, staleLimitSeconds: 9", "directory.etcd.staleLimitSeconds", "10 to 86400"),
    ] {
        let end = if to.ends_with("null") { " }" } else { " } }" };
        let error = key_error(&files, &format!("{SMALLEST}{ETCD}{end}\n").replace(from, to));
        assert_eq!(error.key, key, "{to}: {error}");
        assert!(error.to_string().contains(allowed), "{to}: {error}");
    }
}

#[test]
fn the_certificate_of_a_server_is_not_shown_to_etcd() {
    let files = with_client();
    let text = format!("{SMALLEST}{ETCD} }} }}\n");
    let error =
        key_error(&files, &text.replace("client.crt", "server.crt").replace("client.key", "server.key"));

    assert_eq!(error.key, "directory.etcd.certificateFile");
    assert!(error.to_string().contains("extended key usage clientAuth"), "{error}");
}

/// The files of every configuration, and those of etcd's client.
fn with_client() -> TempDir {
    let files = files();
    let write = |name: &str, text: String| fs::write(files.path().join(name), text).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write("etcd-ca.crt", params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem());
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    write("client.crt", params.self_signed(&key).unwrap().pem());
    write("client.key", key.serialize_pem());
    files
}
