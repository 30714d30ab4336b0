//! The facts that this server states about a refusal.

use std::time::Duration;

use audit::EndReason;
use http::StatusCode;

use super::causes::RefusalCause;
use crate::metrics::WatchEnded;

/// All that follows from one refusal. The table makes one for every variant, and everything else is read from
/// it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RefusalFacts {
    /// The status of the answer.
    pub(crate) status: StatusCode,
    /// The word for programs, in `details.causes` and in metrics.
    pub(crate) cause: &'static str,
    /// The time after which the caller may try again, and where it is told so. `None` where trying again
    /// would not help.
    pub(crate) retry: Option<RetryAfter>,
    /// Advice that is added to the message for the caller.
    pub(crate) advice: Option<&'static str>,
    /// The end of the request in the audit log.
    pub(crate) audit_end: EndReason,
    /// True if an HTTP/1.1 connection is closed, because the bytes after the request's head must not be read
    /// as another request.
    pub(crate) closes_connection: bool,
    /// The end of a watch that is not resumed because of this refusal, in metrics.
    pub(crate) watch_end: WatchEnded,
}

/// The time after which to try again, and where the answer says so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RetryAfter {
    /// In the header `Retry-After` and in `details`. client-go then repeats any request, writes too, up to
    /// ten times. Allowed only where no byte of the request has reached an API server and nobody has waited,
    /// so that a repetition is harmless and helps.
    Header(Duration),
    /// In `details` only, for a caller that decides to try again.
    DetailsOnly(Duration),
}

/// A pause after which another attempt may succeed.
pub(super) const SOON: Duration = Duration::from_secs(1);

/// A longer pause, where waiting has not helped.
pub(super) const LATER: Duration = Duration::from_secs(10);

impl RefusalFacts {
    /// The facts of a refusal before anything of the request was forwarded. There is no advice and no time to
    /// try again, and the connection stays open.
    pub(super) fn refused(cause: RefusalCause, status: StatusCode) -> Self {
        Self::of_word(cause.as_str(), status, EndReason::Refused)
    }

    /// The facts of a failure, which the audit log shows as `audit_end`.
    pub(super) fn failed(cause: RefusalCause, status: StatusCode, audit_end: EndReason) -> Self {
        Self::of_word(cause.as_str(), status, audit_end)
    }

    /// The facts of a fault that another module describes, by its own word.
    pub(super) fn of_word(cause: &'static str, status: StatusCode, audit_end: EndReason) -> Self {
        Self {
            status,
            cause,
            retry: None,
            advice: None,
            audit_end,
            closes_connection: false,
            watch_end: WatchEnded::Refused,
        }
    }

    pub(super) fn retry(self, retry: RetryAfter) -> Self {
        Self { retry: Some(retry), ..self }
    }

    pub(super) fn advice(self, advice: &'static str) -> Self {
        Self { advice: Some(advice), ..self }
    }

    pub(super) fn closes_connection(self) -> Self {
        Self { closes_connection: true, ..self }
    }

    pub(super) fn watch_end(self, watch_end: WatchEnded) -> Self {
        Self { watch_end, ..self }
    }

    /// The word of Kubernetes for the status (`metav1.StatusReason`), where it has one.
    pub(super) fn reason(&self) -> &'static str {
        match self.status {
            StatusCode::BAD_REQUEST | StatusCode::MISDIRECTED_REQUEST => "BadRequest",
            StatusCode::UNAUTHORIZED => "Unauthorized",
            StatusCode::FORBIDDEN => "Forbidden",
            StatusCode::NOT_FOUND => "NotFound",
            StatusCode::GONE => "Expired",
            StatusCode::CONFLICT => "Conflict",
            StatusCode::NOT_ACCEPTABLE => "NotAcceptable",
            StatusCode::METHOD_NOT_ALLOWED => "MethodNotAllowed",
            StatusCode::TOO_MANY_REQUESTS => "TooManyRequests",
            StatusCode::GATEWAY_TIMEOUT | StatusCode::REQUEST_TIMEOUT => "Timeout",
            StatusCode::SERVICE_UNAVAILABLE => "ServiceUnavailable",
            // Kubernetes has the word for 413, and none for its two relatives.
            StatusCode::URI_TOO_LONG
            | StatusCode::PAYLOAD_TOO_LARGE
            | StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE => "RequestEntityTooLarge",
            // A status is a number, so that the match cannot name each.
            status if status.is_client_error() => "BadRequest",
            _ => "InternalError",
        }
    }
}
