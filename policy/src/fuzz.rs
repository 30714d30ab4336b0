//! Fuzz targets for paths, policies and targets.

use http::Method;
use proto::allow_list::NameKind;

use crate::action::{Action, GatewayNames, Head, Object, ParsedRequest, Verb, canonical_target};
use crate::{ClusterFacts, Document, Principal, Request, Rules, Target};

/// Random inputs that `make test` tries beside the corpus. `make fuzz` sets another number by the
/// environment.
const ITERATIONS: usize = 2_000;

/// The first line is the host, the rest the target. An accepted path is forwarded unchanged to the named cluster, and
/// decoding it once more gives no other path. Its query is forwarded in the one form that stays as it is.
#[test]
fn actions() {
    let names = GatewayNames::new(Some("clusters.example"), &["gateway.example".to_owned()]);
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Some(end) = bytes.iter().position(|byte| *byte == b'\n') else { return };
        let (host, target) = (&bytes[..end], &bytes[end + 1..]);
        for method in [Method::GET, Method::POST] {
            let head = Head {
                method: &method,
                authority: None,
                host: Some(host),
                server_name: None,
                target,
                upgrade: None,
            };
            let Ok(ParsedRequest::Cluster(action)) = Action::parse(&names, &head) else { continue };
            let path = action.path().path().as_bytes();
            let target = target.split(|byte| *byte == b'?').next().unwrap();
            let sent = target.strip_suffix(path).or_else(|| target.strip_suffix(&path[1..])).unwrap();
            let cluster = action.cluster().as_str();
            let by_path = format!("/clusters/{cluster}");
            assert!(sent == by_path.as_bytes() || sent.is_empty() && begins_with(host, cluster));
            assert_eq!(canonical_target(action.path().as_str()), Ok(action.path().clone()));
            is_one_reading(&action);
        }
    });
}

/// A valid policy decides by its rules alone, and names the rule; without rules nothing is allowed.
#[test]
fn policies() {
    bolero::check!().with_iterations(ITERATIONS / 2).for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        let Ok(document) = serde_saphyr::from_str::<Document>(text) else { return };
        let Ok(rules) = Rules::from_document(&document) else { return };
        let (cluster, facts) = ("edge-a".parse().unwrap(), ClusterFacts::default());
        let target: Target = "10.0.0.1:22".parse().unwrap();
        let version = Object::Path("/version".to_owned());
        let groups = ["ops".to_owned()];
        for method in ["token", "client-certificate"] {
            let who = Principal { method, user: "ann", groups: &groups };
            for request in [
                Request::KubeApi(Verb::Get, &version),
                Request::Dial(&target),
                Request::Impersonate(NameKind::User, "bob"),
            ] {
                let verdict = rules.decide(who, &cluster, &facts, request);
                assert!(verdict.rule().is_none_or(|rule| text.contains(&**rule)));
                assert!(verdict.rule().is_some() || !verdict.is_allowed());
                let is_way = !matches!(request, Request::Impersonate(..));
                assert!(!is_way || !verdict.is_allowed() || rules.reaches(who, &cluster, &facts));
                assert!(!Rules::default().decide(who, &cluster, &facts, request).is_allowed());
            }
        }
    });
}

/// A target has one spelling, and is read from it again.
#[test]
fn targets() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let Ok(text) = std::str::from_utf8(bytes) else { return };
        if let Ok(target) = text.parse::<Target>() {
            assert_eq!(target.to_string().parse(), Ok(target.clone()));
            assert!(target.port() > 0);
        }
    });
}

/// Asserts that no segment before the application's part changes the path when it is decoded or resolved.
fn is_one_reading(action: &Action) {
    let path = action.path().path();
    let connects = action.verb() == Verb::Connect;
    let read = path.find("/proxy").filter(|_| connects).map_or(path, |end| &path[..end]);
    for segment in read.split('/') {
        let lower = segment.to_ascii_lowercase();
        assert!(!["%2f", "%5c", "%25", "%00", "\\"].iter().any(|hidden| lower.contains(hidden)), "{path}");
        let dots = lower.replace("%2e", ".");
        assert!(dots != "." && dots != "..", "{path}");
    }
}

/// Returns true if a host is this cluster's by its name.
fn begins_with(host: &[u8], cluster: &str) -> bool {
    host.to_ascii_lowercase().starts_with(format!("{cluster}.clusters.example").as_bytes())
}
