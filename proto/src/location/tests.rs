//! Claims about the targets of `Location` headers.

use super::*;

/// The examples of RFC 3986, section 5.4, as far as they name no host and have no parameters of a scheme.
#[test]
fn a_relative_location_is_resolved_as_rfc_3986_says() {
    let base = "/b/c/d;p";
    for (written, resolved) in [
        ("g", "/b/c/g"),
        ("./g", "/b/c/g"),
        ("g/", "/b/c/g/"),
        ("/g", "/g"),
        ("g?y", "/b/c/g?y"),
        ("g#s", "/b/c/g#s"),
        ("g?y#s", "/b/c/g?y#s"),
        (";x", "/b/c/;x"),
        (".", "/b/c/"),
        ("./", "/b/c/"),
        ("..", "/b/"),
        ("../", "/b/"),
        ("../g", "/b/g"),
        ("../..", "/"),
        ("../../", "/"),
        ("../../g", "/g"),
        ("../../../g", "/g"),
        ("../../../../g", "/g"),
        ("/./g", "/g"),
        ("/../g", "/g"),
        ("g.", "/b/c/g."),
        (".g", "/b/c/.g"),
        ("g..", "/b/c/g.."),
        ("./../g", "/b/g"),
        ("./g/.", "/b/c/g/"),
        ("g/./h", "/b/c/g/h"),
        ("g/../h", "/b/c/h"),
        ("g?y/../x", "/b/c/g?y/../x"),
        ("g#s/../x", "/b/c/g#s/../x"),
        // Beyond the examples: encoded dots, and empty segments.
        ("%2e%2e/g", "/b/g"),
        ("/x/.%2E/y", "/y"),
        ("/x//y/", "/x//y/"),
        ("/x/..//y", "/y"),
    ] {
        let value = HeaderValue::from_str(written).unwrap();
        let Location::Path(path) = Location::parse(&value) else { panic!("{written}") };
        assert_eq!(path.resolve(base), resolved, "{written}");
    }
    for written in ["?y", "#s", ""] {
        let value = HeaderValue::from_str(written).unwrap();
        assert!(matches!(Location::parse(&value), Location::Path(path) if path.keeps_path()), "{written}");
    }
}

#[test]
fn a_location_that_clients_read_differently_is_unclear() {
    for written in [
        "ftp://gateway.example/",
        "file:///etc/passwd",
        "javascript:alert(1)",
        "///elsewhere.test",
        "https:///elsewhere.test",
        "https:/elsewhere.test",
        "https:elsewhere.test",
        "/\\elsewhere.test",
        "\\\\elsewhere.test",
        "/ /elsewhere.test",
        "/\t/elsewhere.test",
    ] {
        let value = HeaderValue::from_bytes(written.as_bytes()).unwrap();
        assert_eq!(Location::parse(&value), Location::Unclear, "{written:?}");
    }
    assert_eq!(Location::parse(&HeaderValue::from_bytes("/é".as_bytes()).unwrap()), Location::Unclear);
}

#[test]
fn a_location_with_a_host_has_it_apart_from_its_path() {
    for (written, host, path) in [
        ("http://api/x", "api", "/x"),
        ("https://api:6443/x?y#z", "api:6443", "/x?y#z"),
        ("HTTPS://api", "api", "/"),
        ("//api?q", "api", "/?q"),
        ("https://a@b/../c", "a@b", "/c"),
        ("https://[fd00::1]:6443//x", "[fd00::1]:6443", "/x"),
    ] {
        let value = HeaderValue::from_str(written).unwrap();
        let location = Location::parse(&value);
        assert_eq!(location.host(), Some(host), "{written}");
        let Location::Host { is_https, path: read, .. } = location else { panic!("{written}") };
        assert_eq!(is_https, !written.starts_with("http:"));
        assert_eq!(read.from_root(), path, "{written}");
    }
}

#[test]
fn hosts_are_the_same_with_and_without_the_port_of_https() {
    for (one, other) in [
        ("api.example", "API.example:443"),
        ("[fd00::1]", "[FD00::1]:443"),
        ("10.0.0.1:6443", "10.0.0.1:6443"),
        ("api:", "api"),
    ] {
        assert!(is_same_host(one, other) && is_same_host(other, one), "{one} {other}");
    }
    for (one, other) in [
        ("api.example", "api.example:6443"),
        ("api.example", "a@api.example"),
        ("[fd00::1]", "[fd00::2]"),
        ("api", "api.example"),
    ] {
        assert!(!is_same_host(one, other) && !is_same_host(other, one), "{one} {other}");
    }
}
