//! How long a request may wait for its cluster's return: as the server's limits and its caller's own let it.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use http::{HeaderMap, HeaderName};
use proto::ClusterId;
use tokio::time::Instant;

use crate::config::Parking;

/// The header by which a caller waits for less than the server's limit, or for more where that is allowed: whole seconds. It
/// goes no further than here.
pub(super) const PARK_LIMIT: HeaderName = HeaderName::from_static("tombolo-park-limit");

/// What is left of a caller's own `timeout` for our answer, so that the caller reads why and not only that: a quarter,
/// and no more than this.
const ANSWER_TIME_MAX: Duration = Duration::from_secs(1);

/// A connection that has waited for a cluster in vain is refused at once for so long: kubectl asks for what it discovers
/// five times in a row, and its user waits once.
const REST: Duration = Duration::from_secs(5);

/// Clusters for which a connection's waits are remembered; the oldest is forgotten first.
const REMEMBERED_MAX: usize = 8;

/// What a request allows itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Patience {
    limit: Duration,
    /// When its caller will have given up.
    ends: Option<Instant>,
}

/// For which clusters a caller's connection has waited, and since when.
#[derive(Debug, Default)]
pub(super) struct Waits(Mutex<Vec<(ClusterId, Instant)>>);

/// How one request waits.
#[derive(Debug, Clone, Copy)]
pub(super) struct Wait<'a> {
    patience: Patience,
    /// Its connection's.
    waits: Option<&'a Waits>,
}

/// The header says no number of seconds up to the server's limit for callers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the header Tombolo-Park-LimitExceeded must be one number of seconds from 0 to {max}, the most that this server allows",
    max = .0.as_secs()
)]
pub struct NotAParkLimit(Duration);

impl Patience {
    /// Of a request that came at `now` with this `query` and these `headers`, within the server's limits.
    ///
    /// # Errors
    /// `NotAParkLimit`.
    pub(super) fn of(
        parking: &Parking,
        query: Option<&str>,
        headers: &HeaderMap,
        now: Instant,
    ) -> Result<Self, NotAParkLimit> {
        let mut said = headers.get_all(PARK_LIMIT).iter();
        let limit = match (said.next(), said.next()) {
            (None, _) => parking.limit,
            (Some(_), Some(_)) => return Err(NotAParkLimit(parking.caller_limit)),
            (Some(one), None) => {
                let seconds = one.to_str().ok().and_then(seconds);
                let seconds = seconds.filter(|seconds| *seconds <= parking.caller_limit);
                seconds.ok_or(NotAParkLimit(parking.caller_limit))?
            }
        };
        let own = query.and_then(own_timeout).map(|own| own - (own / 4).min(ANSWER_TIME_MAX));
        Ok(Self { limit, ends: own.and_then(|own| now.checked_add(own)) })
    }

    /// The same for what must not wait.
    pub(super) fn none(self, now: Instant) -> Self {
        Self { ends: Some(now), ..self }
    }

    /// Until when to wait, from `now` on.
    fn until(self, now: Instant) -> Instant {
        let limit = now + self.limit;
        self.ends.map_or(limit, |ends| ends.min(limit))
    }
}

impl<'a> Wait<'a> {
    pub(super) fn new(patience: Patience, waits: &'a Waits) -> Self {
        Self { patience, waits: Some(waits) }
    }

    /// The wait of who has waited already.
    pub(super) fn none() -> Self {
        Self { patience: Patience { limit: Duration::ZERO, ends: None }, waits: None }
    }

    /// The wait of what is sent again: as long as its caller's time allows, whatever was waited before.
    pub(super) fn again(self) -> Self {
        Self { waits: None, ..self }
    }

    /// Whether something is sent again.
    pub(super) fn is_again(self) -> bool {
        self.waits.is_none()
    }

    /// Until when to wait for `cluster`, from `now` on.
    pub(super) fn until(self, cluster: &ClusterId, now: Instant) -> Instant {
        let waits = self.waits.map(|waits| waits.until(cluster, self.patience, now));
        waits.unwrap_or_else(|| self.patience.until(now))
    }

    /// The cluster has come back.
    pub(super) fn over(self, cluster: &ClusterId) {
        if let Some(waits) = self.waits {
            waits.over(cluster);
        }
    }
}

impl Waits {
    /// Until when a request of this connection waits for `cluster` from `now` on: as `patience` says, but a connection
    /// waits for a cluster once and not for each of its requests.
    fn until(&self, cluster: &ClusterId, patience: Patience, now: Instant) -> Instant {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|(_, began)| now < *began + patience.limit + REST);
        let began = waits.iter().find(|(waited_for, _)| waited_for == cluster).map(|(_, began)| *began);
        let began = began.unwrap_or_else(|| {
            if waits.len() >= REMEMBERED_MAX {
                waits.remove(0);
            }
            waits.push((cluster.clone(), now));
            now
        });
        patience.until(now).min(began + patience.limit)
    }

    /// The cluster is there: the next wait for it is a new one.
    fn over(&self, cluster: &ClusterId) {
        let mut waits = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waits.retain(|(waited_for, _)| waited_for != cluster);
    }
}

