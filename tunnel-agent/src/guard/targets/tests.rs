//! Targets that are dialed and others that are not, by a table from another implementation of addresses and
//! by properties.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use proptest::prelude::*;

use policy::NotATargetEntry;

use super::*;

/// Targets with their outcome for [`list`] and [`dns`]. Python's `ipaddress` has classified the addresses.
const TABLE: &str = include_str!("tests/table.tsv");

#[test]
fn the_table_holds() {
    let (list, dns) = (list(), dns());
    let mut rows = 0;
    let mut wrong = Vec::new();
    for (text, expected) in TABLE.lines().map(|line| line.split_once('\t').unwrap()) {
        let found = outcome_of(&list, &dns, text);
        if found != expected {
            wrong.push(format!("{text}: {found}, not {expected}"));
        }
        rows += 1;
    }
    assert!(rows >= 500, "{rows}");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn an_entry_is_a_target_or_a_network_with_a_port_and_has_one_spelling() {
    for good in
        ["db.example:5432", "10.1.2.3:1", "[::1]:65535", "10.0.0.0/8:5432", "[2001:db8::/32]:443", "[::/0]:1"]
    {
        assert!(good.parse::<TargetEntry>().is_ok(), "{good}");
    }
    for bad in [
        "",
        "*",
        "*:443",
        "10.0.0.0/8",
        "10.0.0.0/8:",
        "10.0.0.0/8:0",
        "10.0.0.0/8:+1",
        "10.0.0.0/8:*",
        "10.0.0.1/8:443",
        "10.0.0.0/33:443",
        "[10.0.0.0/8]:443",
        "2001:db8::/32:443",
        "[2001:db8::]/32:443",
        "[::ffff:10.0.0.0/104]:443",
        "db.example/8:443",
        "127.1:443",
        "db.example",
    ] {
        assert_eq!(bad.parse::<TargetEntry>(), Err(NotATargetEntry), "{bad}");
    }
}

#[test]
fn a_name_is_resolved_once_and_a_second_answer_is_never_seen() {
    let target: Target = "db2.example:5432".parse().unwrap();
    for _ in 0..100 {
        let mut answers = [[10, 9, 8, 7], [127, 0, 0, 1], [169, 254, 169, 254]].into_iter();
        let checked = at_once(
            list()
                .check(&target, async |_: &str| Ok(vec![IpAddr::from(answers.next().expect("asked once"))])),
        );
        let addresses: Vec<SocketAddr> = checked.unwrap().into_iter().map(Checked::address).collect();
        assert_eq!(addresses, ["10.9.8.7:5432".parse().unwrap()]);
        assert_eq!(answers.len(), 2);
    }
}

#[test]
fn an_unresolved_name_is_not_dialed_and_without_a_list_nothing_is() {
    let target: Target = "db.example:5432".parse().unwrap();
    let fails = at_once(list().check(&target, async |_: &str| Err(io::Error::other("no resolver"))));
    assert!(matches!(fails, Err(NotDialed::Unresolved(..))));
    for text in ["1.2.3.4:443", "127.0.0.1:6443", "db.example:5432"] {
        assert_eq!(outcome_of(&Targets::default(), &dns(), text), "unlisted", "{text}");
    }
}

#[test]
fn a_names_addresses_are_checked_up_to_their_limit() {
    let target: Target = "db2.example:5432".parse().unwrap();
    for (before, dialed) in [(ADDRESSES_MAX - 1, true), (ADDRESSES_MAX, false)] {
        let mut found = vec![IpAddr::from([9, 9, 9, 9]); before];
        found.push(IpAddr::from([10, 1, 1, 1]));
        let checked = at_once(list().check(&target, async move |_: &str| Ok(found)));
        assert_eq!(checked.is_ok(), dialed, "{before}");
    }
}

#[tokio::test]
async fn the_address_that_was_checked_is_dialed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let target: Target = address.to_string().parse().unwrap();
    let list = Targets::new(vec![TargetEntry::Exactly(target.clone())], Vec::new());

    let checked = list.check(&target, by_system).await.unwrap();
    let (stream, accepted) = tokio::join!(checked[0].dial(), listener.accept());

    assert_eq!((checked.len(), stream.unwrap().peer_addr().unwrap()), (1, address));
    accepted.unwrap();
    // The machine's own resolver returns a loopback address, which is special.
    let target = format!("localhost:{}", address.port()).parse().unwrap();
    let within = format!("127.0.0.0/8:{}", address.port()).parse().unwrap();
    let list = Targets::new(vec![within], Vec::new());
    assert!(matches!(list.check(&target, by_system).await, Err(NotDialed::Special(_))));
}

