//! The query of a watch, and the queries that are sent to the API server instead of it. Pure.

use std::time::Duration;

use policy::action::Action;

use super::version::{Start, Version};

/// Longest `timeoutSeconds` of a watch that is followed. A watch with a longer one is left to the API server.
const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// The query of a watch, as the API server reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    /// The point at which the watch begins.
    pub(super) start: Start,
    /// True if the caller wants bookmarks.
    pub(super) bookmarks: bool,
    /// The time after which the API server is to end the watch; `None` leaves it to the API server.
    pub(super) timeout: Option<Duration>,
    /// All other parameters, in their canonical form.
    rest: String,
}

/// The parameters that are replaced or removed when a watch is resumed.
#[derive(Default)]
struct WatchParameters<'a> {
    resource_version: Option<&'a str>,
    resource_version_match: Option<&'a str>,
    send_initial_events: Option<&'a str>,
    allow_bookmarks: Option<&'a str>,
    timeout: Option<&'a str>,
}

impl Query {
    /// Parses a canonical query. `None` if the watch is not followed: a name is encoded, or a parameter that
    /// is read here is encoded, there twice, or invalid.
    pub(super) fn parse(query: Option<&str>) -> Option<Self> {
        let (mut parameters, mut rest) = (WatchParameters::default(), Vec::new());
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if is_encoded(key) {
                return None;
            }
            let Some(field) = parameters.field(key) else {
                rest.push(pair);
                continue;
            };
            if is_encoded(value) || field.replace(value).is_some() {
                return None;
            }
        }
        let timeout = match parameters.timeout.unwrap_or("0").parse().ok().map(Duration::from_secs)? {
            // The API server chooses a random one.
            Duration::ZERO => None,
            timeout if timeout > TIMEOUT_MAX => return None,
            timeout => Some(timeout),
        };
        let bookmarks = parameters.allow_bookmarks.is_some_and(Action::is_parameter_on);
        Some(Self { start: parameters.start(), bookmarks, timeout, rest: rest.join("&") })
    }

    /// The query with bookmarks added. `None` if the caller has asked for them itself.
    pub(super) fn with_bookmarks(&self, query: &str) -> Option<String> {
        if self.bookmarks {
            return None;
        }
        let kept = query.split('&').filter(|pair| pair.split('=').next() != Some(ALLOW_BOOKMARKS));
        let kept: Vec<&str> = kept.filter(|pair| !pair.is_empty()).collect();
        Some(joined(&kept.join("&"), &format!("{ALLOW_BOOKMARKS}=true")))
    }

    /// The query that resumes the watch after `version`, for the time that is `left`.
    pub(super) fn resume_after(&self, version: &Version, left: Option<Duration>) -> String {
        let mut own = format!("{ALLOW_BOOKMARKS}=true&{RESOURCE_VERSION}={}", version.as_str());
        if let Some(left) = left {
            // Zero would mean no timeout.
            own.push_str(&format!("&{TIMEOUT}={}", left.as_secs().max(1)));
        }
        joined(&self.rest, &own)
    }
}

const RESOURCE_VERSION: &str = "resourceVersion";
const RESOURCE_VERSION_MATCH: &str = "resourceVersionMatch";
const SEND_INITIAL_EVENTS: &str = "sendInitialEvents";
const ALLOW_BOOKMARKS: &str = "allowWatchBookmarks";
const TIMEOUT: &str = "timeoutSeconds";

