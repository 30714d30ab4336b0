//! Targets and headers that are refused, and the headers of an identity.

use super::*;
use proto::AllowList;
use proto::wire::Assert;

#[test]
fn the_identity_replaces_every_other_one() {
    let mut headers = HeaderMap::new();
    headers.append(IMPERSONATE_USER, HeaderValue::from_static("root"));
    headers.append(IMPERSONATE_GROUP, HeaderValue::from_static("system:masters"));
    headers.append(AUDIT_ID, HeaderValue::from_static("forged"));

    set_audit_id(&mut headers, "id-1").unwrap();
    assert_identity(&mut headers, &ann()).unwrap();

    assert_eq!(values(&headers, "impersonate-user"), ["ann"]);
    assert_eq!(values(&headers, "impersonate-group"), ["dev", "ops"]);
    assert_eq!(values(&headers, "audit-id"), ["id-1"]);
}

#[test]
fn a_header_that_adds_to_the_identity_stops_the_request() {
    for name in ["impersonate-uid", "impersonate-extra-scopes", "impersonate_group", "impersonate-users"] {
        let mut headers = HeaderMap::new();
        headers.append(name, HeaderValue::from_static("x"));

        let refused = assert_identity(&mut headers, &ann());

        assert!(matches!(refused, Err(ForwardError::Identity)), "{name}");
    }
}

#[test]
fn an_audit_id_that_kubernetes_would_change_is_refused() {
    for audit_id in ["", "a b", "ä", "a\r\nb", &"x".repeat(65)] {
        let refused = set_audit_id(&mut HeaderMap::new(), audit_id);
        assert!(matches!(refused, Err(ForwardError::AuditId)), "{audit_id:?}");
    }
    assert!(set_audit_id(&mut HeaderMap::new(), &"x".repeat(64)).is_ok());
}

#[test]
fn exactly_one_bearer_token_is_a_callers_own_credential() {
    let bearers = |values: &[&'static str]| {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(AUTHORIZATION, HeaderValue::from_static(value));
        }
        one_bearer(&headers)
    };
    for good in ["Bearer a", "bearer a.b-c_d~+/=="] {
        let found = bearers(&[good]).unwrap();
        assert!(found == good && found.is_sensitive(), "{found:?}");
    }
    for bad in
        ["", "Bearer", "Bearer ", "Bearer  a", "Bearer a b", "Bearer a, Bearer b", "Basic a", "a", "Bearera"]
    {
        assert_eq!(bearers(&[bad]), None, "{bad:?}");
    }
    assert_eq!(bearers(&[]), None);
    assert_eq!(bearers(&["Bearer a", "Bearer a"]), None);
    assert_eq!(bearers(&["Bearer a", ""]), None);
}

fn ann() -> Assertable {
    let everybody = || Some(vec!["*".to_owned()]);
    let identity = Assert { user: "ann".to_owned(), groups: vec!["dev".to_owned(), "ops".to_owned()] };
    AllowList::new(everybody(), everybody(), None).unwrap().check(&identity).unwrap()
}

fn values<'a>(headers: &'a HeaderMap, name: &str) -> Vec<&'a str> {
    headers.get_all(name).iter().map(|value| value.to_str().unwrap()).collect()
}