/// Anybody who can write EndpointSlices can write any of these into one. Another entry may even name it in
/// full.
#[test]
fn a_services_special_endpoint_is_never_dialed() {
    let target: Target = "hook.shop.svc:443".parse().unwrap();
    let named =
        ["hook.shop.svc:443", "0.0.0.0/0:8080", "127.0.0.1:8080", "[::1]:8080", "169.254.169.254:8080"];
    let own = vec!["10.0.0.9:9091".parse().unwrap(), "0.0.0.0:9443".parse().unwrap()];
    let list = Targets::new(named.map(|entry| entry.parse().unwrap()).to_vec(), own);
    for special in [
        "127.0.0.1:8080",
        "127.8.8.8:443",
        "[::1]:8080",
        "[::ffff:127.0.0.1]:443",
        "[::ffff:169.254.169.254]:80",
        "169.254.169.254:8080",
        "[fd00:ec2::254]:80",
        "100.100.100.200:80",
        "0.0.0.0:443",
        "[::]:443",
        "224.0.0.1:443",
        "255.255.255.255:443",
        "[fe80::1]:443",
        "[64:ff9b::7f00:1]:443",
        "[2002:7f00:1::]:443",
        "10.0.0.9:9091",
        "10.42.0.2:9443",
    ] {
        let endpoints = |more: &[&str]| {
            let all = [[special].as_slice(), more].concat();
            list.check_endpoints(&target, Ok(all.iter().map(|address| address.parse().unwrap()).collect()))
        };
        assert!(matches!(endpoints(&[]), Err(NotDialed::Special(_))), "{special}");
        // Ordinary endpoints of the same Service are still dialed.
        let beside = endpoints(&["10.42.0.2:8443"]).unwrap();
        assert_eq!(beside, [Checked("10.42.0.2:8443".parse().unwrap())], "{special}");
    }
}

#[test]
fn a_listed_services_endpoints_are_dialed_within_its_networks() {
    let listed: Target = "hook.shop.svc:443".parse().unwrap();
    let list = Targets::new(vec![TargetEntry::Exactly(listed.clone())], Vec::new());
    let within = list.clone().with_service_networks(vec!["10.42.0.0/16".parse().unwrap()]);
    let endpoints = |list: &Targets, target: &Target, address: &str| {
        let checked = list.check_endpoints(target, Ok(vec![address.parse().unwrap()]));
        checked
            .map(|checked| checked[0].address().to_string())
            .map_err(|why| matches!(why, NotDialed::Unlisted(_)))
    };
    for (address, elsewhere) in [("10.42.7.7:1", Ok("10.42.7.7:1".to_owned())), ("10.43.0.1:1", Err(true))] {
        assert_eq!(endpoints(&within, &listed, address), elsewhere);
        assert_eq!(endpoints(&list, &listed, address).as_deref(), Ok(address));
        // A network among the targets names no Service, and neither does another port.
        let networks = list.and(["10.0.0.0/8:1".parse().unwrap(), "10.0.0.0/8:443".parse().unwrap()]);
        for other in ["hook.shop.svc:1", "other.shop.svc:443"] {
            assert_eq!(endpoints(&networks, &other.parse().unwrap(), address), Err(true), "{other}");
        }
    }
}

#[test]
fn a_services_endpoints_are_tried_up_to_their_limit() {
    let target: Target = "hook.shop.svc:443".parse().unwrap();
    let list = Targets::new(vec![TargetEntry::Exactly(target.clone())], Vec::new());
    let endpoints =
        (0..=ADDRESSES_MAX).map(|last| SocketAddr::from(([10, 42, 0, last as u8], 443))).collect();
    assert_eq!(list.check_endpoints(&target, Ok(endpoints)).unwrap().len(), ADDRESSES_MAX);
}

