//! Paths lead to the values that `kubectl wait --for=jsonpath` finds.

use serde_json::{Value, json};

use super::*;

fn pod() -> Value {
    json!({
        "metadata": { "name": "web", "labels": { "app.kubernetes.io/name": "shop", "tier": "front" } },
        "spec": { "containers": [ { "image": "a:1" }, { "image": "b:2" } ], "nodeName": null },
        "status": { "conditions": [
            { "type": "Ready", "status": "True" },
            { "type": "Initialized", "status": "False" },
            { "weight": 3 }
        ] }
    })
}

#[test]
fn a_path_leads_to_the_values_that_kubectl_finds() {
    for (path, found) in [
        (".metadata.name", json!(["web"])),
        ("{.metadata.name}", json!(["web"])),
        ("{metadata.name}", json!(["web"])),
        ("metadata.name", json!(["web"])),
        ("$.metadata.name", json!(["web"])),
        (r".metadata.labels['app\.kubernetes\.io/name']", json!(["shop"])),
        (".metadata.labels['app.kubernetes.io/name']", json!(["shop"])),
        (r".metadata.labels.app\.kubernetes\.io/name", json!(["shop"])),
        (".spec.containers[*].image", json!(["a:1", "b:2"])),
        (".spec.containers[0].image", json!(["a:1"])),
        (".spec.containers[-1].image", json!(["b:2"])),
        (".spec.containers[7].image", json!([])),
        (".spec.containers[-7].image", json!([])),
        (".metadata.labels.*", json!(["shop", "front"])),
        (r#".status.conditions[?(@.type=="Ready")].status"#, json!(["True"])),
        (".status.conditions[?(@.type != 'Ready')].status", json!(["False"])),
        (".status.conditions[?(@.weight==3)].weight", json!([3])),
        (".spec.nodeName", json!([])),
        (".metadata.name.further", json!([])),
    ] {
        let parsed: Path = path.parse().unwrap();
        assert_eq!(json!(parsed.find(&pod())), found, "{path}");
    }
}

#[test]
fn a_text_that_is_no_path_is_refused_with_its_place() {
    for (text, fault) in [
        ("", NotAPath::NoName(0)),
        ("{}", NotAPath::NoName(1)),
        (".", NotAPath::NoName(1)),
        (".spec..image", NotAPath::Recursive(5)),
        ("{..image}", NotAPath::Recursive(1)),
        (".spec.containers[", NotAPath::Brackets(16)),
        (".spec.containers[]", NotAPath::Brackets(16)),
        (".a[0:2]", NotAPath::Brackets(2)),
        (".a[?(@.b>1)]", NotAPath::Brackets(2)),
        (".a['b", NotAPath::Brackets(2)),
        (".a b", NotAPath::NoStep(2)),
        ("{.a}{.b}", NotAPath::NoStep(3)),
        ("{.a", NotAPath::Braces),
        (".a\\", NotAPath::NoName(1)),
    ] {
        assert_eq!(text.parse::<Path>(), Err(fault), "{text}");
    }
    assert_eq!(format!(".{}", "a".repeat(PATH_BYTES_MAX)).parse::<Path>(), Err(NotAPath::TooLong));
    assert_eq!(".a".repeat(STEPS_MAX + 1).parse::<Path>(), Err(NotAPath::TooLong));
}
