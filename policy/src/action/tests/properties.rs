//! Properties that hold for every path.

use proptest::prelude::*;

use super::*;

proptest! {
    /// No input panics. An accepted path is forwarded unchanged, to the cluster that the request named. Its query is
    /// forwarded in a form that stays the same when it is read again.
    #[test]
    fn a_path_that_is_taken_is_a_suffix_of_what_was_sent(target in target(), host in host()) {
        if let Ok(ParsedRequest::Cluster(action)) = asked(&host, &target) {
            let path = action.path().path();
            let target = target.split('?').next().unwrap();
            let sent = target.strip_suffix(path).or_else(|| target.strip_suffix(&path[1..]));
            prop_assert!(sent.is_some(), "{target} became {path}");
            prop_assert_eq!(canonical_target(action.path().as_str()), Ok(action.path().clone()));
            let cluster = action.cluster().as_str();
            if host.ends_with(".clusters.example") {
                prop_assert_eq!((sent, cluster), (Some(""), "edge-b"));
            } else {
                prop_assert_eq!(sent.unwrap(), format!("/clusters/{cluster}"));
            }
        }
    }

    /// A reader that decodes once and resolves dots, as many do, still sees the same cluster's path.
    #[test]
    fn no_taken_path_changes_by_being_resolved(target in target()) {
        if let Ok(ParsedRequest::Cluster(action)) = asked(PATH_HOST, &target) {
            let path = action.path().path();
            prop_assume!(!path.contains("/proxy/"));
            let decoded = path::percent_decoded(path).unwrap();
            let mut kept = path.split('/').count();
            for segment in decoded.split('/') {
                kept -= usize::from(segment == "." || segment == "..");
            }
            prop_assert_eq!(kept, decoded.split('/').count());
        }
    }

    #[test]
    fn any_bytes_are_survived(target in proptest::collection::vec(any::<u8>(), 0..64), host in proptest::collection::vec(any::<u8>(), 0..64)) {
        let mut slashed = b"/clusters/edge-a/".to_vec();
        slashed.extend(&target);
        for target in [&target, &slashed] {
            let head = Head { method: &Method::GET, authority: None, host: Some(&host), server_name: None, target, upgrade: None };
            let _ = Action::parse(&names(), &head);
            let head = Head { host: Some(PATH_HOST.as_bytes()), ..head };
            let _ = Action::parse(&names(), &head);
        }
    }
}

fn target() -> impl Strategy<Value = String> {
    let segment = prop_oneof![
        Just("api"),
        Just("v1"),
        Just("namespaces"),
        Just("pods"),
        Just("nodes"),
        Just("proxy"),
        Just("exec"),
        Just("clusters"),
        Just("x"),
        Just("."),
        Just(".."),
        Just("%2e"),
        Just("%2F"),
        Just("%3A"),
        Just("%25"),
        Just(""),
        Just("%5C"),
        Just("%00"),
        Just("edge-a"),
        Just("edge-b"),
        Just("%zz"),
        Just("a;b"),
        Just("\u{fc}"),
    ];
    let head = prop_oneof![Just("/clusters/edge-a"), Just("/clusters"), Just("")];
    let query = prop_oneof![Just(""), Just("?"), Just("?watch=1"), Just("?/../clusters/edge-b")];
    (head, proptest::collection::vec(segment, 0..9), query).prop_map(|(head, segments, query)| {
        let path: String = segments.iter().map(|segment| format!("/{segment}")).collect();
        format!("{head}{path}{query}")
    })
}

fn host() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(PATH_HOST),
        Just("edge-b.clusters.example"),
        Just("EDGE-b.clusters.example"),
        Just("other")
    ]
    .prop_map(str::to_owned)
}
