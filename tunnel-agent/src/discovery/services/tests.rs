//! The backends that Services and their EndpointSlices give together.

use serde_json::{Value, json};

use super::*;

fn list(items: &[Value]) -> Vec<u8> {
    json!({ "metadata": { "resourceVersion": "7" }, "items": items }).to_string().into_bytes()
}

fn service(kind: &str, ports: &Value) -> Vec<u8> {
    list(&[json!({ "spec": { "type": kind, "ports": ports } })])
}

fn slice(kind: &str, addresses: &[(&str, Value)], ports: &Value) -> Value {
    let endpoint = |(address, ready): &(&str, Value)| json!({ "addresses": [address], "conditions": { "ready": ready } });
    let endpoints: Vec<Value> = addresses.iter().map(endpoint).collect();
    json!({ "addressType": kind, "endpoints": endpoints, "ports": ports })
}

fn of(service: &[u8], slices: &[Value], ports: &[u16]) -> Backends {
    backends(service, &list(slices), &ports.iter().copied().collect()).unwrap()
}

/// Ports with addresses, as text.
fn ports(expected: &[(u16, &[&str])]) -> Backends {
    let addresses = |texts: &[&str]| texts.iter().map(|text| text.parse().unwrap()).collect();
    Backends::Ports(expected.iter().map(|(port, texts)| (*port, addresses(texts))).collect())
}

#[test]
fn a_port_has_the_ready_endpoints_of_its_name_with_their_number() {
    let service = service(
        "ClusterIP",
        &json!([
            { "name": "https", "port": 443, "targetPort": "hook", "protocol": "TCP", "appProtocol": "kubernetes.io/h2c" },
            { "name": "metrics", "port": 9090, "targetPort": 9090 },
            { "name": "unasked", "port": 1, "targetPort": 1 },
        ]),
    );
    let both =
        json!([{ "name": "https", "port": 8443, "protocol": "TCP" }, { "name": "metrics", "port": 9090 }]);
    let slices = [
        slice(
            "IPv4",
            &[("10.42.0.2", json!(true)), ("10.42.0.3", json!(false)), ("10.42.0.4", Value::Null)],
            &both,
        ),
        // Pods that have another number for the same port are in a slice of their own.
        slice("IPv4", &[("10.42.0.9", json!(true))], &json!([{ "name": "https", "port": 9443 }])),
        slice("IPv6", &[("fd00:42::2", json!(true))], &both),
    ];

    let expected: [(u16, &[&str]); 2] = [
        (443, &["10.42.0.2:8443", "10.42.0.4:8443", "10.42.0.9:9443", "[fd00:42::2]:8443"]),
        (9090, &["10.42.0.2:9090", "10.42.0.4:9090", "[fd00:42::2]:9090"]),
    ];
    assert_eq!(of(&service, &slices, &[443, 9090, 80]), ports(&expected));
}

#[test]
fn a_headless_service_and_one_without_names_have_endpoints_too() {
    let headless =
        list(&[json!({ "spec": { "type": "ClusterIP", "clusterIP": "None", "ports": [{ "port": 443 }] } })]);
    for name in [Value::Null, json!("")] {
        let slices = [slice("IPv4", &[("10.42.0.2", json!(true))], &json!([{ "name": name, "port": 443 }]))];
        assert_eq!(of(&headless, &slices, &[443]), ports(&[(443, &["10.42.0.2:443"])]), "{name}");
    }
}

#[test]
fn only_tcp_counts_at_the_service_and_in_its_slices() {
    let same = json!([{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 53, "protocol": "TCP" }]);
    let slices = [slice(
        "IPv4",
        &[("10.42.0.2", json!(true))],
        &json!([{ "name": "dns", "port": 53, "protocol": "UDP" }, { "name": "dns-tcp", "port": 5353, "protocol": "TCP" }]),
    )];
    assert_eq!(of(&service("ClusterIP", &same), &slices, &[53]), ports(&[(53, &["10.42.0.2:5353"])]));

    let udp = service("ClusterIP", &json!([{ "name": "dns", "port": 53, "protocol": "UDP" }]));
    assert_eq!(of(&udp, &slices, &[53]), ports(&[]));
    let lying = service("ClusterIP", &json!([{ "name": "dns", "port": 53, "protocol": "TCP" }]));
    assert_eq!(of(&lying, &slices, &[53]), ports(&[(53, &[])]));
}

#[test]
fn a_name_in_a_slice_is_never_followed_nor_is_an_external_name() {
    let external =
        list(&[json!({ "spec": { "type": "ExternalName", "externalName": "metadata.internal" } })]);
    let to = |kind: &str, address: &str| {
        [slice(kind, &[(address, json!(true))], &json!([{ "name": "a", "port": 80 }]))]
    };
    assert_eq!(of(&external, &to("IPv4", "10.42.0.2"), &[80]), Backends::ExternalName);
    let service = service("ClusterIP", &json!([{ "name": "a", "port": 80 }]));
    for (kind, address) in
        [("FQDN", "metadata.internal"), ("IPv4", "metadata.internal"), ("FQDN", "10.42.0.2")]
    {
        assert_eq!(of(&service, &to(kind, address), &[80]), ports(&[(80, &[])]), "{kind} {address}");
    }
    // Only the first address of an endpoint counts, by the API's definition.
    let many = json!({ "addressType": "IPv4", "endpoints": [{ "addresses": ["10.42.0.2", "10.42.0.3"] }],
        "ports": [{ "name": "a", "port": 80 }] });
    assert_eq!(of(&service, &[many], &[80]), ports(&[(80, &["10.42.0.2:80"])]));
}

#[test]
fn a_missing_service_is_reported_and_no_list_is_an_error() {
    assert_eq!(of(&list(&[]), &[], &[443]), Backends::Absent);
    let bare = json!({ "addressType": "IPv4", "endpoints": null, "ports": null });
    let portless = service("ClusterIP", &Value::Null);
    assert_eq!(of(&portless, std::slice::from_ref(&bare), &[443]), ports(&[]));
    let service = service("ClusterIP", &json!([{ "port": 443 }]));
    assert_eq!(of(&service, &[bare], &[443]), ports(&[(443, &[])]));
    let no_number =
        slice("IPv4", &[("10.42.0.2", json!(true))], &json!([{ "name": "", "port": null }, { "port": 0 }]));
    assert_eq!(of(&service, &[no_number], &[443]), ports(&[(443, &[])]));
    let status = br#"{"kind":"Status"}"#;
    assert!(backends(status, &list(&[]), &BTreeSet::new()).is_err());
    assert!(backends(&service, status, &BTreeSet::new()).is_err());
}

#[test]
fn each_service_is_requested_once_by_its_own_name() {
    let texts = ["hook.shop.svc:443", "hook.shop.svc:80", "db.shop.svc:5432", "db.example:1", "10.0.0.1:443"];
    let targets: Vec<Target> = texts.iter().map(|text| text.parse().unwrap()).collect();

    let named = named(targets.iter());

    let counts: Vec<_> = named.iter().map(|(name, ports)| (name.to_string(), ports.len())).collect();
    assert_eq!(counts, [("db.shop.svc".to_owned(), 1), ("hook.shop.svc".to_owned(), 2)]);
    let (hook, _) = named.last_key_value().unwrap();
    assert_eq!(
        paths(hook),
        [
            "/api/v1/namespaces/shop/services?fieldSelector=metadata.name%3Dhook",
            "/apis/discovery.k8s.io/v1/namespaces/shop/endpointslices?labelSelector=kubernetes.io%2Fservice-name%3Dhook",
        ]
    );
}