impl<'a> WatchParameters<'a> {
    /// The field of a parameter, if it is one of these.
    fn field(&mut self, key: &str) -> Option<&mut Option<&'a str>> {
        Some(match key {
            RESOURCE_VERSION => &mut self.resource_version,
            RESOURCE_VERSION_MATCH => &mut self.resource_version_match,
            SEND_INITIAL_EVENTS => &mut self.send_initial_events,
            ALLOW_BOOKMARKS => &mut self.allow_bookmarks,
            TIMEOUT => &mut self.timeout,
            _ => return None,
        })
    }

    fn start(&self) -> Start {
        match (self.send_initial_events, self.resource_version) {
            (Some(on), _) if Action::is_parameter_on(on) => Start::InitialEvents,
            // The version does not count: the API server decides what both parameters together mean.
            (Some(_), _) | (None, None | Some("" | "0")) => Start::Anywhere,
            (None, Some(version)) => Version::parse(version).map_or(Start::Unclear, Start::At),
        }
    }
}

fn is_encoded(text: &str) -> bool {
    text.contains(['%', '+'])
}

fn joined(first: &str, second: &str) -> String {
    if first.is_empty() { second.to_owned() } else { format!("{first}&{second}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_beginning_of_a_watch_is_read_as_the_api_server_reads_it() {
        let at = |version| Start::At(Version::parse(version).unwrap());
        for (query, start) in [
            ("watch=1", Start::Anywhere),
            ("watch=1&resourceVersion=", Start::Anywhere),
            ("watch=1&resourceVersion=0", Start::Anywhere),
            ("watch=1&resourceVersion=17", at("17")),
            (
                "resourceVersion=17&sendInitialEvents=true&resourceVersionMatch=NotOlderThan",
                Start::InitialEvents,
            ),
            ("resourceVersion=17&sendInitialEvents", Start::InitialEvents),
            ("resourceVersion=17&sendInitialEvents=False", Start::Anywhere),
            ("resourceVersion=0017", Start::Unclear),
            ("resourceVersion=latest", Start::Unclear),
        ] {
            assert_eq!(Query::parse(Some(query)).unwrap().start, start, "{query}");
        }
        assert_eq!(Query::parse(None).unwrap().start, Start::Anywhere);
    }

    #[test]
    fn an_ambiguous_query_is_not_followed() {
        for query in [
            "resourceVersion=1&resourceVersion=2",
            "resource%56ersion=1",
            "resourceVersion=%31",
            "allowWatchBookmarks=+true",
            "timeoutSeconds=ten",
            "timeoutSeconds=-1",
            "timeoutSeconds=99999999999",
        ] {
            assert_eq!(Query::parse(Some(query)), None, "{query}");
        }
    }

    #[test]
    fn bookmarks_are_added_and_everything_else_stays() {
        for (query, sent) in [
            ("watch=1", Some("watch=1&allowWatchBookmarks=true")),
            ("watch=1&allowWatchBookmarks=false&x=%2C+", Some("watch=1&x=%2C+&allowWatchBookmarks=true")),
            ("", Some("allowWatchBookmarks=true")),
            ("watch=1&allowWatchBookmarks=true", None),
            ("watch=1&allowWatchBookmarks", None),
        ] {
            let parsed = Query::parse(Some(query)).unwrap();
            assert_eq!(parsed.with_bookmarks(query).as_deref(), sent, "{query}");
        }
    }

    #[test]
    fn a_watch_is_resumed_at_its_resume_point_for_the_rest_of_its_time() {
        let query = Query::parse(Some(
            "watch=1&labelSelector=a%3Db&resourceVersion=0&resourceVersionMatch=NotOlderThan&sendInitialEvents=true\
             &timeoutSeconds=300&allowWatchBookmarks=true",
        ));
        let (query, version) = (query.unwrap(), Version::parse("42").unwrap());

        assert_eq!(query.timeout, Some(Duration::from_secs(300)));
        assert_eq!(
            query.resume_after(&version, Some(Duration::from_millis(12_900))),
            "watch=1&labelSelector=a%3Db&allowWatchBookmarks=true&resourceVersion=42&timeoutSeconds=12"
        );
        assert!(query.resume_after(&version, Some(Duration::from_millis(1))).ends_with("&timeoutSeconds=1"));
        assert!(query.resume_after(&version, None).ends_with("&resourceVersion=42"));
    }
}
