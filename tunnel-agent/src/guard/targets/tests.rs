//! What is dialed and what is not, by a table that another implementation of addresses has written, and by properties.

use std::collections::BTreeMap;

use futures::FutureExt as _;
use proptest::prelude::*;

use policy::NotATargetEntry;

use super::*;

/// Targets and what becomes of them with [`list`] and [`dns`]. Python's `ipaddress` has said which address is which.
const TABLE: &str = include_str!("tests/table.tsv");

#[test]
fn the_table_holds() {
    let (list, dns) = (list(), dns());
    let mut rows = 0;
    let mut wrong = Vec::new();
    for (text, expected) in TABLE.lines().map(|line| line.split_once('\t').unwrap()) {
        let found = verdict_of(&list, &dns, text);
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
fn nothing_is_dialed_that_cannot_be_resolved_and_without_a_list_nothing_at_all() {
    let target: Target = "db.example:5432".parse().unwrap();
    let fails = at_once(list().check(&target, async |_: &str| Err(io::Error::other("no resolver"))));
    assert!(matches!(fails, Err(NotDialed::Unresolved(..))));
    for text in ["1.2.3.4:443", "127.0.0.1:6443", "db.example:5432"] {
        assert_eq!(verdict_of(&Targets::default(), &dns(), text), "unlisted", "{text}");
    }
}

#[test]
fn a_name_has_as_many_addresses_as_are_looked_at_and_not_one_more() {
    let target: Target = "db2.example:5432".parse().unwrap();
    for (before, dialed) in [(ADDRESSES_MAX - 1, true), (ADDRESSES_MAX, false)] {
        let mut found = vec![IpAddr::from([9, 9, 9, 9]); before];
        found.push(IpAddr::from([10, 1, 1, 1]));
        let checked = at_once(list().check(&target, async move |_: &str| Ok(found)));
        assert_eq!(checked.is_ok(), dialed, "{before}");
    }
}

#[tokio::test]
async fn what_was_checked_is_what_is_dialed() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let target: Target = address.to_string().parse().unwrap();
    let list = Targets::new(vec![TargetEntry::Exactly(target.clone())], Vec::new());

    let checked = list.check(&target, by_system).await.unwrap();
    let (stream, accepted) = tokio::join!(checked[0].dial(), listener.accept());

    assert_eq!((checked.len(), stream.unwrap().peer_addr().unwrap()), (1, address));
    accepted.unwrap();
    // The resolver of this machine is asked, and what it says of itself is special.
    let target = format!("localhost:{}", address.port()).parse().unwrap();
    let within = format!("127.0.0.0/8:{}", address.port()).parse().unwrap();
    let list = Targets::new(vec![within], Vec::new());
    assert!(matches!(list.check(&target, by_system).await, Err(NotDialed::Special(_))));
}

/// Whoever may write EndpointSlices may write any of these into one.
#[test]
fn no_service_leads_to_what_is_refused_as_an_address_not_even_where_an_entry_names_that_in_full() {
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
        let led = |more: &[&str]| {
            let all = [[special].as_slice(), more].concat();
            list.check_led(&target, Ok(all.iter().map(|address| address.parse().unwrap()).collect()))
        };
        assert!(matches!(led(&[]), Err(NotDialed::Special(_))), "{special}");
        // It takes nothing from endpoints beside it.
        let beside = led(&["10.42.0.2:8443"]).unwrap();
        assert_eq!(beside, [Checked("10.42.0.2:8443".parse().unwrap())], "{special}");
    }
}

#[test]
fn a_service_leads_where_its_networks_are_and_only_if_it_is_listed_itself() {
    let listed: Target = "hook.shop.svc:443".parse().unwrap();
    let list = Targets::new(vec![TargetEntry::Exactly(listed.clone())], Vec::new());
    let within = list.clone().with_service_networks(vec!["10.42.0.0/16".parse().unwrap()]);
    let led = |list: &Targets, target: &Target, address: &str| {
        let checked = list.check_led(target, Ok(vec![address.parse().unwrap()]));
        checked
            .map(|checked| checked[0].address().to_string())
            .map_err(|why| matches!(why, NotDialed::Unlisted(_)))
    };
    for (address, elsewhere) in [("10.42.7.7:1", Ok("10.42.7.7:1".to_owned())), ("10.43.0.1:1", Err(true))] {
        assert_eq!(led(&within, &listed, address), elsewhere);
        assert_eq!(led(&list, &listed, address).as_deref(), Ok(address));
        // A network among the targets names no Service, and neither does another port.
        let networks = list.and(["10.0.0.0/8:1".parse().unwrap(), "10.0.0.0/8:443".parse().unwrap()]);
        for other in ["hook.shop.svc:1", "other.shop.svc:443"] {
            assert_eq!(led(&networks, &other.parse().unwrap(), address), Err(true), "{other}");
        }
    }
}