proptest! {
    /// The addresses of a slice are arbitrary.
    #[test]
    fn a_services_dialed_endpoints_are_never_special(found in prop::collection::vec(address(), 0..6), port in 1_u16..4) {
        let target: Target = "hook.shop.svc:443".parse().unwrap();
        let mut entries = list().entries;
        entries.push(TargetEntry::Exactly(target.clone()));
        let endpoints = found.iter().map(|address| SocketAddr::new(*address, port)).collect();
        let checked = Targets::new(entries, Vec::new()).check_endpoints(&target, Ok(endpoints)).unwrap_or_default();
        let ordinary = found.iter().filter(|address| !is_special(unmapped(**address))).count();
        prop_assert_eq!(checked.len(), ordinary);
        prop_assert!(checked.iter().all(|one| !is_special(one.address().ip()) && one.address().port() == port));
    }

    /// A special address is dialed only where the list names it in full, whatever networks the list has.
    #[test]
    fn no_network_permits_a_special_address(address in address(), port in 1_u16..4) {
        let everything = ["0.0.0.0/0", "[::/0"].map(|network| {
            let end = if network.starts_with('[') { "]" } else { "" };
            format!("{network}{end}:{port}").parse().unwrap()
        });
        let list = Targets::new(everything.to_vec(), Vec::new());
        let dialed = addresses_of(&list, address, port);
        prop_assert_eq!(dialed.is_empty(), is_special(unmapped(address)));
        let target = TargetEntry::Exactly(SocketAddr::new(address, port).to_string().parse().unwrap());
        let named = Targets::new(vec![target], Vec::new());
        prop_assert_eq!(addresses_of(&named, address, port), vec![SocketAddr::new(unmapped(address), port)]);
    }

    #[test]
    fn a_mapped_address_counts_as_the_address_that_it_maps(address: [u8; 4], port in prop::sample::select(vec![443_u16, 5432, 6443])) {
        let address = Ipv4Addr::from(address);
        let (list, mapped) = (list(), IpAddr::V6(address.to_ipv6_mapped()));
        prop_assert_eq!(addresses_of(&list, mapped, port), addresses_of(&list, address.into(), port));
    }

    #[test]
    fn an_added_entry_refuses_no_more_and_an_own_address_dials_no_more(
        address in address(),
        port in prop::sample::select(vec![443_u16, 5432, 6443]),
        index in 0_usize..11,
    ) {
        let whole = list();
        let mut fewer = whole.clone();
        let index = index % fewer.entries.len();
        fewer.entries.remove(index);
        let dials = |list: &Targets| !addresses_of(list, address, port).is_empty();
        prop_assert!(dials(&whole) || !dials(&fewer));
        let mut own = whole.clone();
        own.own.push(SocketAddr::new(address, port));
        prop_assert!(dials(&whole) || !dials(&own));
    }

    /// A name permits only what its addresses permit, unless the name itself is listed.
    #[test]
    fn a_dialed_address_is_one_of_the_names_and_not_special(found in prop::collection::vec(address(), 0..6)) {
        let answer = found.clone();
        let target: Target = "db.example:5432".parse().unwrap();
        let checked = at_once(list().check(&target, async move |_: &str| Ok(answer)));
        for one in checked.unwrap_or_default() {
            prop_assert!(found.iter().any(|address| unmapped(*address) == one.address().ip()));
            prop_assert!(!is_special(one.address().ip()) && one.address().port() == 5432);
        }
    }
}

#[test]
fn added_entries_keep_the_others_and_open_no_special_address() {
    let before = list();
    let more = before.and(["192.0.2.0/24:8080".parse().unwrap(), "0.0.0.0/0:5432".parse().unwrap()]);
    let dialed = |list: &Targets, text: &str| outcome_of(list, &dns(), text).starts_with("dial");

    for (target, was, is) in [
        ("10.9.8.7:5432", true, true),
        ("db.example:5432", true, true),
        ("192.0.2.7:8080", false, true),
        ("198.51.100.7:5432", false, true),
        // An address of the agent itself.
        ("10.0.0.9:5432", false, false),
        ("127.0.0.1:5432", false, false),
        ("192.0.2.7:8081", false, false),
    ] {
        assert_eq!((dialed(&before, target), dialed(&more, target)), (was, is), "{target}");
    }
}

