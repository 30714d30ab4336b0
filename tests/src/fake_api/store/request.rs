//! Parses the requests to a collection.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::Value;

/// A request to a collection.
#[derive(Debug, PartialEq)]
pub(super) enum StoreRequest {
    List,
    Get(String),
    Put { name: String, data: Value, is_new: bool },
    Delete(String),
    Watch(WatchRequest),
    Unknown(&'static str),
}

/// A watch and how it begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct WatchRequest {
    /// The resource version that it starts from; `None` starts from what is there now.
    pub(super) from: Option<u64>,
    /// True if the existing objects come first, up to a bookmark.
    pub(super) send_initial_events: bool,
    pub(super) allow_bookmarks: bool,
    /// After how long the watch ends cleanly.
    pub(super) lasts: Option<Duration>,
}

impl StoreRequest {
    pub(super) fn of(method: &str, target: &str, body: &[u8]) -> Self {
        let (path, query) = target.split_once('?').unwrap_or((target, ""));
        let query: BTreeMap<&str, &str> = query.split('&').filter_map(|pair| pair.split_once('=')).collect();
        let name = path.split_once("/configmaps/").map(|(_, name)| name.to_owned());
        let is_set = |key: &str| matches!(query.get(key), Some(&("1" | "true")));
        match (method, name) {
            ("GET", None) if is_set("watch") => {
                let from = query.get("resourceVersion").and_then(|from| from.parse().ok());
                Self::Watch(WatchRequest {
                    from: from.filter(|from| *from > 0),
                    send_initial_events: is_set("sendInitialEvents"),
                    allow_bookmarks: is_set("allowWatchBookmarks"),
                    lasts: query
                        .get("timeoutSeconds")
                        .and_then(|lasts| lasts.parse().ok())
                        .map(Duration::from_secs),
                })
            }
            ("GET", None) => Self::List,
            ("GET", Some(name)) => Self::Get(name),
            ("DELETE", Some(name)) => Self::Delete(name),
            ("POST", None) => Self::put(body, None),
            ("PUT" | "PATCH", Some(name)) => Self::put(body, Some(name)),
            _ => Self::Unknown("a ConfigMap is not asked so"),
        }
    }

    fn put(body: &[u8], name: Option<String>) -> Self {
        let Ok(object) = serde_json::from_slice::<Value>(body) else {
            return Self::Unknown("the body is no JSON");
        };
        let is_new = name.is_none();
        match name.or_else(|| object["metadata"]["name"].as_str().map(str::to_owned)) {
            Some(name) => Self::Put { name, data: object["data"].clone(), is_new },
            None => Self::Unknown("the object has no name"),
        }
    }
}
