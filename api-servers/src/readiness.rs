//! The answer to a probe of an API server.

use http::StatusCode;

/// Path of a probe. A client that may not request it gets a refusal from an API server that is alive.
pub const READYZ: &str = "/readyz";

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
