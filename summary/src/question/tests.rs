//! Questions are read, and a wrong one is refused with the place of its fault.

use serde_json::json;

use super::*;

#[test]
fn a_question_is_read_with_all_its_parts() {
    let text = r#"{"groupBy":[".status.phase"],"where":[{"path":".spec.nodeName","operator":"Exists"}],
        "values":[{"sum":".spec.replicas"},{"avg":".a"}],"top":{"count":3,"by":".b"},"select":[".spec.nodeName"]}"#;
    let question = Question::parse(text).unwrap();
    assert_eq!(question.group_by()[0].as_str(), ".status.phase");
    assert_eq!(question.values().iter().map(Value::word).collect::<Vec<_>>(), ["sum", "avg"]);
    assert_eq!(question.top_by().unwrap().as_str(), ".b");
    assert!(Question::parse("{}").is_ok());
}

#[test]
fn a_wrong_question_is_refused_with_the_place_of_its_fault() {
    let many = |count| vec![".a"; count];
    for (question, message) in [
        (
            json!({"groupBy": [".a", ".b..c"]}),
            "groupBy[1]: byte 2: '..' searches at every depth and is not served: name the fields in full",
        ),
        (json!({"groupBy": many(5)}), "groupBy: at most 4 are allowed"),
        (json!({"select": many(9)}), "select: at most 8 are allowed"),
        (json!({"values": vec![json!({"sum": ".a"}); 9]}), "values: at most 8 are allowed"),
        (json!({"values": [{}]}), "values[0]: name one of count, sum, min, max and avg, with a path"),
        (
            json!({"values": [{"sum": ".a", "min": ".b"}]}),
            "values[0]: name one of count, sum, min, max and avg, with a path",
        ),
        (
            json!({"where": [{"path": ".a", "operator": "In"}]}),
            "where[0]: In and NotIn need values, Exists and DoesNotExist take none",
        ),
        (
            json!({"where": [{"path": ".a", "operator": "Exists", "values": ["x"]}]}),
            "where[0]: In and NotIn need values, Exists and DoesNotExist take none",
        ),
        (
            json!({"where": [{"path": ".a[", "operator": "Exists"}]}),
            "where[0].path: byte 2: brackets take a name in quotes, a number, '*', or a filter such as ?(@.type==\"Ready\")",
        ),
        (
            json!({"where": [{"path": ".a", "operator": "In", "values": vec!["x"; 65]}]}),
            "where[0].values: at most 64 are allowed",
        ),
        (json!({"top": {"count": 51, "by": ".a"}}), "top.count: the number of objects must be 1 to 50"),
        (json!({"top": {"count": 0, "by": ".a"}}), "top.count: the number of objects must be 1 to 50"),
        (json!({"top": {"count": 1, "by": ""}}), "top.by: byte 0: the name of a field is missing"),
    ] {
        assert_eq!(Question::parse(&question.to_string()).unwrap_err().to_string(), message);
    }
    for (text, part) in [
        ("", "EOF"),
        ("[]", "line 1 column 2"),
        (r#"{"groupby":[]}"#, "unknown field `groupby`"),
        (r#"{"where":[{"path":".a","operator":"Like"}]}"#, "unknown variant `Like`"),
    ] {
        let message = Question::parse(text).unwrap_err().to_string();
        assert!(message.contains(part), "{text}: {message}");
    }
    assert_eq!(Question::parse(&" ".repeat(QUESTION_BYTES_MAX + 1)), Err(NotAQuestion::TooLong));
}

#[test]
fn conditions_are_met_as_those_of_a_label_selector() {
    let object = json!({"phase": "Running", "ready": true, "list": ["a", "b"]});
    let is_met = |path: &str, operator: &str, values: &[&str]| {
        let question = json!({"where": [{"path": path, "operator": operator, "values": values}]});
        Question::parse(&question.to_string()).unwrap().counts(&object)
    };
    assert!(is_met(".phase", "In", &["Pending", "Running"]));
    assert!(!is_met(".phase", "In", &["Pending"]));
    assert!(!is_met(".phase", "NotIn", &["Running"]));
    assert!(is_met(".none", "NotIn", &["Running"]));
    assert!(is_met(".ready", "In", &["true"]));
    assert!(is_met(".list[*]", "In", &["b"]));
    assert!(is_met(".phase", "Exists", &[]) && !is_met(".none", "Exists", &[]));
    assert!(is_met(".none", "DoesNotExist", &[]) && !is_met(".phase", "DoesNotExist", &[]));
}
