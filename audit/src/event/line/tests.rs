//! Tests of the shape and the size of a line.

use super::*;
use crate::event::{EndReason, LINE_BYTES_MAX};
use crate::json;
use serde_json::{Value, json};
use std::time::{Duration, UNIX_EPOCH};

#[test]
fn an_event_has_kubernetes_shape_and_our_facts_as_annotations() {
    let at = UNIX_EPOCH + Duration::from_micros(1_795_300_000_000_042);
    let user =
        User { username: "alice".into(), groups: vec!["ops".into()], method: "client-certificate".into() };
    let mut event = Event::new("get", "/api/v1/pods?watch=", user).with(Annotation::Cluster, "edge-a");
    event.audit_id = "0192".into();
    event.impersonated = Some(Identity { username: "tombolo:alice".into(), groups: vec![] });
    event.source = Some("[::ffff:192.0.2.1]:4711".parse().unwrap());
    event.user_agent = Some("kubectl/v1.36".into());
    event.object = Some(ObjectRef { resource: "pods".into(), ..ObjectRef::default() });
    event.received = at;
    let ended = Completion::new(Some(Status { code: 200, reason: "" }), EndReason::Clean)
        .with(Annotation::BytesDown, "7");

    let line = serialized(&event, Some(&ended));

    let shape = json!({
        "kind": "Event", "apiVersion": "audit.k8s.io/v1", "level": "Metadata",
        "auditID": "0192", "stage": "ResponseComplete", "requestURI": "/api/v1/pods?watch=", "verb": "get",
        "user": {"username": "alice", "groups": ["ops"], "extra": {"tombolo.dev/method": ["client-certificate"]}},
        "impersonatedUser": {"username": "tombolo:alice"},
        "sourceIPs": ["192.0.2.1"], "userAgent": "kubectl/v1.36",
        "objectRef": {"resource": "pods"}, "responseStatus": {"code": 200},
        "requestReceivedTimestamp": "2026-11-21T22:26:40.000042Z", "stageTimestamp": "2026-11-21T22:26:40.000042Z",
        "annotations": {
            "tombolo.dev/cluster": "edge-a", "tombolo.dev/end-reason": "clean", "tombolo.dev/bytes-down": "7",
            "tombolo.dev/sequence": "5",
        },
    });
    assert_eq!(serde_json::from_slice::<Value>(&line).unwrap(), shape);
    assert!(line.ends_with(br#","tombolo.dev/sequence":"5"}}"#));
}

#[test]
fn the_largest_and_worst_event_is_one_line_within_its_limit() {
    let worst = |bytes: usize| "\u{1b}".repeat(bytes);
    let groups: Vec<_> = std::iter::repeat_n(worst(NAME_BYTES_MAX + 1), GROUPS_MAX + 3).collect();
    let user = User { username: worst(1_000), groups: groups.clone(), method: worst(1_000) };
    let mut event = Event::new(worst(1_000), worst(URI_BYTES_MAX + 1), user);
    event.audit_id = worst(AUDIT_ID_BYTES_MAX + 1);
    event.impersonated = Some(Identity { username: worst(1_000), groups });
    event.user_agent = Some(worst(10_000));
    let name = || worst(1_000);
    event.object = Some(ObjectRef {
        api_group: name(),
        api_version: name(),
        resource: name(),
        subresource: name(),
        namespace: name(),
        name: name(),
    });
    for annotation in [Annotation::Cluster, Annotation::Detail, Annotation::Rule] {
        event.annotate(annotation, worst(ANNOTATION_BYTES_MAX + 1));
    }

    let line = serialized(&event, None);

    assert!(line.len() <= LINE_BYTES_MAX, "{}", line.len());
    assert!(line.iter().all(|byte| matches!(byte, b' '..=b'~')));
    let value: Value = serde_json::from_slice(&line).unwrap();
    assert_eq!(value["user"]["groups"].as_array().unwrap().len(), GROUPS_MAX);
    assert_eq!(value["annotations"]["tombolo.dev/groups-left-out"], "3");
}

fn serialized(event: &Event, completion: Option<&Completion>) -> Vec<u8> {
    let stage = if completion.is_some() { Stage::ResponseComplete } else { Stage::RequestReceived };
    json::ascii(&Line { event, stage, completion, sequence: 5, at: event.received }).unwrap()
}
