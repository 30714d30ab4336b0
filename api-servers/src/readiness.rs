//! The answer to a probe of an API server.

use http::StatusCode;

/// Path of a probe. A client that may not request it gets a refusal from an API server that is alive.
///
/// The checks of a second etcd are left out. It has the events, as a rule: an API server without it serves everything else, and yet says that
/// it is not ready, after 2 s. The names are those of `--etcd-servers-overrides`; one that is not there changes nothing.
pub const READYZ: &str = "/readyz?exclude=etcd-override-0&exclude=etcd-override-readiness-0";

/// Returns true if the status of an answer to [`READYZ`] shows an API server that is ready, or one that is
/// alive enough to authenticate and refuse.
#[must_use]
pub fn is_ready(status: StatusCode) -> bool {
    status.is_success() || status == StatusCode::UNAUTHORIZED || status == StatusCode::FORBIDDEN
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_is_an_answer_of_a_ready_one_and_a_failed_check_is_not() {
        for (status, expected) in
            [(200, true), (401, true), (403, true), (429, false), (500, false), (503, false)]
        {
            assert_eq!(is_ready(StatusCode::from_u16(status).unwrap()), expected, "{status}");
        }
    }
}