/// The output of a future that never waits.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("it never waits")
}

/// The list of the table.
fn list() -> Targets {
    let entries = [
        "10.0.0.0/8:5432",
        "0.0.0.0/0:443",
        "[::/0]:443",
        "[2001:db8::/32]:5432",
        "127.0.0.1:6443",
        "[::1]:6443",
        "169.254.169.254:8080",
        "[64:ff9b::102:304]:8443",
        "db.example:5432",
        "loop.example:443",
        "api.example:9443",
    ];
    let own = ["127.0.0.1:9091", "0.0.0.0:9443", "10.0.0.9:5432"];
    Targets::new(
        entries.map(|entry| entry.parse().unwrap()).to_vec(),
        own.map(|address| address.parse().unwrap()).to_vec(),
    )
}

/// The names of the table.
fn dns() -> BTreeMap<&'static str, Vec<IpAddr>> {
    let names = [
        ("db.example", "10.9.8.7"),
        ("db2.example", "10.9.8.7"),
        ("meta.example", "169.254.169.254"),
        ("loop.example", "127.0.0.1"),
        ("mixed.example", "127.0.0.1 10.5.5.5 1.2.3.4"),
        ("six.example", "2001:db8::7"),
        ("mapped.example", "::ffff:10.4.4.4"),
        ("mappedloop.example", "::ffff:127.0.0.1"),
        ("api.example", "1.2.3.4"),
        ("public.example", "203.0.113.9 2606:4700:4700::1111"),
        ("metadata.google.internal", "169.254.169.254"),
        ("localhost", "127.0.0.1 ::1"),
        ("none.example", ""),
    ];
    names
        .map(|(name, found)| (name, found.split_whitespace().map(|one| one.parse().unwrap()).collect()))
        .into()
}

fn outcome_of(list: &Targets, dns: &BTreeMap<&str, Vec<IpAddr>>, text: &str) -> String {
    let Ok(target) = text.parse::<Target>() else {
        return "not a target".to_owned();
    };
    match at_once(list.check(&target, async |name: &str| Ok(dns[name].clone()))) {
        Ok(checked) => {
            checked.iter().fold("dial".to_owned(), |said, one| format!("{said} {}", one.address()))
        }
        Err(NotDialed::Unlisted(_)) => "unlisted".to_owned(),
        Err(NotDialed::Special(_)) => "special".to_owned(),
        Err(NotDialed::NoAddress(_)) => "no address".to_owned(),
        Err(NotDialed::Unresolved(..)) => "unresolved".to_owned(),
        Err(NotDialed::NoBackend(..)) => "nowhere".to_owned(),
    }
}

fn addresses_of(list: &Targets, address: IpAddr, port: u16) -> Vec<SocketAddr> {
    let target: Target = SocketAddr::new(address, port).to_string().parse().unwrap();
    let checked = at_once(list.check(&target, async |_: &str| panic!("an address is not resolved")));
    checked.unwrap_or_default().into_iter().map(Checked::address).collect()
}

/// Any address, and often one that is special or close to one.
fn address() -> impl Strategy<Value = IpAddr> {
    let near = prop::sample::select(vec![
        "0.0.0.0",
        "10.1.2.3",
        "127.0.0.1",
        "169.254.169.254",
        "224.0.0.1",
        "255.255.255.255",
        "::1",
        "::7f00:1",
        "64:ff9b::7f00:1",
        "64:ff9b:1::1",
        "2001::1",
        "2002:7f00:1::",
        "fe80::1",
        "fec0::1",
        "ff02::1",
        "fd00:ec2::254",
        "2001:db8::1",
    ]);
    prop_oneof![
        any::<[u8; 4]>().prop_map(IpAddr::from),
        any::<[u8; 4]>().prop_map(|four| IpAddr::V6(Ipv4Addr::from(four).to_ipv6_mapped())),
        any::<[u8; 16]>().prop_map(IpAddr::from),
        near.prop_map(|text| text.parse().unwrap()),
    ]
}
