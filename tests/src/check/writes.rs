//! Finds writes that reach an API server twice: each carries a mark of its own, and the API server's records
//! are searched.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::fake_api::RecordedRequest;

/// The beginning of every mark, so that it is found in any body.
const PREFIX: &str = "mark-";
/// The number of digits that follow the prefix.
const DIGITS: usize = 20;

/// A mark that no other write of this process has.
pub fn mark() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    format!("{PREFIX}{:0DIGITS$}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Number of mutating requests that carried each mark, whether or not the body arrived completely.
pub fn arrivals(requests: &[RecordedRequest]) -> BTreeMap<String, usize> {
    let mut count = BTreeMap::new();
    let writes =
        requests.iter().filter(|request| !matches!(request.method.as_str(), "GET" | "HEAD" | "OPTIONS"));
    for request in writes {
        // The mark is in the path too, so that a write counts of which nothing but the head has come.
        let text = format!("{} {}", request.target, String::from_utf8_lossy(&request.body));
        if let Some(mark) = first_mark(&text) {
            *count.entry(mark).or_default() += 1;
        }
    }
    count
}

/// The marks that came more than once, with how often.
pub fn repeated(requests: &[RecordedRequest]) -> BTreeMap<String, usize> {
    arrivals(requests).into_iter().filter(|(_, count)| *count > 1).collect()
}

fn first_mark(text: &str) -> Option<String> {
    let from = text.find(PREFIX)?;
    text.get(from..from + PREFIX.len() + DIGITS).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::fake_api::{Behaviour, FakeApi};
    use crate::rig::ask_raw;

    #[test]
    fn no_two_marks_are_the_same() {
        assert_ne!(mark(), mark());
    }

    #[tokio::test]
    async fn a_repeated_write_is_reported_and_a_repeated_read_is_not() {
        let (once, twice) = (mark(), mark());
        let fake = FakeApi::start_http1().await.unwrap();
        fake.otherwise(Behaviour::json("{}"));
        send(&fake, "POST", "/", &once).await;
        for method in ["PATCH", "PATCH", "GET"] {
            send(&fake, method, "/", &twice).await;
        }
        fake.wait_for_request(Duration::from_secs(30), |request| request.method == "GET").await.unwrap();
        assert_eq!(repeated(&fake.requests()), BTreeMap::from([(twice.clone(), 2)]));
        assert_eq!(arrivals(&fake.requests()), BTreeMap::from([(once, 1), (twice, 2)]));
    }

    #[tokio::test]
    async fn a_write_counts_by_its_head_alone() {
        let mark = mark();
        let fake = FakeApi::start_http1().await.unwrap();
        fake.otherwise(Behaviour::json("{}"));
        for _ in 0..2 {
            send(&fake, "PUT", &format!("/{mark}"), "").await;
        }
        assert_eq!(repeated(&fake.requests()), BTreeMap::from([(mark, 2)]));
    }

    async fn send(fake: &FakeApi, method: &str, path: &str, body: &str) {
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        ask_raw(fake.address(), fake.ca_pem(), None, head.as_bytes()).await.unwrap();
    }
}
