//! Attempts of callers to smuggle headers past the gateway and the agent.

use super::*;
use proptest::prelude::*;

const IDENTITY_NAMES: [&str; 9] = [
    "impersonate-user",
    "Impersonate-Group",
    "IMPERSONATE-UID",
    "impersonate-extra-scopes",
    "impersonate_user",
    "Impersonate_Group",
    "impersonate-extra_scopes",
    "impersonate-",
    "Impersonate-Anything-Else",
];

#[test]
fn any_impersonation_header_is_refused_in_every_spelling() {
    for name in IDENTITY_NAMES {
        for value in ["", "system:masters", "a, b"] {
            let mut headers = map(&[("accept", "*/*"), (name, value)]);
            assert!(
                matches!(clean_request(&mut headers), Err(HeaderError::Impersonation(_))),
                "{name}: {value}"
            );
        }
    }
}

/// Other impersonation headers stay, to be refused.
#[test]
fn one_user_with_any_groups_is_taken_out_of_a_request() {
    let taken = |headers: &[(&'static str, &'static str)]| {
        let mut headers = map(headers);
        let identity = take_impersonation(&mut headers).map(|identity| (identity.user, identity.groups));
        (identity, clean_request(&mut headers).is_ok())
    };
    let of = |user: &str, groups: &[&str]| {
        Some((user.to_owned(), groups.iter().map(|&group| group.to_owned()).collect::<Vec<_>>()))
    };
    assert_eq!(taken(&[("accept", "*/*")]), (None, true));
    assert_eq!(taken(&[("Impersonate-User", "bob")]), (of("bob", &[]), true));
    let groups = [("impersonate-group", "a, b"), ("IMPERSONATE-USER", "bob"), ("Impersonate-Group", "c")];
    assert_eq!(taken(&groups), (of("bob", &["a, b", "c"]), true));

    for refused in [
        [("Impersonate-User", "bob"), ("Impersonate-User", "bob")].as_slice(),
        &[("Impersonate-User", "")],
        &[("Impersonate-User", "bob"), ("Impersonate-Group", "")],
        &[("Impersonate-Group", "ops")],
        &[("Impersonate-User", "bo\u{200b}b")],
        &[("Impersonate-User", "\u{202e}bob")],
        &[("Impersonate-User", "bob"), ("Impersonate-Group", "op\u{2060}s")],
    ] {
        assert_eq!(taken(refused), (None, false), "{refused:?}");
    }
    for name in
        IDENTITY_NAMES.into_iter().filter(|name| !["impersonate-user", "Impersonate-Group"].contains(name))
    {
        let (_, passes) = taken(&[("Impersonate-User", "bob"), (name, "x")]);
        assert!(!passes, "{name}");
    }
}

#[test]
fn credentials_and_front_proxy_headers_are_removed() {
    let mut headers = map(&[
        ("Authorization", "Bearer secret"),
        ("authorization", "Basic secret"),
        ("Proxy-Authorization", "Basic secret"),
        ("Cookie", "session=secret"),
        ("X-Remote-User", "admin"),
        ("x-remote-group", "system:masters"),
        ("X-Remote-Extra-Scopes", "all"),
        ("X-Remote-Uid", "1"),
        ("X-Forwarded-For", "127.0.0.1"),
        ("Forwarded", "for=127.0.0.1"),
        ("Via", "1.1 elsewhere"),
        ("X-Tombolo-Anything", "x"),
        ("accept", "application/json"),
    ]);

    clean_request(&mut headers).unwrap();

    assert_eq!(headers, map(&[("accept", "application/json")]));
}

#[test]
fn connection_cannot_remove_protected_or_meaningful_headers() {
    for named in [
        "authorization",
        "Authorization",
        "impersonate-user",
        "Impersonate-User",
        "IMPERSONATE-GROUP",
        "x-remote-user",
        "cookie",
        "host",
        "content-length",
        "audit-id",
        "proxy-authorization",
    ] {
        for form in
            [named.to_owned(), format!("close, {named}"), format!("\"{named}\""), format!(" {named}\t,")]
        {
            for carrier in ["connection", "proxy-connection"] {
                let mut headers = HeaderMap::new();
                headers.append(carrier, HeaderValue::from_str(&form).unwrap());
                let refused = clean_request(&mut headers);
                assert_eq!(
                    refused,
                    Err(HeaderError::ConnectionNames(named.to_ascii_lowercase())),
                    "{carrier}: {form}"
                );
            }
        }
    }
}

#[test]
fn headers_that_connection_names_are_removed() {
    let mut headers = map(&[("connection", "close, X-Only-Here"), ("x-only-here", "1"), ("x-stays", "2")]);
    clean_request(&mut headers).unwrap();
    assert_eq!(headers, map(&[("x-stays", "2")]));
}

#[test]
fn aliases_with_underscores_are_refused() {
    for name in ["x_remote_user", "X-Remote_Group", "x_forwarded_for", "transfer_encoding", "x_real_ip"] {
        let refused = clean_request(&mut map(&[(name, "x")]));
        assert!(matches!(refused, Err(HeaderError::Alias(_))), "{name}");
    }
}

