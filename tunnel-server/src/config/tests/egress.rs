//! Entry points for the egress of API servers.

use super::*;

const EGRESS: &str = "
tls: { certificateFile: server.crt, keyFile: server.key }
gateway: { authentication: { tokenFile: { path: tokens.csv, usernamePrefix: '', groupsPrefix: 'g:' } } }
tunnel: { agentCAFile: agent-ca.crt }
policy: { file: policy.yaml }
egress:
- { name: host-a, cluster: edge-a, connections: 7, tcp: { listen: '127.0.0.1:8131', certificateFile: server.crt,
    keyFile: server.key, clientCAFile: caller-ca.crt, clientName: kube-apiserver } }
- { name: host-b, cluster: edge-b, uds: { path: run/b.sock, uids: [0, 7] } }
";

#[test]
fn an_egress_is_for_one_client_name_or_some_user_ids_and_one_cluster() {
    let files = files();
    let config = load(&files, EGRESS, &Flags::default()).unwrap();

    let [tcp, local] = config.egress.as_slice() else { panic!("two entry points") };
    assert_eq!((tcp.name.as_str(), tcp.cluster.as_str(), tcp.connections), ("host-a", "edge-a", 7));
    let by_tls = tcp.tcp().unwrap();
    assert_eq!((by_tls.listen.port(), by_tls.client_name.as_str()), (8131, "kube-apiserver"));
    assert_eq!((by_tls.roots.certificates.len(), by_tls.certificate.is_some()), (1, true));
    let EgressListener::Unix(unix) = &local.listener else { panic!("{local:?}") };
    assert_eq!((&unix.path, unix.uids.as_slice()), (&files.path().join("run/b.sock"), [0, 7].as_slice()));
    assert!(
        load(&files, SMALLEST, &Flags::default()).unwrap().egress.is_empty(),
        "off unless it is asked for"
    );
}

#[test]
fn an_error_in_an_egress_names_key_and_value() {
    let files = files();
    let tcp = |key: &str| format!("egress[0].tcp.{key}");
    for (from, to, key, value) in [
        ("name: host-a", "name: Host_a", "egress[0].name".to_owned(), "\"Host_a\""),
        ("name: host-a, ", "", "egress[0].name".into(), "\"\""),
        ("name: host-b", "name: host-a", "egress[1].name".into(), "host-a"),
        ("cluster: edge-a", "cluster: '*'", "egress[0].cluster".into(), "\"*\""),
        ("connections: 7", "connections: 0", "egress[0].connections".into(), "0"),
        (" tcp: {", " uds: { path: x }, tcp: {", "egress[0]".into(), "host-a"),
        (", uds: { path: run/b.sock, uids: [0, 7] }", "", "egress[1]".into(), "host-b"),
        ("listen: '127.0.0.1:8131', ", "", tcp("listen"), "nothing"),
        (" clientCAFile: caller-ca.crt,", "", tcp("clientCAFile"), "nothing"),
        (", clientName: kube-apiserver", "", tcp("clientName"), "nothing"),
        ("clientName: kube-apiserver", "clientName: ''", tcp("clientName"), "nothing"),
        ("certificateFile: server.crt,\n", "\n", tcp("certificateFile"), "nothing"),
        ("uids: [0, 7]", "uids: []", "egress[1].uds.uids".into(), "0"),
        ("path: run/b.sock, ", "", "egress[1].uds.path".into(), "nothing"),
    ] {
        let (before, egress) = EGRESS.split_once("egress:").unwrap();
        assert!(egress.contains(from), "{from}");
        let error = key_error(&files, &format!("{before}egress:{}", egress.replacen(from, to, 1)));
        assert_eq!((&error.key, error.value.as_str()), (&key, value), "{to}");
    }
    // A certificate for an agent, a caller or an administrator is accepted by none.
    let error =
        key_error(&files, &EGRESS.replace("clientCAFile: caller-ca.crt", "clientCAFile: agent-ca.crt"));
    assert_eq!(error.key, "egress[0].tcp.clientCAFile");
}

#[test]
fn the_number_of_egresses_and_of_their_connections_is_limited() {
    let files = files();
    let with = |count: usize, connections: usize| {
        let all: String = (0..count)
            .map(|n| {
                format!("{{ name: h{n}, cluster: c, connections: {connections}, uds: {{ path: {n} }} }},")
            })
            .collect();
        format!("{SMALLEST}egress: [{all}]\n")
    };
    let config = load(&files, &with(EGRESS_MAX, EGRESS_CONNECTIONS_MAX), &Flags::default()).unwrap();
    assert_eq!(config.egress.len(), EGRESS_MAX);
    assert_eq!(key_error(&files, &with(EGRESS_MAX + 1, 1)).key, "egress");
    assert_eq!(key_error(&files, &with(1, EGRESS_CONNECTIONS_MAX + 1)).key, "egress[0].connections");
}
