//! Tests of targets and entries, by tables.

use super::entry::{NotATargetEntry, TargetEntry, may_advertise};
use super::*;

#[test]
fn a_target_is_a_host_and_a_port_and_has_one_spelling() {
    for (text, spelled) in [
        ("10.0.0.1:6443", Some("10.0.0.1:6443")),
        ("[::ffff:10.0.0.1]:6443", Some("10.0.0.1:6443")),
        ("[2001:DB8::1]:1", Some("[2001:db8::1]:1")),
        ("DB.Example.:5432", Some("db.example:5432")),
        ("db_1:65535", Some("db_1:65535")),
        ("5gcore:80", Some("5gcore:80")),
        ("10.0.0.1", None),
        (":80", None),
        ("a:", None),
        ("a:0", None),
        ("a:65536", None),
        ("a:+80", None),
        ("a:80:80", None),
        ("::1:80", None),
        ("[10.0.0.1]:80", None),
        ("[a]:80", None),
        ("[::1:80", None),
        ("a..b:80", None),
        ("a b:80", None),
        ("a/b:80", None),
        ("*:80", None),
        // Some resolvers read these as addresses.
        ("127.1:80", None),
        ("2130706433:80", None),
        ("0x7f.1:80", None),
        ("0x7f000001:80", None),
        ("a.0X1:80", None),
    ] {
        let parsed: Result<Target, NotATarget> = text.parse();
        assert_eq!(parsed.as_ref().ok().map(ToString::to_string).as_deref(), spelled, "{text}");
    }
    assert_eq!("a:443".parse::<Target>().unwrap().port(), 443);
}

#[test]
fn a_name_has_at_most_the_bytes_that_dns_allows() {
    let longest = "a".repeat(HOST_BYTES_MAX);
    assert!(format!("{longest}:80").parse::<Target>().is_ok());
    assert!(format!("{longest}a:80").parse::<Target>().is_err());
}

#[test]
fn a_network_is_advertised_where_all_of_it_may_be() {
    let may = |allowed: &str, advertised: &str| may_advertise(allowed, &advertised.parse().unwrap());

    for advertised in ["10.96.0.0/12:443", "10.0.0.0/8:1", "10.1.2.3:80"] {
        assert!(may("10.0.0.0/8", advertised), "{advertised}");
    }
    for advertised in
        ["0.0.0.0/0:443", "10.0.0.0/7:1", "11.0.0.0/8:1", "[fd00::/8]:1", "api.site.example:443"]
    {
        assert!(!may("10.0.0.0/8", advertised), "{advertised}");
    }
    assert!(!may("10.0.0.1:443", "10.0.0.1/32:443"));
    assert!(may("api.site.example:443", "API.site.example.:443"));
    for advertised in ["api.site.example:444", "other.site.example:443", "10.0.0.1:443"] {
        assert!(!may("api.site.example:443", advertised), "{advertised}");
    }
}

#[test]
fn an_entry_is_a_target_or_a_network_with_a_port_and_has_one_spelling() {
    for (text, spelled) in [
        ("DB.Example.:5432", Some("db.example:5432")),
        ("10.0.0.1:443", Some("10.0.0.1:443")),
        ("[2001:DB8::1]:443", Some("[2001:db8::1]:443")),
        ("10.0.0.0/8:5432", Some("10.0.0.0/8:5432")),
        ("[2001:DB8::/32]:65535", Some("[2001:db8::/32]:65535")),
        ("[10.0.0.0/8]:443", None),
        ("2001:db8::/32:443", None),
        ("10.0.0.0/8:+443", None),
        ("[2001:db8::/32]:+443", None),
        ("10.0.0.0/8:0", None),
        ("10.0.0.0/8:65536", None),
        ("10.0.0.0/8:", None),
        ("10.0.0.0/8", None),
        ("10.0.0.1/8:443", None),
        ("db.example/8:443", None),
        ("db.example", None),
    ] {
        let parsed: Result<TargetEntry, NotATargetEntry> = text.parse();
        assert_eq!(parsed.as_ref().ok().map(ToString::to_string).as_deref(), spelled, "{text}");
    }
}

#[test]
fn an_entry_contains_its_target_or_its_network_on_its_port() {
    for (entry, target, has) in [
        ("db.example:5432", "DB.example:5432", true),
        ("db.example:5432", "db.example:5433", false),
        ("db.example:5432", "x.db.example:5432", false),
        ("10.0.0.1:443", "[::ffff:10.0.0.1]:443", true),
        ("10.0.0.1:443", "10.0.0.2:443", false),
        ("10.0.0.0/8:443", "10.255.0.1:443", true),
        ("10.0.0.0/8:443", "10.255.0.1:444", false),
        ("10.0.0.0/8:443", "11.0.0.1:443", false),
        ("10.0.0.0/8:443", "11.0.0.1:444", false),
        ("0.0.0.0/0:443", "db.example:443", false),
    ] {
        let entry: TargetEntry = entry.parse().unwrap();
        assert_eq!(entry.has(&target.parse().unwrap()), has, "{entry} {target}");
    }
}
