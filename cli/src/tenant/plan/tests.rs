//! Tests of what is refused, and of what a tenant gets.

use super::super::facts::{ControlPlaneNode, StorageClass};
use super::*;

#[test]
fn the_first_tenants_get_ports_and_networks_that_nobody_has() {
    let mut facts = facts();

    let first = plan(&wishes("acme"), &facts).unwrap();
    facts.others.push(first.clone());
    let second = plan(&wishes("blue"), &facts).unwrap();

    let shown = |record: &TenantRecord| {
        (record.ports.to_string(), record.service_network.to_string(), record.pod_network.to_string())
    };
    let text = |all: [&str; 3]| (all[0].to_owned(), all[1].to_owned(), all[2].to_owned());
    assert_eq!(shown(&first), text(["16440", "10.97.0.0/16", "10.245.0.0/16"]));
    assert_eq!(shown(&second), text(["16450", "10.98.0.0/16", "10.244.0.0/16"]));
    assert_eq!((first.name.as_str(), first.members), ("acme", 3));
}

#[test]
fn whatever_the_host_or_another_tenant_has_is_refused_by_name() {
    let mut facts = facts();
    facts.others.push(plan(&wishes("acme"), &facts).unwrap());

    let ports = Wishes { ports: Some("16440".parse().unwrap()), ..wishes("blue") };
    let refused = plan(&ports, &facts).unwrap_err();
    assert_eq!(refused, Refused::Ports { first: 16440, last: 16449, other: "acme".to_owned() });

    for (services, pods, words) in [
        (
            "10.97.4.0/24",
            "10.1.0.0/16",
            "10.97.4.0/24 of the tenant's Services overlaps 10.97.0.0/16 of the tenant acme",
        ),
        (
            "10.2.0.0/16",
            "10.245.128.0/20",
            "10.245.128.0/20 of the tenant's pods overlaps 10.245.0.0/16 of the tenant acme",
        ),
        ("10.96.0.0/12", "10.1.0.0/16", "overlaps 10.96.0.1/32 of the host's Service default/kubernetes"),
        ("10.2.0.0/16", "10.240.0.0/12", "overlaps 10.240.7.0/24 of the pods of the host's node m1"),
        (
            "10.2.0.0/16",
            "10.2.128.0/17",
            "10.2.0.0/16 of the tenant's Services overlaps 10.2.128.0/17 of its pods",
        ),
        ("10.2.0.0/8", "10.1.0.0/16", ""),
    ] {
        let (Ok(services), Ok(pods)) = (services.parse(), pods.parse()) else {
            assert_eq!(words, "", "{services}");
            continue;
        };
        let wishes = Wishes { service_network: Some(services), pod_network: Some(pods), ..wishes("blue") };
        let refused = plan(&wishes, &facts).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn networks_have_the_sizes_that_kubernetes_takes() {
    for (services, pods, words) in [
        ("10.2.0.0/29", "10.1.0.0/16", "Services has a prefix of 29 bits; use 12 to 28"),
        ("10.2.0.0/16", "10.1.0.0/25", "pods has a prefix of 25 bits; use 8 to 24"),
        ("fd00::/64", "10.1.0.0/16", "Services has a prefix of 64 bits; use 108 to 124"),
    ] {
        let services = services.parse().unwrap();
        let wishes =
            Wishes { service_network: Some(services), pod_network: pods.parse().ok(), ..wishes("acme") };
        let refused = plan(&wishes, &facts()).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
}

#[test]
fn an_interrupted_creation_goes_on_with_its_record() {
    let mut facts = facts();
    let record = plan(&wishes("acme"), &facts).unwrap();
    facts.own = OwnNamespace::Tenant(record.clone());

    assert_eq!(plan(&wishes("acme"), &facts).unwrap(), record);

    let other_members = Wishes { members: Some(1), ..wishes("acme") };
    let other_ports = Wishes { ports: Some("16460".parse().unwrap()), ..wishes("acme") };
    for (wishes, words) in [
        (other_members, "has the number of members 3, which cannot be changed to 1"),
        (other_ports, "has the port base 16440, which cannot be changed to 16460"),
    ] {
        let refused = plan(&wishes, &facts).unwrap_err().to_string();
        assert!(refused.contains(words), "{refused}");
    }
    facts.own = OwnNamespace::Foreign;
    assert_eq!(plan(&wishes("acme"), &facts), Err(Refused::Foreign("acme".to_owned())));
    facts.own = OwnNamespace::Terminating;
    assert_eq!(plan(&wishes("acme"), &facts), Err(Refused::Terminating("acme".to_owned())));
}

#[test]
fn each_member_of_an_etcd_needs_a_labelled_node() {
    let mut facts = facts();
    facts.nodes.pop();

    let refused = plan(&wishes("acme"), &facts).unwrap_err();

    assert_eq!(refused, Refused::Nodes { members: 3, found: 2 });
    assert!(refused.to_string().contains("kubectl label node NAME tombolo.dev/control-planes=true"));
    assert!(plan(&Wishes { members: Some(1), ..wishes("acme") }, &facts).is_ok());
}

#[test]
fn a_storage_class_has_to_be_there_and_to_have_volumes() {
    let mut facts = facts();
    let of = |data: &str, event: &str| Wishes {
        storage_classes: [data.to_owned(), event.to_owned()],
        ..wishes("acme")
    };
    let by_hand = StorageClass { name: "hand".to_owned(), is_default: false, makes_volumes: false };
    facts.storage.classes.push(by_hand);
    facts.storage.available = vec!["hand".to_owned(); 3];

    assert!(plan(&of("quick", "hand"), &facts).is_ok());
    let too_few = Refused::NoVolumes { class: "hand".to_owned(), available: 3, needed: 6 };
    assert_eq!(plan(&of("hand", "hand"), &facts), Err(too_few));
    let known = vec!["quick".to_owned(), "hand".to_owned()];
    let missing = Refused::NoClass { name: "slow".to_owned(), known: known.clone() };
    assert_eq!(plan(&of("", "slow"), &facts), Err(missing));
    facts.storage.classes[0].is_default = false;
    assert_eq!(plan(&of("", ""), &facts), Err(Refused::NoDefaultClass(known)));
    // All claims of an earlier run are there.
    facts.storage.claims = 6;
    assert!(plan(&of("hand", "hand"), &facts).is_ok());
}

fn wishes(name: &str) -> Wishes<'_> {
    Wishes {
        name,
        members: None,
        ports: None,
        service_network: None,
        pod_network: None,
        storage_classes: [String::new(), String::new()],
    }
}

/// A host with three labelled nodes and a default StorageClass.
fn facts() -> HostFacts {
    let node = |name: &str, address: &str| ControlPlaneNode {
        name: name.to_owned(),
        address: address.parse().unwrap(),
    };
    let network =
        |what: &str, network: &str| HostNetwork { what: what.to_owned(), network: network.parse().unwrap() };
    HostFacts {
        own: OwnNamespace::Absent,
        others: Vec::new(),
        networks: vec![
            network("the host's Service default/kubernetes", "10.96.0.1/32"),
            network("the pods of the host's node m1", "10.240.7.0/24"),
        ],
        nodes: vec![node("m1", "192.168.1.11"), node("m2", "192.168.1.12"), node("m3", "192.168.1.13")],
        storage: Storage {
            classes: vec![StorageClass { name: "quick".to_owned(), is_default: true, makes_volumes: true }],
            available: Vec::new(),
            claims: 0,
        },
    }
}
