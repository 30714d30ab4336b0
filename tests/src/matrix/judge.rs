//! Derives a code from a request's observation and from the API server's records of it.

use std::time::Instant;

use serde_json::Value;

use super::code::{Code, Request};
use super::report::Observed;
use super::requests::{Observation, RequestEnd};
use crate::check::reflector::Reflector;
use crate::check::watch_report::WatchReport;
use crate::fake_api::Emitted;

/// The API server's records of a request.
#[derive(Debug, Clone, Copy, Default)]
pub struct Arrivals<'a> {
    /// Number of times that it arrived.
    pub arrivals: usize,
    /// The changes that the collection emitted.
    pub emitted: &'a [Emitted],
    /// The status and body of the API server's own answer, if that was no success.
    pub answered: Option<(u16, &'a str)>,
}

/// The time of a fault.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// The time when it began.
    pub begun: Instant,
    /// The time when it ended.
    pub ended: Instant,
}

/// Judges one request by its observation.
pub fn judge(request: Request, observation: &Observation, known: Arrivals<'_>, span: Span) -> Observed {
    let (code, detail) = match (&observation.end, &observation.reflector) {
        (RequestEnd::Wrong(what), _) => (Code::Wrong, what.clone()),
        (RequestEnd::Hung, _) => (Code::Hung, "nothing came".to_owned()),
        (_, Some((reflector, breaks, refusals))) => of_watch(reflector, *breaks, *refusals, known.emitted),
        (RequestEnd::Refused { status, text, retry_after }, None) => {
            refused(request, *status, text, retry_after.as_deref(), known)
        }
        (RequestEnd::Broken(how), None) => (broken(request, known.arrivals), how.clone()),
        (RequestEnd::Complete, None) => complete(request, known.arrivals),
    };
    let mut observed = Observed {
        request,
        code,
        detail,
        noticed: observation
            .noticed_at
            .map(|noticed_at| noticed_at.saturating_duration_since(span.begun).as_secs_f64()),
        resumed: observation
            .resumed
            .map(|resumed| resumed.saturating_duration_since(span.ended).as_secs_f64()),
        lost: observation.lost,
        twice: 0,
    };
    if let Some((reflector, ..)) = &observation.reflector {
        let found = WatchReport::of(reflector, known.emitted);
        (observed.lost, observed.twice) = (found.lost.len() as u64, found.twice.len() as u64);
    }
    if request == Request::Apply {
        observed.twice = known.arrivals.saturating_sub(1) as u64;
    }
    observed
}

fn of_watch(reflector: &Reflector, breaks: usize, refusals: usize, emitted: &[Emitted]) -> (Code, String) {
    let found = WatchReport::of(reflector, emitted);
    let detail = format!("{} events, {breaks} breaks, {refusals} refusals", reflector.seen().len());
    match (found.is_right(), breaks, refusals) {
        (false, ..) => (Code::Wrong, format!("{detail}, {found:?}")),
        (true, 0, 0) => (Code::W0, detail),
        (true, _, 0) => (Code::W1, detail),
        (true, ..) => (Code::W2, detail),
    }
}

fn complete(request: Request, arrivals: usize) -> (Code, String) {
    match (request, arrivals) {
        (Request::Apply, 1) => (Code::A0, String::new()),
        (Request::Apply, count) => (Code::Wrong, format!("acknowledged, and it arrived {count} times")),
        (Request::Exec, 1) => (Code::E0, String::new()),
        (Request::Exec, count) => (Code::Wrong, format!("it went on, and it arrived {count} times")),
        (_, 1) => (Code::G0, String::new()),
        (_, 2) => (Code::G1, String::new()),
        (_, count) => (Code::Wrong, format!("answered, and it arrived {count} times")),
    }
}

fn broken(request: Request, arrivals: usize) -> Code {
    match (request, arrivals) {
        (Request::Apply, 0) => Code::A2,
        (Request::Apply, 1) => Code::A1,
        (Request::Exec, 0 | 1) => Code::E1,
        (Request::Get | Request::Download | Request::Watch, 0..=2) => Code::G3,
        _ => Code::Wrong,
    }
}

fn refused(
    request: Request,
    status: u16,
    text: &str,
    retry_after: Option<&str>,
    known: Arrivals<'_>,
) -> (Code, String) {
    let detail = describe_error(status, text, retry_after);
    if known.answered == Some((status, text)) && known.arrivals == 1 {
        return (Code::P, detail);
    }
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    if body["kind"] != "Status" {
        return (Code::Wrong, format!("no Status: {detail}"));
    }
    // client-go repeats any request on it, writes too.
    if retry_after.is_some() && known.arrivals > 0 {
        return (Code::Wrong, format!("Retry-After, and the request had arrived: {detail}"));
    }
    let code = match (request, known.arrivals) {
        (Request::Exec, 0 | 1) => Code::E2,
        (Request::Apply, 0) => Code::A2,
        (Request::Apply, 1) => Code::A1,
        (Request::Get | Request::Download | Request::Watch, 0..=2) => Code::G2,
        _ => Code::Wrong,
    };
    (code, detail)
}

