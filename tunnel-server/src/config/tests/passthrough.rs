//! The listener that forwards TLS unterminated.

use super::*;

const PASSTHROUGH: &str = "
tls: { certificateFile: server.crt, keyFile: server.key }
gateway: { hosts: [own.example], hostSuffix: clusters.example,
  authentication: { tokenFile: { path: tokens.csv, usernamePrefix: '', groupsPrefix: 'g:' } } }
tunnel: { agentCAFile: agent-ca.crt }
policy: { file: policy.yaml }
egress: [{ name: host-a, cluster: edge-a, uds: { path: run/a.sock } }]
passthrough:
  name: sni
  listen: '127.0.0.1:6443'
  sources: [10.0.0.0/8, '2001:db8::/32']
  connections: 7
  connectionsPerSource: 3
  servers:
  - { name: API.edge-a.example, cluster: edge-a, target: '192.168.1.10:6443' }
  - { name: api.edge-b.example, cluster: edge-b, target: '192.168.1.10:6443' }
";

#[test]
fn each_server_name_leads_to_one_target_of_one_cluster() {
    let files = files();
    let config = load(&files, PASSTHROUGH, &Flags::default()).unwrap().passthrough.unwrap();

    assert_eq!((config.entry_point.name.as_str(), config.listen.port()), ("sni", 6443));
    assert_eq!((config.entry_point.connections, config.entry_point.connections_per_source), (7, 3));
    let names: Vec<&str> = config.servers.keys().map(String::as_str).collect();
    assert_eq!(names, ["api.edge-a.example", "api.edge-b.example"]);
    let server = &config.servers["api.edge-a.example"];
    assert_eq!(
        (server.cluster.as_str(), server.target.to_string().as_str()),
        ("edge-a", "192.168.1.10:6443")
    );
    assert!(
        load(&files, SMALLEST, &Flags::default()).unwrap().passthrough.is_none(),
        "off unless it is asked for"
    );
}

#[test]
fn only_listed_networks_are_admitted_unless_any_admits_all() {
    let files = files();
    let sources = |text: &str| {
        let text = PASSTHROUGH.replace("[10.0.0.0/8, '2001:db8::/32']", text);
        load(&files, &text, &Flags::default()).map(|config| config.passthrough.unwrap().entry_point.sources)
    };
    let some = sources("[10.0.0.0/8, '2001:db8::/32']").unwrap();
    for (address, by) in [
        ("10.9.8.7", Some("10.0.0.0/8")),
        ("::ffff:10.9.8.7", Some("10.0.0.0/8")),
        ("2001:db8::1", Some("2001:db8::/32")),
        ("11.0.0.1", None),
        ("2001:db9::1", None),
        ("::ffff:11.0.0.1", None),
    ] {
        let found = some.network_of(address.parse().unwrap()).map(|network| network.to_string());
        assert_eq!(found.as_deref(), by, "{address}");
    }
    let any = sources("[any]").unwrap();
    assert!(
        any.network_of("192.0.2.1".parse().unwrap()).is_some()
            && any.network_of("::1".parse().unwrap()).is_some()
    );

    for text in [
        "[]",
        "null",
        "[0.0.0.0/0]",
        "['::/0']",
        "[0.0.0.0/1, 128.0.0.0/1]",
        "['2000::/3']",
        "[any, 10.0.0.0/8]",
        "[Any]",
        "[10.0.0.1]",
        "[10.0.0.1/8]",
        "['::ffff:0.0.0.0/96']",
        "[localhost]",
    ] {
        let refused = daemon::error_chain(&sources(text).unwrap_err()).to_string();
        assert!(refused.contains("passthrough.sources"), "{text}: {refused}");
    }
}

#[test]
fn an_error_in_the_passthrough_names_key_and_value() {
    let files = files();
    let first = |key: &str| format!("passthrough.servers[0].{key}");
    for (from, to, key, value) in [
        ("name: sni", "name: Sni", "passthrough.name".to_owned(), "\"Sni\""),
        ("  name: sni\n", "", "passthrough.name".into(), "\"\""),
        // Policy could not distinguish the two.
        ("name: sni", "name: host-a", "passthrough.name".into(), "\"host-a\""),
        ("  listen: '127.0.0.1:6443'\n", "", "passthrough.listen".into(), "nothing"),
        ("'127.0.0.1:6443'", "nowhere", "passthrough.listen".into(), "nowhere"),
        ("  sources: [10.0.0.0/8, '2001:db8::/32']\n", "", "passthrough.sources".into(), "nothing"),
        ("connections: 7", "connections: 0", "passthrough.connections".into(), "0"),
        ("PerSource: 3", "PerSource: 8", "passthrough.connectionsPerSource".into(), "8"),
        ("name: API.edge-a.example, ", "", first("name"), "\"\""),
        ("API.edge-a.example", "10.0.0.1", first("name"), "\"10.0.0.1\""),
        ("API.edge-a.example", "'*.edge-a.example'", first("name"), "\"*.edge-a.example\""),
        ("API.edge-a.example", "api.edge-a.example.", first("name"), "\"api.edge-a.example.\""),
        (
            "API.edge-a.example",
            "api.edge-b.example",
            "passthrough.servers[1].name".into(),
            "api.edge-b.example",
        ),
        // The gateway's own names, by hosts, by the suffix and by the certificate.
        ("API.edge-a.example", "Own.example", first("name"), "own.example"),
        ("API.edge-a.example", "clusters.example", first("name"), "clusters.example"),
        ("API.edge-a.example", "edge-a.clusters.example", first("name"), "edge-a.clusters.example"),
        ("API.edge-a.example", "gateway.example", first("name"), "gateway.example"),
        ("cluster: edge-a, target", "cluster: '*', target", first("cluster"), "\"*\""),
        (
            "target: '192.168.1.10:6443'",
            "target: '192.168.1.0/24:6443'",
            first("target"),
            "\"192.168.1.0/24:6443\"",
        ),
        (", target: '192.168.1.10:6443'", "", first("target"), "\"\""),
    ] {
        let (before, passthrough) = PASSTHROUGH.split_once("passthrough:").unwrap();
        assert!(passthrough.contains(from), "{from}");
        let error = key_error(&files, &format!("{before}passthrough:{}", passthrough.replacen(from, to, 1)));
        assert_eq!((&error.key, error.value.as_str()), (&key, value), "{to}");
    }
}

#[test]
fn the_number_of_server_names_and_connections_is_limited() {
    let files = files();
    let with = |names: usize, connections: usize| {
        let servers: String =
            (0..names).map(|n| format!("{{ name: n{n}.example, cluster: c, target: 'a:1' }},")).collect();
        format!(
            "{SMALLEST}passthrough: {{ name: sni, listen: '127.0.0.1:1', sources: [any], connections: {connections}, \
             servers: [{servers}] }}\n"
        )
    };
    let config = load(&files, &with(NAMES_MAX, ENTRY_POINT_CONNECTIONS_MAX), &Flags::default()).unwrap();
    assert_eq!(config.passthrough.unwrap().servers.len(), NAMES_MAX);
    assert_eq!(key_error(&files, &with(NAMES_MAX + 1, 1)).key, "passthrough.servers");
    assert_eq!(key_error(&files, &with(0, 1)).key, "passthrough.servers");
    let beyond = key_error(&files, &with(1, ENTRY_POINT_CONNECTIONS_MAX + 1));
    assert_eq!(beyond.key, "passthrough.connections");
}
