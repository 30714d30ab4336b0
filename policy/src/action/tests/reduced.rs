//! Claims about requests for summaries.

use super::*;

const QUESTION: &str = "%7B%22groupBy%22:[]%7D";

fn at_cluster(target: &str) -> Result<Action, ActionError> {
    Action::of_cluster(cluster(), &Method::GET, target, None)
}

fn cluster() -> ClusterId {
    "edge-a".parse().unwrap()
}

#[test]
fn the_question_of_a_summary_is_no_part_of_what_goes_to_the_cluster() {
    let action = at_cluster(&format!("/api/v1/pods?a=b&tombolo-reduce={QUESTION}")).unwrap();
    assert_eq!(action.reduce(), Some(r#"{"groupBy":[]}"#));
    assert_eq!((action.verb(), action.path().as_str()), (Verb::List, "/api/v1/pods?a=b"));
    assert_eq!(action.recorded_path(), "/api/v1/pods?a=b&tombolo-reduce=%7B%22groupBy%22%3A%5B%5D%7D");
    let plain = at_cluster("/api/v1/pods").unwrap();
    assert_eq!((plain.reduce(), plain.recorded_path()), (None, "/api/v1/pods".to_owned()));
}

#[test]
fn only_the_whole_list_of_a_resource_is_summarized() {
    for (target, error) in [
        ("/api/v1/pods?watch=true", ActionError::ReduceNotAList),
        ("/api/v1/namespaces/a/pods/x?a=b", ActionError::ReduceNotAList),
        ("/version?a=b", ActionError::ReduceNotAList),
        ("/api/v1/pods?limit=5", ActionError::ReduceWithPages("limit")),
        ("/api/v1/pods?continue=x", ActionError::ReduceWithPages("continue")),
        (&format!("/api/v1/pods?tombolo-reduce={QUESTION}"), ActionError::Twice("tombolo-reduce")),
    ] {
        assert_eq!(at_cluster(&format!("{target}&tombolo-reduce={QUESTION}")), Err(error), "{target}");
    }
    let delete = format!("/api/v1/namespaces/a/pods?tombolo-reduce={QUESTION}");
    let deleted = Action::of_cluster(cluster(), &Method::DELETE, &delete, None);
    assert_eq!(deleted, Err(ActionError::ReduceNotAList));
}

#[test]
fn the_application_behind_a_proxy_keeps_its_parameter() {
    let target = "/api/v1/namespaces/a/services/s/proxy/x?tombolo-reduce=1";
    let action = at_cluster(target).unwrap();
    assert_eq!((action.reduce(), action.path().as_str()), (None, target));
}

#[test]
fn a_page_of_a_list_keeps_the_other_parameters() {
    let target = "/api/v1/pods?labelSelector=a%3Db&limit=7&continue=old".parse().unwrap();
    assert_eq!(page_of(&target, 500, "").unwrap(), "/api/v1/pods?labelSelector=a%3Db&limit=500");
    let next = page_of(&target, 500, "its/own").unwrap();
    assert_eq!(next, "/api/v1/pods?labelSelector=a%3Db&limit=500&continue=its%2Fown");
}
