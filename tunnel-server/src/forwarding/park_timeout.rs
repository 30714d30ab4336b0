//! The time that a request waits for a disconnected cluster, by the server's limits and the caller's own
//! timeout.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use proto::ClusterId;
use tokio::time::Instant;

use crate::config::Parking;

/// The header with which a caller sets its own limit in whole seconds: shorter than the server's, or longer
/// where that is allowed. It is not forwarded.
pub(crate) const PARK_LIMIT: HeaderName = HeaderName::from_static("tombolo-park-limit");

/// A quarter of a caller's own timeout is left for our answer, and no more than this, so that the caller can
/// read why it failed.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// After a wait that failed, a connection is refused at once for this time. kubectl repeats its discovery
/// five times in a row, and its user should wait once.
const PARK_PAUSE: Duration = Duration::from_secs(5);

/// Most clusters for which a connection's waits are remembered. The oldest is forgotten first.
const REMEMBERED_MAX: usize = 8;

/// The time that a request may wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct ParkTimeout {
    limit: Duration,
    /// The time at which the caller will have given up.
    ends: Option<Instant>,
}

/// The clusters for which a connection has waited, each with the beginning of the wait.
#[derive(Debug, Default)]
pub(crate) struct ConnectionWaits(Mutex<Vec<(ClusterId, Instant)>>);

/// The wait of one request.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ParkWait<'a> {
    timeout: ParkTimeout,
    /// The waits of its connection. `None` for a request that waits independently of them.
    waits: Option<&'a ConnectionWaits>,
    is_repeated: bool,
}

/// The header `Tombolo-Park-Limit` is not one number of seconds up to the server's limit for callers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the header Tombolo-Park-Limit must be one number of seconds from 0 to {max}, the most that this server allows",
    max = .0.as_secs()
)]
pub struct NotAParkLimit(Duration);

impl ParkTimeout {
    /// Reads the timeout of a request that arrived at `now` with this `query` and these `headers`.
    ///
    /// # Errors
    /// The header is malformed, or exceeds the server's limit for callers.
    pub(crate) fn parse(
        parking: &Parking,
        query: Option<&str>,
        headers: &HeaderMap,
        now: Instant,
    ) -> Result<Self, NotAParkLimit> {
        let mut sent = headers.get_all(PARK_LIMIT).iter();
        let limit = match (sent.next(), sent.next()) {
            (None, _) => parking.limit,
            (Some(_), Some(_)) => return Err(NotAParkLimit(parking.caller_limit)),
            (Some(one), None) => {
                let seconds = one.to_str().ok().and_then(seconds);
                let seconds = seconds.filter(|seconds| *seconds <= parking.caller_limit);
                seconds.ok_or(NotAParkLimit(parking.caller_limit))?
            }
        };
        let own = query.and_then(time_to_answer);
        Ok(Self { limit, ends: own.and_then(|own| now.checked_add(own)) })
    }

    /// The timeout of a request that must not wait.
    pub(crate) fn none(self, now: Instant) -> Self {
        Self { ends: Some(now), ..self }
    }

    /// The end of a wait that begins at `now`.
    fn until(self, now: Instant) -> Instant {
        let limit = now + self.limit;
        self.ends.map_or(limit, |ends| ends.min(limit))
    }
}

impl<'a> ParkWait<'a> {
    /// The wait of a request on a connection with these `waits`.
    pub(crate) fn new(timeout: ParkTimeout, waits: &'a ConnectionWaits) -> Self {
        Self { timeout, waits: Some(waits), is_repeated: false }
    }

    /// The wait of a request whose cluster was waited for already.
    pub(crate) fn none() -> Self {
        Self { timeout: ParkTimeout { limit: Duration::ZERO, ends: None }, waits: None, is_repeated: true }
    }

    /// No wait at all: a cluster that is away now is away.
    pub(crate) fn never() -> Self {
        Self { timeout: ParkTimeout { limit: Duration::ZERO, ends: None }, waits: None, is_repeated: false }
    }

