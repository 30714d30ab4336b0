//! The clusters' addresses that this host has.

use super::*;

const VIP: &str = "
vip:
  interface: edges0
  ways:
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

/// One that is valid, and the keys of the other ways in.
fn whole(vip: &str) -> String {
    let ways = "egress: [{ name: host-a, cluster: edge-a, uds: { path: run/a.sock } }]\n\
         passthrough: { name: sni, listen: '127.0.0.1:6443', sources: [any], servers: [{ name: a.test, cluster: c, target: 'a:1' }] }\n";
    format!("{LEAST}{ways}{vip}")
}

#[test]
fn one_address_means_to_each_network_what_its_own_way_says() {
    let files = files();
    let vip = load(&files, &whole(VIP), &Flags::default()).unwrap().vip.unwrap();

    assert_eq!((vip.interface.as_str(), vip.ways.len()), ("edges0", 2));
    let [one, two] = &vip.ways[..] else { panic!("{vip:?}") };
    assert_eq!((one.way.connections, one.way.connections_per_source), (7, 3));
    let of = |way: &VipWay, listen: &str| {
        let site = &way.addresses[&listen.parse().unwrap()];
        (site.cluster.to_string(), site.target.to_string())
    };
    // What stands in a cluster's own kubeconfig is where it is, unless something else is said.
    assert_eq!(of(one, "192.168.1.10:6443"), ("edge-a".into(), "192.168.1.10:6443".into()));
    assert_eq!(of(one, "10.255.0.1:443"), ("edge-a".into(), "kubernetes.edge-a.example:6443".into()));
    assert_eq!(of(two, "192.168.1.10:6443"), ("edge-b".into(), "192.168.1.10:6443".into()));
    assert!(load(&files, LEAST, &Flags::default()).unwrap().vip.is_none(), "off unless it is asked for");
    let usual = load(&files, &whole(&VIP.replace("  interface: edges0\n", "")), &Flags::default()).unwrap();
    assert_eq!(usual.vip.unwrap().interface, "tombolo0");
}

#[test]
fn what_is_wrong_of_the_vip_is_named_with_its_key_and_value() {
    let files = files();
    let first = |key: &str| format!("vip.ways[0].{key}");
    let listen = first("addresses[0].listen");
    for (from, to, key, value) in [
        ("edges0", "0edges", "vip.interface".to_owned(), "\"0edges\""),
        ("edges0", "edges0123456789a", "vip.interface".into(), "\"edges0123456789a\""),
        ("edges0", "../eth0", "vip.interface".into(), "\"../eth0\""),
        ("name: office-1", "name: Office", first("name"), "\"Office\""),
        // Policy could not tell the two apart.
        ("name: office-1", "name: host-a", first("name"), "\"host-a\""),
        ("name: office-1", "name: sni", first("name"), "\"sni\""),
        ("name: office-2", "name: office-1", "vip.ways[1].name".into(), "\"office-1\""),
        ("    sources: [10.8.2.0/24]\n", "", "vip.ways[1].sources".into(), "nothing"),
        // Somebody from there could mean either cluster.
        ("[10.8.2.0/24]", "[10.9.0.0/16, 10.8.1.7/32]", "vip.ways[1].sources".into(), "10.8.1.7/32"),
        ("[10.8.2.0/24]", "[10.8.0.0/16]", "vip.ways[1].sources".into(), "10.8.0.0/16"),
        ("[10.8.2.0/24]", "[any]", "vip.ways[1].sources".into(), "0.0.0.0/0"),
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
        ("cluster: edge-b", "cluster: '*'", "vip.ways[1].addresses[0].cluster".into(), "\"*\""),
        ("kubernetes.edge-a.example:6443", "10.0.0.0/8:1", first("addresses[1].target"), "\"10.0.0.0/8:1\""),
    ] {
        assert!(VIP.contains(from), "{from}");
        let error = key_error(&files, &whole(&VIP.replacen(from, to, 1)));
        assert_eq!((&error.key, error.value.as_str()), (&key, value), "{to}");
    }
}

#[test]
fn networks_that_have_no_address_in_common_may_meet() {
    let files = files();
    let apart = VIP.replace("[10.8.2.0/24]", "[10.8.0.0/16]");
    let apart = apart
        .replace("addresses: [{ listen: '192.168.1.10:6443'", "addresses: [{ listen: '192.168.1.10:6444'");

    assert_eq!(load(&files, &whole(&apart), &Flags::default()).unwrap().vip.unwrap().ways.len(), 2);
}

#[test]
fn there_are_as_many_ways_and_addresses_as_may_be_and_not_one_more() {
    let files = files();
    let with = |ways: usize, addresses: usize| {
        let way = |way: usize| {
            let addresses: String = (0..addresses)
                .map(|n| format!("{{ listen: '10.{way}.{}.{}:443', cluster: c }},", n / 200, n % 200 + 1))
                .collect();
            format!("{{ name: w{way}, sources: [10.0.0.0/8], addresses: [{addresses}] }},")
        };
        let ways: String = (0..ways).map(way).collect();
        whole(&format!("vip: {{ ways: [{ways}] }}\n"))
    };
    let count = |text: &str| load(&files, text, &Flags::default()).unwrap().vip.unwrap().ways.len();
    assert_eq!(count(&with(VIP_WAYS_MAX, 1)), VIP_WAYS_MAX);
    assert_eq!(key_error(&files, &with(VIP_WAYS_MAX + 1, 1)).key, "vip.ways");
    assert_eq!(key_error(&files, &with(0, 1)).key, "vip.ways");
    assert_eq!(count(&with(2, NAMES_MAX / 2)), 2);
    assert_eq!(key_error(&files, &with(2, NAMES_MAX / 2 + 1)).key, "vip.ways[].addresses");
}
