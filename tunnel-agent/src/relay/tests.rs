//! Targets that are connected, and the reasons for which others are not.

use std::net::SocketAddr;

use policy::ServiceName;
use tokio::net::{TcpListener, TcpSocket};

use super::*;
use crate::guard::services::Backends;

fn relay(target: SocketAddr) -> Relay {
    let entry: TargetEntry = target.to_string().parse().unwrap();
    Relay::to(move || Targets::new(vec![entry.clone()], Vec::new()))
}

async fn reason(relay: &Relay, target: &str) -> Option<Reason> {
    relay.connect(target).await.err().map(|error| error.reason())
}

#[tokio::test]
async fn targets_are_connected_up_to_the_limit() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let relay = relay(target);
    let _others = relay.0.slots.clone().acquire_many_owned(CONNECTIONS_MAX as u32 - 1).await.unwrap();

    let last = relay.connect(&target.to_string()).await.unwrap();
    assert_eq!(reason(&relay, &target.to_string()).await, Some(Reason::Limit));
    drop(last);

    assert_eq!(reason(&relay, &target.to_string()).await, None);
}

#[tokio::test]
async fn a_target_that_is_not_connected_has_its_reason() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let target = listener.local_addr().unwrap();
    let relay = relay(target);
    drop(listener);

    for (target, expected) in [
        (target.to_string().as_str(), Reason::Unreachable),
        ("10.1.2.3:80", Reason::Unlisted),
        ("no target", Reason::Target),
        ("nobody.invalid:80", Reason::Unresolved),
    ] {
        assert_eq!(reason(&relay, target).await, Some(expected), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_target_that_does_not_answer_is_given_up() {
    let (target, _guard) = silent().await;

    assert_eq!(reason(&relay(target), &target.to_string()).await, Some(Reason::Timeout));
}

#[tokio::test(start_paused = true)]
async fn an_address_that_does_not_answer_is_passed_over_where_others_wait() {
    let (silent, _guard) = silent().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let answers = listener.local_addr().unwrap();
    let both =
        [silent, answers].map(|address| address.to_string().parse().map(TargetEntry::Exactly).unwrap());
    let targets = Targets::new(both.to_vec(), Vec::new());
    let mut checked = Vec::new();
    for address in [silent, answers] {
        checked.extend(targets.check(&address.to_string().parse().unwrap(), by_system).await.unwrap());
    }

    let (_socket, address) = timeout(CONNECT_MAX, connect_first(&checked)).await.expect("in time").unwrap();

    assert_eq!(address.address(), answers);
}

#[tokio::test]
async fn a_service_is_dialed_at_another_endpoint_first_each_time() {
    let (_updates, relay) =
        relay_of(&["hook.shop.svc:443"], services_with(&["10.42.0.2:8443", "10.42.0.3:8443"]));
    let target = "hook.shop.svc:443".parse().unwrap();

    let mut firsts = Vec::new();
    for _ in 0..4 {
        let checked = relay.addresses(&target).await.unwrap();
        assert_eq!(checked.len(), 2);
        firsts.push(checked[0].address().to_string());
    }

    assert_eq!(firsts, ["10.42.0.2:8443", "10.42.0.3:8443", "10.42.0.2:8443", "10.42.0.3:8443"]);
}

#[tokio::test]
async fn a_change_of_a_services_endpoints_holds_for_the_next_dial() {
    let (updates, relay) = relay_of(&["hook.shop.svc:443"], services_with(&["10.42.0.2:8443"]));
    let target = "hook.shop.svc:443".parse().unwrap();
    for now in [&["10.42.0.2:8443"][..], &["10.42.0.2:8443", "10.42.0.3:8443"], &["10.42.0.3:8443"]] {
        updates.send_replace(services_with(now));

        let checked = relay.addresses(&target).await.unwrap();

        let mut found: Vec<_> = checked.iter().map(|one| one.address().to_string()).collect();
        found.sort_unstable();
        assert_eq!(found, now);
    }
}

#[tokio::test(start_paused = true)]
async fn a_service_that_is_not_dialed_has_its_reason() {
    let name = ServiceName::new("hook", "shop").unwrap();
    let with = |backends| {
        let mut services = Services::default();
        services.set_named(&name, backends);
        services
    };
    let listed = ["hook.shop.svc:443", "hook.shop.svc:80", "10.0.0.0/8:443"];
    for (services, target, expected) in [
        (Services::default(), "hook.shop.svc:443", Reason::Unread),
        (with(Backends::Absent), "hook.shop.svc:443", Reason::NoService),
        (with(Backends::ExternalName), "hook.shop.svc:443", Reason::NoService),
        (services_with(&["10.42.0.2:8443"]), "hook.shop.svc:80", Reason::NoService),
        (services_with(&[]), "hook.shop.svc:443", Reason::NotReady),
        (services_with(&["127.0.0.1:8443"]), "hook.shop.svc:443", Reason::Special),
        // It is not listed: neither its endpoints nor DNS are asked.
        (services_with(&["10.42.0.2:443"]), "hook.shop.svc:8443", Reason::Unlisted),
        (services_with(&["10.42.0.2:443"]), "hook.other.svc:443", Reason::Unlisted),
    ] {
        let (_updates, relay) = relay_of(&listed, services);
        assert_eq!(reason(&relay, target).await, Some(expected), "{target}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dial_waits_until_the_api_server_names_a_services_endpoints() {
    let (updates, relay) = relay_of(&["hook.shop.svc:443"], Services::default());
    let target = "hook.shop.svc:443".parse().unwrap();

    let update = async {
        tokio::time::sleep(RESOLVE_MAX / 2).await;
        updates.send_replace(services_with(&["10.42.0.2:8443"]));
    };
    let (checked, ()) = tokio::join!(relay.addresses(&target), update);

    assert_eq!(checked.unwrap()[0].address(), "10.42.0.2:8443".parse().unwrap());
}

/// A relay of an agent with this list, and the sender of its Services.
fn relay_of(entries: &[&str], services: Services) -> (watch::Sender<Services>, Relay) {
    let entries: Vec<TargetEntry> = entries.iter().map(|entry| entry.parse().unwrap()).collect();
    let (updates, services) = watch::channel(services);
    (updates, Relay::with_sources(None, services, move || Targets::new(entries.clone(), Vec::new())))
}

/// The port 443 of the Service `hook` in `shop`.
fn services_with(addresses: &[&str]) -> Services {
    let addresses = addresses.iter().map(|address| address.parse().unwrap()).collect();
    let mut services = Services::default();
    services
        .set_named(&ServiceName::new("hook", "shop").unwrap(), Backends::Ports([(443, addresses)].into()));
    services
}

/// An address at which nobody answers, and the sockets that keep it so.
async fn silent() -> (SocketAddr, (TcpListener, TcpStream)) {
    let full = TcpSocket::new_v4().unwrap();
    full.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let full = full.listen(0).unwrap();
    let target = full.local_addr().unwrap();
    // Nobody accepts, so the kernel answers only one connection.
    let first = TcpStream::connect(target).await.unwrap();
    (target, (full, first))
}
