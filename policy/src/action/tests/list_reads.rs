//! Claims about reads of the list of clusters.

use std::collections::BTreeMap;

use super::*;

fn list_read(query: &str) -> Result<ListRead, ActionError> {
    match asked(PATH_HOST, &format!("/clusters{query}"))? {
        ParsedRequest::ClusterList(read) => Ok(read),
        other @ (ParsedRequest::Cluster(_) | ParsedRequest::ClusterSet(_)) => panic!("{other:?}"),
    }
}

#[test]
fn a_list_is_followed_where_a_list_of_kubernetes_would_be() {
    for (query, is_watch) in [
        ("", false),
        ("?", false),
        ("?limit=500", false),
        ("?watch=false", false),
        ("?watch=0", false),
        ("?watch", true),
        ("?watch=true&resourceVersion=", true),
        ("?limit=500&watch=1&resourceVersion=0", true),
    ] {
        assert_eq!(list_read(query).map(|read| read.is_watch()), Ok(is_watch), "{query}");
    }
    let timeout = |query| list_read(query).unwrap().timeout();
    assert_eq!(timeout("?watch=1&timeoutSeconds=7"), Some(std::time::Duration::from_secs(7)));
    assert_eq!((timeout("?watch=1&timeoutSeconds=0"), timeout("?watch=1")), (None, None));
}

#[test]
fn a_list_has_the_clusters_whose_labels_are_selected() {
    let labels = |stage: &str| BTreeMap::from([("stage".to_owned(), stage.to_owned())]);
    let read = list_read("?labelSelector=stage%20in%20(live,test)").unwrap();
    assert!(
        read.selects(&labels("live")) && !read.selects(&labels("old")) && !read.selects(&BTreeMap::new())
    );
    let all = list_read("?labelSelector=").unwrap();
    assert!(all.selects(&labels("old")) && all.selects(&BTreeMap::new()));
}

#[test]
fn parameters_of_a_list_that_mean_nothing_are_refused() {
    assert!(matches!(list_read("?labelSelector=a%20b"), Err(ActionError::LabelSelector(_))));
    for (query, error) in [
        ("?labelSelector=a&labelSelector=b", ActionError::Twice("labelSelector")),
        ("?watch=1&resourceVersion=17", ActionError::ListVersion),
        ("?timeoutSeconds=soon", ActionError::NotANumber("timeoutSeconds")),
        ("?includeObject=Some", ActionError::IncludeObject),
        ("?watch=0&watch=1", ActionError::AmbiguousWatch),
        ("?a;b", ActionError::Semicolon),
    ] {
        assert_eq!(list_read(query), Err(error), "{query}");
    }
    for (query, part) in [
        ("", RowObject::Metadata),
        ("?includeObject=Metadata", RowObject::Metadata),
        ("?includeObject=Object", RowObject::Whole),
        ("?includeObject=None", RowObject::None),
    ] {
        assert_eq!(list_read(query).map(|read| read.row_object()), Ok(part), "{query}");
    }
}