#[test]
fn of_a_services_endpoints_as_many_are_tried_as_may_be_and_not_one_more() {
    let target: Target = "hook.shop.svc:443".parse().unwrap();
    let list = Targets::new(vec![TargetEntry::Exactly(target.clone())], Vec::new());
    let led = (0..=ADDRESSES_MAX).map(|last| SocketAddr::from(([10, 42, 0, last as u8], 443))).collect();
    assert_eq!(list.check_led(&target, Ok(led)).unwrap().len(), ADDRESSES_MAX);
}

proptest! {
    /// Whatever stands in a slice.
    #[test]
    fn what_a_service_leads_to_is_never_special(found in prop::collection::vec(address(), 0..6), port in 1_u16..4) {
        let target: Target = "hook.shop.svc:443".parse().unwrap();
        let mut entries = list().entries;
        entries.push(TargetEntry::Exactly(target.clone()));
        let led = found.iter().map(|address| SocketAddr::new(*address, port)).collect();
        let checked = Targets::new(entries, Vec::new()).check_led(&target, Ok(led)).unwrap_or_default();
        let ordinary = found.iter().filter(|address| !is_special(unmapped(**address))).count();
        prop_assert_eq!(checked.len(), ordinary);
        prop_assert!(checked.iter().all(|one| !is_special(one.address().ip()) && one.address().port() == port));
    }

    /// Whatever the networks, what is special is dialed only where it is named in full.
    #[test]
    fn no_network_means_what_is_special(address in address(), port in 1_u16..4) {
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
    fn a_mapped_address_means_what_it_maps(address: [u8; 4], port in prop::sample::select(vec![443_u16, 5432, 6443])) {
        let address = Ipv4Addr::from(address);
        let (list, mapped) = (list(), IpAddr::V6(address.to_ipv6_mapped()));
        prop_assert_eq!(addresses_of(&list, mapped, port), addresses_of(&list, address.into(), port));
    }

    #[test]
    fn one_more_entry_never_refuses_more_and_one_more_own_address_never_dials_more(
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

    /// Names give nothing that their addresses would not, but where the name itself is listed.
    #[test]
    fn what_is_dialed_is_one_of_the_addresses_and_is_not_special(found in prop::collection::vec(address(), 0..6)) {
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
fn a_list_with_more_entries_has_its_own_too_and_what_is_closed_stays_closed() {
    let before = list();
    let more = before.and(["192.0.2.0/24:8080".parse().unwrap(), "0.0.0.0/0:5432".parse().unwrap()]);
    let dialed = |list: &Targets, text: &str| verdict_of(list, &dns(), text).starts_with("dial");

    for (target, was, is) in [
        ("10.9.8.7:5432", true, true),
        ("db.example:5432", true, true),
        ("192.0.2.7:8080", false, true),
        ("198.51.100.7:5432", false, true),
        // The agent's own.
        ("10.0.0.9:5432", false, false),
        ("127.0.0.1:5432", false, false),
        ("192.0.2.7:8081", false, false),
    ] {
        assert_eq!((dialed(&before, target), dialed(&more, target)), (was, is), "{target}");
    }
}

/// What a future has that waits for nothing.
fn at_once<T>(future: impl Future<Output = T>) -> T {
    future.now_or_never().expect("nothing is waited for")
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

fn verdict_of(list: &Targets, dns: &BTreeMap<&str, Vec<IpAddr>>, text: &str) -> String {
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
        Err(NotDialed::Nowhere(..)) => "nowhere".to_owned(),
    }
}

fn addresses_of(list: &Targets, address: IpAddr, port: u16) -> Vec<SocketAddr> {
    let target: Target = SocketAddr::new(address, port).to_string().parse().unwrap();
    let checked = at_once(list.check(&target, async |_: &str| panic!("an address is not resolved")));
    checked.unwrap_or_default().into_iter().map(Checked::address).collect()
}

/// Any address, and often one that is special or nearly so.
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
