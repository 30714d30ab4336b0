//! The clusters' addresses that this host takes.

use super::*;

const VIP: &str = "
vip:
  interface: edges0
  entryPoints:
  - name: office-1
    sources: [10.8.1.0/24, '2001:db8:1::/48']
    connections: 7
    connectionsPerSource: 3
    addresses:
    - { listen: '192.168.1.10:6443', cluster: edge-a }
    - { listen: '10.255.0.1:443', cluster: edge-a, target: 'kubernetes.edge-a.example:6443' }
  - name: office-2
    sources: [10.8.2.0/24]
    addresses: [{ listen: '192.168.1.10:6443', cluster: edge-b }]
";

/// A valid configuration with this section, and with an egress and a passthrough beside it.
fn with_section(vip: &str) -> String {
    let others = "egress: [{ name: host-a, cluster: edge-a, uds: { path: run/a.sock } }]\n\
         passthrough: { name: sni, listen: '127.0.0.1:6443', sources: [any], servers: [{ name: a.test, cluster: c, target: 'a:1' }] }\n";
    format!("{SMALLEST}{others}{vip}")
}

#[test]
fn an_address_has_a_target_for_each_network_of_clients() {
    let files = files();
    let vip = load(&files, &with_section(VIP), &Flags::default()).unwrap().vip.unwrap();

    assert_eq!((vip.interface.as_str(), vip.entry_points.len()), ("edges0", 2));
    let [one, two] = &vip.entry_points[..] else { panic!("{vip:?}") };
    assert_eq!((one.entry_point.connections, one.entry_point.connections_per_source), (7, 3));
    let of = |entry_point: &VipEntryPoint, listen: &str| {
        let target = &entry_point.addresses[&listen.parse().unwrap()];
        (target.cluster.to_string(), target.target.to_string())
    };
    // By default the target is the address in the cluster's own kubeconfig.
    assert_eq!(of(one, "192.168.1.10:6443"), ("edge-a".into(), "192.168.1.10:6443".into()));
    assert_eq!(of(one, "10.255.0.1:443"), ("edge-a".into(), "kubernetes.edge-a.example:6443".into()));
    assert_eq!(of(two, "192.168.1.10:6443"), ("edge-b".into(), "192.168.1.10:6443".into()));
    assert!(load(&files, SMALLEST, &Flags::default()).unwrap().vip.is_none(), "off unless it is asked for");
    let usual =
        load(&files, &with_section(&VIP.replace("  interface: edges0\n", "")), &Flags::default()).unwrap();
    assert_eq!(usual.vip.unwrap().interface, "tombolo0");
}