/// What a request says of its own time: `timeoutSeconds` of a list or watch, or `timeout`, which client-go sends for
/// `--request-timeout`. Where neither can be read the API server will say so.
fn own_timeout(query: &str) -> Option<Duration> {
    let parameters = || query.split('&').filter_map(|parameter| parameter.split_once('='));
    let first = |name: &str| parameters().find(|(given, _)| *given == name).map(|(_, value)| value);
    let own = [first("timeout").and_then(go_duration), first("timeoutSeconds").and_then(seconds)];
    own.into_iter().flatten().filter(|own| !own.is_zero()).min()
}

fn seconds(text: &str) -> Option<Duration> {
    let is_number = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok().map(Duration::from_secs))?
}

/// `1m30s`, as Go's `time.ParseDuration` reads it; nothing for a negative one, or one in microseconds or nanoseconds.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut whole = Duration::ZERO;
    while !rest.is_empty() {
        let number = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (amount, behind) = rest.split_at(number);
        let unit = behind.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(behind.len());
        let (unit, behind) = behind.split_at(unit);
        let unit = match unit {
            "ms" => 0.001,
            "s" => 1.0,
            "m" => 60.0,
            "h" => 3600.0,
            _ => return None,
        };
        let amount: f64 = amount.parse().ok()?;
        whole = whole.checked_add(Duration::try_from_secs_f64(amount * unit).ok()?)?;
        rest = behind;
    }
    Some(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(15);
    const PARKING: Parking = Parking { limit: LIMIT, caller_limit: Duration::from_secs(100), per_cluster: 1 };

    #[tokio::test(start_paused = true)]
    async fn a_request_waits_for_the_servers_limit_or_its_callers_own_and_never_beyond_its_own_time() {
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
            let patience = Patience::of(&PARKING, query, &headers(header.as_slice()), now).unwrap();
            let waits = patience.until(now) - now;
            assert_eq!(waits, Duration::from_millis(waits_ms), "{query:?} {header:?}");
        }
    }

    #[test]
    fn a_header_that_asks_for_more_or_for_nothing_that_can_be_read_is_refused() {
        for said in [&["101"][..], &["-1"], &["5s"], &[""], &["+5"], &["5", "5"], &["99999999999999999999"]] {
            let refused = Patience::of(&PARKING, None, &headers(said), Instant::now());
            assert_eq!(refused, Err(NotAParkLimit(PARKING.caller_limit)), "{said:?}");
        }
    }

    #[test]
    fn gos_durations_are_read() {
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
    async fn a_connection_waits_for_a_cluster_once_then_rests_and_then_waits_again() {
        let (waits, [a, b]) = (Waits::default(), ["a", "b"].map(|name| name.parse().unwrap()));
        let began = Instant::now();
        let patience = Patience::of(&PARKING, None, &HeaderMap::new(), began).unwrap();

        assert_eq!(waits.until(&a, patience, began), began + LIMIT);
        let later = began + LIMIT / 3;
        assert_eq!(waits.until(&a, patience, later), began + LIMIT, "together with the first");
        assert_eq!(waits.until(&b, patience, later), later + LIMIT, "another cluster is another wait");
        assert_eq!(waits.until(&a, patience, began + LIMIT + REST / 2), began + LIMIT, "in vain: not again");
        let rested = began + LIMIT + REST;
        assert_eq!(waits.until(&a, patience, rested), rested + LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_return_the_next_wait_is_a_whole_one() {
        let (waits, a) = (Waits::default(), "a".parse().unwrap());
        let began = Instant::now();
        let patience = Patience::of(&PARKING, None, &HeaderMap::new(), began).unwrap();
        let _ = waits.until(&a, patience, began);

        waits.over(&a);

        let later = began + LIMIT / 2;
        assert_eq!(waits.until(&a, patience, later), later + LIMIT);
    }

    #[tokio::test(start_paused = true)]
    async fn no_more_clusters_than_the_limit_are_remembered() {
        let (waits, began) = (Waits::default(), Instant::now());
        let patience = Patience::of(&PARKING, None, &HeaderMap::new(), began).unwrap();

        for n in 0..=REMEMBERED_MAX {
            let _ = waits.until(&format!("c{n}").parse().unwrap(), patience, began);
        }

        assert_eq!(waits.0.lock().unwrap().len(), REMEMBERED_MAX);
    }

    fn headers(said: &[&str]) -> HeaderMap {
        said.iter().map(|value| (PARK_LIMIT, value.parse().unwrap())).collect()
    }
}
