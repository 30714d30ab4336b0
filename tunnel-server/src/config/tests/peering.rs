//! The section `peering`: the listener for other servers, and the certificate shown to theirs.

use super::*;

const ETCD: &str = "directory: { etcd: { endpoints: ['http://127.0.0.1:2379'] } }\n";

const PEERING: &str = "peering: { address: 'gw-7.example:8446', certificateFile: peer.crt, keyFile: peer.key, peerCAFile: peer-ca.crt, serverCAFile: caller-ca.crt }\n";

/// The ID in the certificate of [`SMALLEST`].
const SERVER_ID: &str = "in-the-certificate";

#[test]
fn the_peering_section_has_a_listener_an_address_and_a_certificate() {
    let files = with_peer(&format!("spiffe://tombolo/peer/{SERVER_ID}"));
    let with =
        |section: &str| load(&files, &format!("{SMALLEST}{ETCD}{section}"), &Flags::default()).unwrap();

    let peering = with(PEERING).peering.unwrap();

    assert_eq!(peering.listen.to_string(), "0.0.0.0:8446");
    assert_eq!((peering.address.as_str(), peering.carrier), ("gw-7.example:8446", PeerCarrier::Quic));
    assert_eq!((peering.certificate.chain.len(), peering.roots.certificates.len()), (1, 1));
    let other = with(&PEERING.replace("{ address", "{ listen: '[::1]:7', address")).peering.unwrap();
    assert_eq!(other.listen.to_string(), "[::1]:7");
    let by_tcp = with(&PEERING.replace("{ address", "{ carrier: http2, address")).peering.unwrap();
    assert_eq!(by_tcp.carrier, PeerCarrier::Http2);
    assert!(with("").peering.is_none(), "off unless it is asked for");
}

#[test]
fn an_error_in_the_peering_section_names_key_and_what_is_allowed() {
    let files = with_peer(&format!("spiffe://tombolo/peer/{SERVER_ID}"));
    for (from, to, key, allowed) in [
        (ETCD, "", "peering", "directory.etcd too"),
        ("{ address", "{ listen: localhost, address", "peering.listen", "an IP address and a port"),
        ("{ address", "{ carrier: tcp, address", "peering.carrier", "quic or http2"),
        ("address: 'gw-7.example:8446', ", "", "peering.address", "HOST:PORT"),
        ("gw-7.example:8446", "gw-7.example", "peering.address", "HOST:PORT"),
        ("gw-7.example:8446", "gw-7.example:0", "peering.address", "HOST:PORT"),
        ("certificateFile: peer.crt, ", "", "peering.certificateFile", "the path of a file"),
        (", keyFile: peer.key", "", "peering.keyFile", "the path of a file"),
        ("peer.key", "other.key", "peering.keyFile", "the key that belongs"),
        (", peerCAFile: peer-ca.crt", "", "peering.peerCAFile", "the path of a file"),
        ("peer-ca.crt", "absent", "peering.peerCAFile", "No such file"),
        (", serverCAFile: caller-ca.crt", "", "peering.serverCAFile", "the path of a file"),
    ] {
        let text = format!("{ETCD}{PEERING}");
        assert!(text.contains(from), "{from}");
        let error = key_error(&files, &format!("{SMALLEST}{}", text.replace(from, to)));
        assert_eq!(error.key, key, "{to}: {error}");
        assert!(error.allowed.contains(allowed), "{to}: {error}");
    }
}

#[test]
fn a_server_shows_its_peers_a_certificate_of_this_role_and_of_its_own_id() {
    for (uri, reason) in [
        ("spiffe://tombolo/peer/east", "it names the server east, and serverId is in-the-certificate"),
        (
            "spiffe://edge.example/peer/in-the-certificate",
            "the certificate's URI is not spiffe://tombolo/peer/ID",
        ),
        (
            "spiffe://tombolo/server/in-the-certificate",
            "the certificate's URI is not spiffe://tombolo/peer/ID",
        ),
        (
            "spiffe://tombolo/admin/in-the-certificate",
            "the certificate's URI is not spiffe://tombolo/peer/ID",
        ),
    ] {
        let error = key_error(&with_peer(uri), &format!("{SMALLEST}{ETCD}{PEERING}"));

        assert_eq!(error.key, "peering.certificateFile");
        assert!(error.value.contains(reason), "{uri}: {error}");
        assert!(error.allowed.contains("tombolo ca issue peer --id in-the-certificate"), "{uri}: {error}");
    }
    let files = with_peer(&format!("spiffe://tombolo/peer/{SERVER_ID}"));
    let own = PEERING.replace("peer.crt", "server.crt").replace("peer.key", "server.key");
    let error = key_error(&files, &format!("{SMALLEST}{ETCD}{own}"));
    assert_eq!(error.key, "peering.certificateFile");
    assert!(error.value.contains("server.crt, a server's certificate"), "{error}");
}

#[test]
fn the_root_of_peers_is_no_other_roles_root() {
    let files = with_peer("spiffe://edge.example/peer/gateway-7");
    let text = format!("{EVERY_KEY}{ETCD}{PEERING}");
    assert!(load(&files, &text, &Flags::default()).unwrap().peering.is_some());
    for (ca, other) in [
        ("agent-ca.crt", "tunnel.agentCAFile"),
        ("caller-ca.crt", "gateway.authentication.clientCertificate.caFile"),
        ("admin-ca.crt", "admin.tcp.adminCAFile"),
    ] {
        let error = key_error(&files, &text.replace("peer-ca.crt", ca));
        assert_eq!(error.key, "peering.peerCAFile");
        assert!(error.to_string().contains(other), "{error}");
    }
}

/// The files of every configuration, and those of a peer with this URI.
fn with_peer(uri: &str) -> TempDir {
    let files = files();
    let write = |name: &str, text: String| fs::write(files.path().join(name), text).unwrap();
    let mut params = CertificateParams::default();
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    write("peer-ca.crt", params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem());
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.subject_alt_names = vec![SanType::URI(uri.try_into().unwrap())];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    write("peer.crt", params.self_signed(&key).unwrap().pem());
    write("peer.key", key.serialize_pem());
    files
}