#[test]
fn an_error_in_the_vip_names_key_and_value() {
    let files = files();
    let first = |key: &str| format!("vip.entryPoints[0].{key}");
    let listen = first("addresses[0].listen");
    for (from, to, key, value) in [
        ("edges0", "0edges", "vip.interface".to_owned(), "\"0edges\""),
        ("edges0", "edges0123456789a", "vip.interface".into(), "\"edges0123456789a\""),
        ("edges0", "../eth0", "vip.interface".into(), "\"../eth0\""),
        ("name: office-1", "name: Office", first("name"), "\"Office\""),
        // Policy could not distinguish the two.
        ("name: office-1", "name: host-a", first("name"), "\"host-a\""),
        ("name: office-1", "name: sni", first("name"), "\"sni\""),
        ("name: office-2", "name: office-1", "vip.entryPoints[1].name".into(), "\"office-1\""),
        ("    sources: [10.8.2.0/24]\n", "", "vip.entryPoints[1].sources".into(), "nothing"),
        // A client from there could mean either cluster.
        ("[10.8.2.0/24]", "[10.9.0.0/16, 10.8.1.7/32]", "vip.entryPoints[1].sources".into(), "10.8.1.7/32"),
        ("[10.8.2.0/24]", "[10.8.0.0/16]", "vip.entryPoints[1].sources".into(), "10.8.0.0/16"),
        ("[10.8.2.0/24]", "[any]", "vip.entryPoints[1].sources".into(), "0.0.0.0/0"),
        ("PerSource: 3", "PerSource: 8", first("connectionsPerSource"), "8"),
        (
            "    - { listen: '192.168.1.10:6443', cluster: edge-a }\n    - { listen: '10.255.0.1:443', cluster: edge-a, target: \
          'kubernetes.edge-a.example:6443' }\n",
            "      []\n",
            first("addresses"),
            "0",
        ),
        ("listen: '192.168.1.10:6443', ", "", listen.clone(), "nothing"),
        ("10.255.0.1:443", "192.168.1.10:6443", first("addresses[1].listen"), "192.168.1.10:6443"),
        ("192.168.1.10:6443", "192.168.1.10:0", listen.clone(), "192.168.1.10:0"),
        ("192.168.1.10:6443", "192.168.1.10", listen.clone(), "192.168.1.10"),
        ("192.168.1.10:6443", "api.edge-a.example:6443", listen.clone(), "api.edge-a.example:6443"),
        ("192.168.1.10:6443", "0.0.0.0:6443", listen.clone(), "0.0.0.0:6443"),
        ("192.168.1.10:6443", "127.0.0.1:6443", listen.clone(), "127.0.0.1:6443"),
        ("192.168.1.10:6443", "169.254.169.254:80", listen.clone(), "169.254.169.254:80"),
        ("192.168.1.10:6443", "224.0.0.1:6443", listen.clone(), "224.0.0.1:6443"),
        ("192.168.1.10:6443", "255.255.255.255:6443", listen.clone(), "255.255.255.255:6443"),
        ("192.168.1.10:6443", "[::ffff:192.168.1.10]:6443", listen.clone(), "[::ffff:192.168.1.10]:6443"),
        ("192.168.1.10:6443", "[fe80::1]:6443", listen.clone(), "[fe80::1]:6443"),
        ("192.168.1.10:6443", "[::1]:6443", listen, "[::1]:6443"),
        ("cluster: edge-b", "cluster: '*'", "vip.entryPoints[1].addresses[0].cluster".into(), "\"*\""),
        ("kubernetes.edge-a.example:6443", "10.0.0.0/8:1", first("addresses[1].target"), "\"10.0.0.0/8:1\""),
    ] {
        assert!(VIP.contains(from), "{from}");
        let error = key_error(&files, &with_section(&VIP.replacen(from, to, 1)));
        assert_eq!((&error.key, error.value.as_str()), (&key, value), "{to}");
    }
}

#[test]
fn the_old_key_of_entry_points_is_refused_with_its_present_name() {
    let error = key_error(&files(), &with_section(&VIP.replace("  entryPoints:", "  ways:")));
    assert_eq!(error.key, "vip.ways");
    assert!(error.allowed.contains("vip.entryPoints"), "{error}");
}

#[test]
fn networks_may_overlap_if_no_address_is_in_both() {
    let files = files();
    let apart = VIP.replace("[10.8.2.0/24]", "[10.8.0.0/16]");
    let apart = apart
        .replace("addresses: [{ listen: '192.168.1.10:6443'", "addresses: [{ listen: '192.168.1.10:6444'");

    assert_eq!(
        load(&files, &with_section(&apart), &Flags::default()).unwrap().vip.unwrap().entry_points.len(),
        2
    );
}

#[test]
fn the_number_of_entry_points_and_addresses_is_limited() {
    let files = files();
    let with = |entry_points: usize, addresses: usize| {
        let entry_point = |number: usize| {
            let addresses: String = (0..addresses)
                .map(|n| format!("{{ listen: '10.{number}.{}.{}:443', cluster: c }},", n / 200, n % 200 + 1))
                .collect();
            format!("{{ name: w{number}, sources: [10.0.0.0/8], addresses: [{addresses}] }},")
        };
        let entry_points: String = (0..entry_points).map(entry_point).collect();
        with_section(&format!("vip: {{ entryPoints: [{entry_points}] }}\n"))
    };
    let count = |text: &str| load(&files, text, &Flags::default()).unwrap().vip.unwrap().entry_points.len();
    assert_eq!(count(&with(VIP_ENTRY_POINTS_MAX, 1)), VIP_ENTRY_POINTS_MAX);
    assert_eq!(key_error(&files, &with(VIP_ENTRY_POINTS_MAX + 1, 1)).key, "vip.entryPoints");
    assert_eq!(key_error(&files, &with(0, 1)).key, "vip.entryPoints");
    assert_eq!(count(&with(2, NAMES_MAX / 2)), 2);
    assert_eq!(key_error(&files, &with(2, NAMES_MAX / 2 + 1)).key, "vip.entryPoints[].addresses");
}