/// The other subprotocols stay in the header.
#[test]
fn a_bearer_token_in_a_websocket_subprotocol_is_removed() {
    let mut headers = map(&[
        ("sec-websocket-protocol", "v5.channel.k8s.io, base64url.bearer.authorization.k8s.io.c2VjcmV0"),
        ("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.c2VjcmV0"),
    ]);
    clean_request(&mut headers).unwrap();
    assert_eq!(headers, map(&[("sec-websocket-protocol", "v5.channel.k8s.io")]));
}

#[test]
fn bearer_tokens_are_found_in_whichever_line_and_place_they_stand() {
    let headers = map(&[
        ("sec-websocket-protocol", " v5.channel.k8s.io ,base64url.bearer.authorization.k8s.io.YQ"),
        (
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.,Base64url.bearer.authorization.k8s.io.Yg",
        ),
    ]);
    assert_eq!(bearer_subprotocols(&headers).collect::<Vec<_>>(), ["YQ", ""]);
    assert!(offers_subprotocol(&headers));
    let alone = map(&[("sec-websocket-protocol", "base64url.bearer.authorization.k8s.io.YQ, ,")]);
    assert!(!offers_subprotocol(&alone));
}

#[test]
fn the_limits_hold_at_the_limit_and_one_beyond() {
    let many = |count: usize| {
        let mut headers = HeaderMap::new();
        for index in 0..count {
            headers.append(HeaderName::try_from(format!("x-{index}")).unwrap(), HeaderValue::from_static(""));
        }
        headers
    };
    assert_eq!(check_limits(&many(HEADERS_MAX)), Ok(()));
    assert_eq!(check_limits(&many(HEADERS_MAX + 1)), Err(HeaderError::TooMany));

    let large = |bytes: usize| {
        let mut headers = HeaderMap::new();
        headers.insert("x", HeaderValue::try_from("v".repeat(bytes - 1)).unwrap());
        headers
    };
    assert_eq!(check_limits(&large(HEADER_BYTES_MAX)), Ok(()));
    assert_eq!(check_limits(&large(HEADER_BYTES_MAX + 1)), Err(HeaderError::TooLarge));
}

#[test]
fn the_audit_id_that_we_add_pushes_nothing_over_the_limits() {
    let mut headers = map(&[("audit-id", "0198f1de-58c5-7000-8000-000000000000")]);
    for index in 0..HEADERS_MAX {
        headers.append(HeaderName::try_from(format!("x-{index}")).unwrap(), HeaderValue::from_static(""));
    }
    assert_eq!(check_limits(&headers), Ok(()));
    headers.append("x-one-more", HeaderValue::from_static(""));
    assert_eq!(check_limits(&headers), Err(HeaderError::TooMany));
}

#[test]
fn an_audit_id_is_what_kubernetes_takes_as_it_is() {
    for id in ["x", "0198f1de-58c5-7000-8000-000000000000", "~!@#", &"x".repeat(AUDIT_ID_BYTES_MAX)] {
        assert!(is_audit_id(id.as_bytes()), "{id}");
    }
    for id in ["", "a b", "a\tb", "\u{e4}", "a\r\nb", &"x".repeat(AUDIT_ID_BYTES_MAX + 1)] {
        assert!(!is_audit_id(id.as_bytes()), "{id:?}");
    }
}

#[test]
fn two_hosts_are_refused_and_one_stays() {
    let mut one = map(&[("host", "a")]);
    assert_eq!(clean_request(&mut one), Ok(()));
    assert_eq!(one, map(&[("host", "a")]));
    assert_eq!(clean_request(&mut map(&[("host", "a"), ("host", "b")])), Err(HeaderError::Hosts));
}

#[test]
fn the_tokens_of_connection_itself_name_no_header() {
    let mut headers =
        map(&[("connection", "close, keep-alive,, x-one-hop"), ("close", "stays"), ("x-one-hop", "goes")]);
    assert_eq!(clean_request(&mut headers), Ok(()));
    assert_eq!(headers, map(&[("close", "stays")]));
}

#[test]
fn an_answer_sets_no_cookie_and_no_other_service() {
    let mut headers = map(&[
        ("set-cookie", "a=b"),
        ("alt-svc", "h3=\":443\""),
        ("connection", "x-hop"),
        ("x-hop", "1"),
        ("content-type", "application/json"),
        ("warning", "299 - \"deprecated\""),
    ]);
    clean_response(&mut headers);
    assert_eq!(headers, map(&[("content-type", "application/json"), ("warning", "299 - \"deprecated\"")]));
}

proptest! {
    #[test]
    fn accepted_requests_have_no_protected_and_no_hop_by_hop_headers(
        headers in prop::collection::vec(("[A-Za-z_-]{1,20}", "[ -~]{0,20}"), 0..12),
        special in prop::sample::select(vec!["authorization", "x-remote-user", "cookie", "te", "via", "upgrade"]),
    ) {
        let mut map = HeaderMap::new();
        for (name, value) in &headers {
            map.append(HeaderName::try_from(name).unwrap(), HeaderValue::try_from(value).unwrap());
        }
        map.append(special, HeaderValue::from_static("x"));
        if clean_request(&mut map).is_ok() {
            for name in map.keys() {
                prop_assert!(!is_protected(name.as_str()), "{name}");
                prop_assert!(!HOP_BY_HOP.contains(&name.as_str()), "{name}");
            }
        }
    }
}

fn map(headers: &[(&'static str, &'static str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in headers {
        map.append(HeaderName::try_from(*name).unwrap(), HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    map
}
