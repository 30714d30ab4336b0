//! What a watch's query asks, and the queries that go to the API server in its place. Pure.

use std::time::Duration;

use super::safe_point::Version;

/// Longest `timeoutSeconds` that is followed; a longer one is left to the API server.
const TIMEOUT_MAX: Duration = Duration::from_secs(10 * 365 * 86_400);

/// What a watch's query asks, as the API server reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Query {
    /// Where the watch begins.
    pub(super) start: Start,
    /// Whether its caller wants bookmarks.
    pub(super) bookmarks: bool,
    /// When the API server is to end it; by its own measure, if absent.
    pub(super) timeout: Option<Duration>,
    /// Every pair that says nothing of these, as it was received.
    rest: String,
}

/// Where a watch begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Start {
    /// PrefixedStream a version.
    At(Version),
    /// With what there is, or now.
    Anywhere,
    /// With what there is, and a bookmark behind it.
    InitialEvents,
    /// What the API server makes of it is not ours to guess.
    Unclear,
}

/// Pairs that a watch which is begun again has anew, or not at all.
#[derive(Default)]
struct Known<'a> {
    resource_version: Option<&'a str>,
    resource_version_match: Option<&'a str>,
    send_initial_events: Option<&'a str>,
    allow_bookmarks: Option<&'a str>,
    timeout: Option<&'a str>,
}

impl Query {
    /// Reads a query. `None` where it could be read in two ways: with a pair twice, or encoded where nobody needs to.
    pub(super) fn parse(query: Option<&str>) -> Option<Self> {
        let (mut known, mut rest) = (Known::default(), Vec::new());
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
            if is_encoded(key) || pair.contains(';') {
                return None;
            }
            let Some(place) = known.place(key) else {
                rest.push(pair);
                continue;
            };
            if is_encoded(value) || place.replace(value).is_some() {
                return None;
            }
        }
        let timeout = match known.timeout.unwrap_or("0").parse().ok().map(Duration::from_secs)? {
            // The API server draws one by lot.
            Duration::ZERO => None,
            timeout if timeout > TIMEOUT_MAX => return None,
            timeout => Some(timeout),
        };
        let bookmarks = known.allow_bookmarks.is_some_and(is_on);
        Some(Self { start: known.start(), bookmarks, timeout, rest: rest.join("&") })
    }

    /// The query with which bookmarks come whether the caller wants them or not; `None` where it is the caller's own.
    pub(super) fn with_bookmarks(&self, query: &str) -> Option<String> {
        if self.bookmarks {
            return None;
        }
        let kept = query.split('&').filter(|pair| pair.split('=').next() != Some(ALLOW_BOOKMARKS));
        let kept: Vec<&str> = kept.filter(|pair| !pair.is_empty()).collect();
        Some(joined(&kept.join("&"), &format!("{ALLOW_BOOKMARKS}=true")))
    }

    /// The query with which the watch is begun again behind a version, for what is `left` of its time.
    pub(super) fn again(&self, version: &Version, left: Option<Duration>) -> String {
        let mut own = format!("{ALLOW_BOOKMARKS}=true&{RESOURCE_VERSION}={}", version.as_str());
        if let Some(left) = left {
            // Zero would be no limit at all.
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

impl<'a> Known<'a> {
    fn place(&mut self, key: &str) -> Option<&mut Option<&'a str>> {
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
            (Some(on), _) if is_on(on) => Start::InitialEvents,
            // Not the version, whatever it is: what the API server makes of both together is its own.
            (Some(_), _) | (None, None | Some("" | "0")) => Start::Anywhere,
            (None, Some(version)) => Version::parse(version).map_or(Start::Unclear, Start::At),
        }
    }
}

/// As `Convert_Slice_string_To_bool` of apimachinery: whatever is not `false` or `0` is on, nothing too.
fn is_on(value: &str) -> bool {
    !value.eq_ignore_ascii_case("false") && value != "0"
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
    fn where_a_watch_begins_is_read_as_the_api_server_does() {
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
    fn a_query_that_could_be_read_in_two_ways_is_not_followed() {
        for query in [
            "resourceVersion=1&resourceVersion=2",
            "resourceVersion=1;2",
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
    fn bookmarks_are_asked_for_and_everything_else_stays_as_it_was() {
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
    fn a_watch_is_begun_again_at_its_safe_point_for_the_rest_of_its_time() {
        let query = Query::parse(Some(
            "watch=1&labelSelector=a%3Db&resourceVersion=0&resourceVersionMatch=NotOlderThan&sendInitialEvents=true\
             &timeoutSeconds=300&allowWatchBookmarks=true",
        ));
        let (query, version) = (query.unwrap(), Version::parse("42").unwrap());

        assert_eq!(query.timeout, Some(Duration::from_secs(300)));
        assert_eq!(
            query.again(&version, Some(Duration::from_millis(12_900))),
            "watch=1&labelSelector=a%3Db&allowWatchBookmarks=true&resourceVersion=42&timeoutSeconds=12"
        );
        assert!(query.again(&version, Some(Duration::from_millis(1))).ends_with("&timeoutSeconds=1"));
        assert!(query.again(&version, None).ends_with("&resourceVersion=42"));
    }
}