    /// The wait of a repeated request: as long as the caller's timeout allows, whatever was waited before.
    pub(crate) fn repeated(self) -> Self {
        Self { waits: None, is_repeated: true, ..self }
    }

    /// Returns true if the request is repeated.
    pub(crate) fn is_repeated(self) -> bool {
        self.is_repeated
    }

    /// The end of a wait for `cluster` that begins at `now`.
    pub(crate) fn until(self, cluster: &ClusterId, now: Instant) -> Instant {
        let waits = self.waits.map(|waits| waits.until(cluster, self.timeout, now));
        waits.unwrap_or_else(|| self.timeout.until(now))
    }

    /// Notes that the cluster is connected again.
    pub(crate) fn cluster_returned(self, cluster: &ClusterId) {
        if let Some(waits) = self.waits {
            waits.cluster_returned(cluster);
        }
    }
}

impl ConnectionWaits {
    /// The end of a wait for `cluster` that begins at `now`, by `timeout`. A connection waits for a cluster
    /// once, and not once for each of its requests.
    fn until(&self, cluster: &ClusterId, timeout: ParkTimeout, now: Instant) -> Instant {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|(_, began)| now < *began + timeout.limit + PARK_PAUSE);
        let began = waits.iter().find(|(waited_for, _)| waited_for == cluster).map(|(_, began)| *began);
        let began = began.unwrap_or_else(|| {
            if waits.len() >= REMEMBERED_MAX {
                waits.remove(0);
            }
            waits.push((cluster.clone(), now));
            now
        });
        timeout.until(now).min(began + timeout.limit)
    }

    /// Notes that the cluster is connected again, so that the next wait for it is a new one.
    fn cluster_returned(&self, cluster: &ClusterId) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|(waited_for, _)| waited_for != cluster);
    }
}

/// The caller's own timeout: `timeoutSeconds` of a list or watch, or `timeout`, which client-go sends for
/// `--request-timeout`. A malformed one is left to the API server.
fn own_timeout(query: &str) -> Option<Duration> {
    own_timeouts(query).min()
}

/// The time within which a caller can still read an answer, by its own timeouts.
pub(crate) fn time_to_answer(query: &str) -> Option<Duration> {
    own_timeout(query).map(|own| own - (own / 4).min(ANSWER_TIME_MAX))
}

/// The longest time that a caller gives the API server by its own timeouts.
pub(crate) fn longest_own_timeout(query: &str) -> Option<Duration> {
    own_timeouts(query).max()
}

fn own_timeouts(query: &str) -> impl Iterator<Item = Duration> {
    let parameters = || query.split('&').filter_map(|parameter| parameter.split_once('='));
    let first = |name: &str| parameters().find(|(given, _)| *given == name).map(|(_, value)| value);
    let own = [first("timeout").and_then(go_duration), first("timeoutSeconds").and_then(seconds)];
    own.into_iter().flatten().filter(|own| !own.is_zero())
}

fn seconds(text: &str) -> Option<Duration> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok().map(Duration::from_secs))?
}

