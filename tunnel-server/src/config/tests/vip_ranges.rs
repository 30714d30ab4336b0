//! Ranges that give clusters addresses, and the host cluster in which the addresses become Services.

use super::*;

const RANGES: &str = "
vip:
  entryPoints:
  - name: pods
    sources: [10.244.0.0/16]
    addresses: [{ listen: '192.168.1.10:6443', cluster: edge-a }]
    range:
      network: 100.100.0.0/24
      clusters: [edge-a, edge-b]
      targets: { edge-b: '192.168.1.10:6443' }
  - name: office
    sources: [10.8.1.0/24]
    range: { network: 'fd00:7::/64', port: 6443, target: '10.0.0.1:6443', clusters: [edge-c] }
  publish:
    server: https://kubernetes.default.svc
    caFile: caller-ca.crt
    tokenFile: host.token
    namespace: edges
";

fn with_section(vip: &str) -> String {
    format!("{SMALLEST}{vip}")
}

#[test]
fn a_range_has_clusters_targets_and_a_namespace_for_their_services() {
    let files = files();
    let vip = load(&files, &with_section(RANGES), &Flags::default()).unwrap().vip.unwrap();

    let ranges: Vec<&VipRange> =
        vip.entry_points.iter().map(|entry_point| entry_point.range.as_ref().unwrap()).collect();
    let shown = |range: &VipRange| {
        let clusters = range.clusters.iter().map(|(cluster, target)| format!("{cluster} {target}"));
        (range.network.to_string(), range.port, clusters.collect::<Vec<_>>())
    };
    // By default the target is the name that every cluster has for its own API server.
    let pods = ["edge-a kubernetes.default.svc:443", "edge-b 192.168.1.10:6443"].map(str::to_owned);
    assert_eq!(shown(ranges[0]), ("100.100.0.0/24".to_owned(), 443, pods.to_vec()));
    assert_eq!(shown(ranges[1]), ("fd00:7::/64".to_owned(), 6443, vec!["edge-c 10.0.0.1:6443".to_owned()]));
    let publish = vip.publish.unwrap();
    assert_eq!(
        (publish.namespace.as_str(), publish.host.token_file),
        ("edges", files.path().join("host.token"))
    );
    assert_eq!(publish.host.server.to_string(), "https://kubernetes.default.svc/");
    let usual = load(&files, &with_section(&RANGES.replace("    namespace: edges\n", "")), &Flags::default())
        .unwrap();
    assert_eq!(usual.vip.unwrap().publish.unwrap().namespace, "tombolo");
    let alone = RANGES.replace("    addresses: [{ listen: '192.168.1.10:6443', cluster: edge-a }]\n", "");
    assert_eq!(
        load(&files, &with_section(&alone), &Flags::default()).unwrap().vip.unwrap().entry_points.len(),
        2
    );
}