/// The status, the cause and the `Retry-After` header as text.
fn describe_error(status: u16, text: &str, retry_after: Option<&str>) -> String {
    let body: Value = serde_json::from_str(text).unwrap_or_default();
    let cause =
        body["details"]["causes"][0]["reason"].as_str().or(body["reason"].as_str()).unwrap_or("no reason");
    let seconds = body["details"]["retryAfterSeconds"].as_u64();
    let seconds = seconds.map_or_else(String::new, |seconds| format!(", retryAfterSeconds {seconds}"));
    let header = retry_after.map_or_else(String::new, |value| format!(", Retry-After {value}"));
    format!("{status} {cause}{seconds}{header}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake_api::Store;

    const STATUS: &str = r#"{"kind":"Status","details":{"causes":[{"reason":"ClusterLost"}]}}"#;

    #[test]
    fn ends_and_arrivals_make_codes() {
        let broken = || RequestEnd::Broken("reset".to_owned());
        for (request, end, arrivals, code) in [
            (Request::Get, RequestEnd::Complete, 1, Code::G0),
            (Request::Get, RequestEnd::Complete, 2, Code::G1),
            (Request::Get, RequestEnd::Complete, 3, Code::Wrong),
            (Request::Get, refusal(None), 1, Code::G2),
            (Request::Download, broken(), 1, Code::G3),
            (Request::Exec, RequestEnd::Complete, 1, Code::E0),
            (Request::Exec, broken(), 1, Code::E1),
            (Request::Exec, refusal(None), 0, Code::E2),
            (Request::Exec, broken(), 2, Code::Wrong),
            (Request::Apply, RequestEnd::Complete, 1, Code::A0),
            (Request::Apply, RequestEnd::Complete, 2, Code::Wrong),
            (Request::Apply, refusal(None), 1, Code::A1),
            (Request::Apply, broken(), 2, Code::Wrong),
            (Request::Apply, refusal(None), 0, Code::A2),
            (Request::Apply, RequestEnd::Hung, 1, Code::Hung),
        ] {
            let observation = observation(end);
            let known = Arrivals { arrivals, ..Arrivals::default() };
            assert_eq!(
                judge(request, &observation, known, span()).code,
                code,
                "{request:?} {observation:?} {arrivals}"
            );
        }
    }

    #[test]
    fn retry_after_is_wrong_once_a_byte_has_arrived_and_right_before() {
        for (arrivals, code) in [(0, Code::A2), (1, Code::Wrong)] {
            let known = Arrivals { arrivals, ..Arrivals::default() };
            assert_eq!(judge(Request::Apply, &observation(refusal(Some("1"))), known, span()).code, code);
        }
    }

    #[test]
    fn an_answer_without_a_status_is_wrong_unless_the_api_server_sent_it() {
        let end = || RequestEnd::Refused {
            status: 429,
            text: "slow down".to_owned(),
            retry_after: Some("3".to_owned()),
        };
        let output = Arrivals { arrivals: 1, answered: Some((429, "slow down")), ..Arrivals::default() };
        assert_eq!(judge(Request::Apply, &observation(end()), output, span()).code, Code::P);
        assert_eq!(judge(Request::Apply, &observation(end()), Arrivals::default(), span()).code, Code::Wrong);
    }

    #[test]
    fn a_watch_is_judged_by_its_view_and_its_breaks() {
        let store = Store::new();
        store.put("a", "1");
        let watched = |lines: &[String], breaks, refusals| {
            let mut reflector = Reflector::default();
            reflector.list(br#"{"metadata":{"resourceVersion":"100"},"items":[]}"#).unwrap();
            lines.iter().for_each(|line| reflector.take(line.as_bytes()));
            let observation = Observation {
                reflector: Some((reflector, breaks, refusals)),
                ..observation(RequestEnd::Complete)
            };
            let known = Arrivals { emitted: &store.emitted(), ..Arrivals::default() };
            judge(Request::Watch, &observation, known, span())
        };
        let line = store.emitted()[0].text();
        assert_eq!(watched(std::slice::from_ref(&line), 0, 0).code, Code::W0);
        assert_eq!(watched(std::slice::from_ref(&line), 1, 0).code, Code::W1);
        assert_eq!(watched(std::slice::from_ref(&line), 1, 2).code, Code::W2);
        let twice = watched(&[line.clone(), line], 0, 0);
        assert_eq!((twice.code, twice.twice), (Code::Wrong, 1));
        let lost = watched(&[], 0, 0);
        assert_eq!((lost.code, lost.lost), (Code::Wrong, 1));
    }

    fn refusal(retry_after: Option<&str>) -> RequestEnd {
        RequestEnd::Refused {
            status: 503,
            text: STATUS.to_owned(),
            retry_after: retry_after.map(str::to_owned),
        }
    }

    fn observation(end: RequestEnd) -> Observation {
        Observation { end, noticed_at: None, resumed: None, lost: 0, reflector: None }
    }

    fn span() -> Span {
        let now = Instant::now();
        Span { begun: now, ended: now }
    }
}