/// Parses a duration such as `1m30s` as Go's `time.ParseDuration` does. `None` if it is negative, or in
/// microseconds or nanoseconds.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut total = Duration::ZERO;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (amount, after) = rest.split_at(number);
        let unit = after.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(after.len());
        let (unit, after) = after.split_at(unit);
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let amount: f64 = amount.parse().ok()?;
        total = total.checked_add(Duration::try_from_secs_f64(amount * unit).ok()?)?;
        rest = after;
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(15);
    const PARKING: Parking = Parking { limit: LIMIT, caller_limit: Duration::from_secs(100), per_cluster: 1 };

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_up_to_its_limit_and_never_beyond_its_own_timeout() {
        for (query, header, waits_ms) in [
            (None, None, 15_000),
            (Some("limit=500&timeout=32s"), None, 15_000),
            (Some("timeout=5s"), None, 4_000),
            (Some("timeout=2s&x=y"), None, 1_500),
            (Some("timeout=0s"), None, 15_000),
            (Some("timeout=soon"), None, 15_000),
            (Some("timeoutSeconds=8"), None, 7_000),
            (Some("timeoutSeconds=8&timeout=3s"), None, 2_250),
            (None, Some("7"), 7_000),
            (Some("timeout=5s"), Some("7"), 4_000),
            (None, Some("15"), 15_000),
            (None, Some("100"), 100_000),
            (Some("timeout=32s"), Some("100"), 31_000),
            (None, Some("0"), 0),
        ] {
            let now = Instant::now();
            let timeout = ParkTimeout::parse(&PARKING, query, &headers(header.as_slice()), now).unwrap();
            let waits = timeout.until(now) - now;
            assert_eq!(waits, Duration::from_millis(waits_ms), "{query:?} {header:?}");
        }
    }

    #[test]
    fn a_header_that_is_malformed_or_exceeds_the_limit_is_refused() {
        for values in [&["101"][..], &["-1"], &["5s"], &[""], &["+5"], &["5", "5"], &["99999999999999999999"]]
        {
            let refused = ParkTimeout::parse(&PARKING, None, &headers(values), Instant::now());
            assert_eq!(refused, Err(NotAParkLimit(PARKING.caller_limit)), "{values:?}");
        }
    }

    #[test]
    fn durations_of_go_are_parsed() {
        for (text, millis) in [
            ("5s", Some(5_000)),
            ("1m30s", Some(90_000)),
            ("1.5h", Some(5_400_000)),
            ("250ms", Some(250)),
            (".5s", Some(500)),
            ("-5s", None),
            ("5", None),
            ("s", None),
            ("1.2.3s", None),
            ("9e9s", None),
            ("99999999999999999999999h", None),
        ] {
            assert_eq!(go_duration(text), millis.map(Duration::from_millis), "{text}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_waits_once_then_pauses_and_then_waits_again() {
        let (waits, [a, b]) = (ConnectionWaits::default(), ["a", "b"].map(|name| name.parse().unwrap()));
        let began = Instant::now();
        let timeout = ParkTimeout::parse(&PARKING, None, &HeaderMap::new(), began).unwrap();

        assert_eq!(waits.until(&a, timeout, began), began + LIMIT);
        let later = began + LIMIT / 3;
        assert_eq!(waits.until(&a, timeout, later), began + LIMIT, "together with the first");
        assert_eq!(waits.until(&b, timeout, later), later + LIMIT, "another cluster is another wait");
        assert_eq!(
            waits.until(&a, timeout, began + LIMIT + PARK_PAUSE / 2),
            began + LIMIT,
            "failed: not again"
        );
        let paused = began + LIMIT + PARK_PAUSE;
        assert_eq!(waits.until(&a, timeout, paused), paused + LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_cluster_returned_the_next_wait_is_a_full_one() {
        let (waits, a) = (ConnectionWaits::default(), "a".parse().unwrap());
        let began = Instant::now();
        let timeout = ParkTimeout::parse(&PARKING, None, &HeaderMap::new(), began).unwrap();
        let _ = waits.until(&a, timeout, began);

        waits.cluster_returned(&a);

        let later = began + LIMIT / 2;
        assert_eq!(waits.until(&a, timeout, later), later + LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_clusters_than_the_limit_are_remembered() {
        let (waits, began) = (ConnectionWaits::default(), Instant::now());
        let timeout = ParkTimeout::parse(&PARKING, None, &HeaderMap::new(), began).unwrap();

        for n in 0..=REMEMBERED_MAX {
            let _ = waits.until(&format!("c{n}").parse().unwrap(), timeout, began);
        }

        assert_eq!(waits.0.lock().unwrap().len(), REMEMBERED_MAX);
    }

    fn headers(values: &[&str]) -> HeaderMap {
        values.iter().map(|value| (PARK_LIMIT, value.parse().unwrap())).collect()
    }
}