#[test]
fn an_error_in_a_range_or_its_host_cluster_names_key_and_value() {
    let files = files();
    let first = |key: &str| format!("vip.entryPoints[0].range.{key}");
    let second = |key: &str| format!("vip.entryPoints[1].range.{key}");
    let network = first("network");
    for (from, to, key, value) in [
        ("      network: 100.100.0.0/24\n", "", network.clone(), "nothing"),
        ("100.100.0.0/24", "100.100.0.1/24", network.clone(), "100.100.0.1/24"),
        ("100.100.0.0/24", "100.64.0.0/10", network.clone(), "100.64.0.0/10"),
        ("fd00:7::/64", "fd00::/48", second("network"), "fd00::/48"),
        // Two clusters, and one usable address; and none.
        ("100.100.0.0/24", "100.100.0.0/31", network.clone(), "100.100.0.0/31"),
        ("100.100.0.0/24", "100.100.0.0/32", network.clone(), "100.100.0.0/32"),
        ("100.100.0.0/24", "127.100.0.0/24", network.clone(), "127.100.0.0/24"),
        ("100.100.0.0/24", "169.254.7.0/24", network.clone(), "169.254.7.0/24"),
        ("100.100.0.0/24", "224.0.0.0/24", network.clone(), "224.0.0.0/24"),
        ("100.100.0.0/24", "255.255.255.0/24", network.clone(), "255.255.255.0/24"),
        ("100.100.0.0/24", "0.7.0.0/24", network.clone(), "0.7.0.0/24"),
        ("fd00:7::/64", "fe80::/64", second("network"), "fe80::/64"),
        ("fd00:7::/64", "::/64", second("network"), "::/64"),
        ("fd00:7::/64", "ff02::/64", second("network"), "ff02::/64"),
        // An address that is written out could be given to another cluster.
        ("100.100.0.0/24", "192.168.0.0/16", network, "192.168.0.0/16, which has 192.168.1.10:6443,"),
        ("fd00:7::/64", "100.100.0.128/25", second("network"), "100.100.0.128/25"),
        ("port: 6443", "port: 0", second("port"), "0"),
        ("'10.0.0.1:6443'", "api", second("target"), "\"api\""),
        ("clusters: [edge-a, edge-b]", "clusters: []", first("clusters"), "0"),
        ("clusters: [edge-a, edge-b]", "clusters: ['*']", first("clusters[0]"), "\"*\""),
        ("clusters: [edge-a, edge-b]", "clusters: [edge-b, edge-b]", first("clusters[1]"), "edge-b"),
        ("clusters: [edge-c]", "clusters: [edge-c, edge-a]", second("clusters"), "edge-a"),
        (
            "{ edge-b: '192.168.1.10:6443' }",
            "{ edge-c: '192.168.1.10:6443' }",
            first("targets.edge-c"),
            "edge-c",
        ),
        (
            "{ edge-b: '192.168.1.10:6443' }",
            "{ edge-b: '192.168.1.10' }",
            first("targets.edge-b"),
            "\"192.168.1.10\"",
        ),
        (
            "server: https://",
            "server: http://",
            "vip.publish.server".to_owned(),
            "\"http://kubernetes.default.svc\"",
        ),
        ("    tokenFile: host.token\n", "", "vip.publish.tokenFile".to_owned(), "nothing"),
        ("    caFile: caller-ca.crt\n", "", "vip.publish.caFile".to_owned(), "nothing"),
        ("namespace: edges", "namespace: Edges", "vip.publish.namespace".to_owned(), "\"Edges\""),
        // No Service can have such a name.
        ("clusters: [edge-c]", "clusters: [7-edge]", "vip.publish".to_owned(), "7-edge"),
    ] {
        assert!(RANGES.contains(from), "{from}");
        let error = key_error(&files, &with_section(&RANGES.replacen(from, to, 1)));
        assert_eq!((&error.key, error.value.as_str()), (&key, value), "{to}");
    }
    let written_behind = RANGES.replace(
        "    range: { network: 'fd00:7::/64'",
        "    addresses: [{ listen: '100.100.0.7:443', cluster: edge-c }]\n    range: { network: 'fd00:7::/64'",
    );
    let error = key_error(&files, &with_section(&written_behind));
    assert_eq!(
        (error.key.as_str(), error.value.as_str()),
        ("vip.entryPoints[1].addresses", "100.100.0.7:443")
    );
    let none = "vip: { entryPoints: [{ name: w, sources: [any], addresses: [{ listen: '192.168.1.10:6443', cluster: edge-a }] }], \
                publish: { server: 'https://h', caFile: caller-ca.crt, tokenFile: t } }\n";
    assert_eq!(key_error(&files, &with_section(none)).key, "vip.publish");
}

/// The number of all addresses together is limited too.
#[test]
fn a_range_has_no_more_clusters_than_its_network_has_hosts() {
    let files = files();
    let with = |network: &str, clusters: usize, addresses: usize| {
        let clusters: String = (0..clusters).map(|n| format!("c{n},")).collect();
        let addresses: String =
            (0..addresses).map(|n| format!("{{ listen: '10.1.0.1:{}', cluster: c }},", n + 1)).collect();
        let range = format!("range: {{ network: {network}, clusters: [{clusters}] }}");
        with_section(&format!(
            "vip: {{ entryPoints: [{{ name: w, sources: [any], addresses: [{addresses}], {range} }}] }}\n"
        ))
    };
    let count = |text: &str| {
        let mut vip = load(&files, text, &Flags::default()).unwrap().vip.unwrap();
        vip.entry_points.remove(0).range.unwrap().clusters.len()
    };
    assert_eq!(count(&with("100.100.0.0/30", 2, 1)), 2);
    assert_eq!(key_error(&files, &with("100.100.0.0/30", 3, 1)).key, "vip.entryPoints[0].range.network");
    assert_eq!(count(&with("100.100.0.0/16", NAMES_MAX - 1, 1)), NAMES_MAX - 1);
    assert_eq!(key_error(&files, &with("100.100.0.0/16", NAMES_MAX, 1)).key, "vip.entryPoints[].addresses");
}
