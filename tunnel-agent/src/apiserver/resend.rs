//! Decides whether a request that got no answer is sent again: if nothing of it was processed, or if it is a
//! read.

use std::error::Error;
use std::iter::successors;
use std::time::Duration;
use std::{cmp, io};

use http::{Method, request};
use transport::{Unprocessed, unprocessed};

use super::connection::SendError;
use crate::metrics::ResendReason;

/// Most connections that one request is sent on.
pub const SENDINGS_MAX: usize = 8;

/// Most repetitions of a read whose connection was lost, so that a read which crashes API servers does not
/// crash all of them.
pub const LOST_READS_RESENT_MAX: usize = 2;

/// Pause before the second repetition. The first one is sent at once, and each further pause is twice as
/// long.
const PAUSE: Duration = Duration::from_millis(10);

/// The failure of one sending of a request, with no byte of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum SendFailure {
    /// No byte of it was written.
    NotWritten,
    /// The API server says that it has not processed it.
    Unprocessed(Unprocessed),
    /// Its connection was lost before the answer.
    Lost,
    /// Its stream was reset, or the answer is not HTTP.
    Other,
}

/// The sendings of one request so far.
#[derive(Debug)]
pub(super) struct Resends {
    /// True if the request may reach an API server more than once.
    is_read: bool,
    sendings: usize,
    lost: usize,
    refused: usize,
}

/// A decision to send a request again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Resend {
    pub(super) reason: ResendReason,
    /// The time to wait before.
    pub(super) pause: Duration,
    /// True if the connection of the last sending gets no further requests.
    pub(super) leaves_connection: bool,
}

impl SendFailure {
    pub(super) fn of(failed: &SendError) -> Self {
        if failed.message().is_some() {
            return Self::NotWritten;
        }
        let error = failed.error();
        if let Some(unprocessed) = unprocessed(error) {
            return Self::Unprocessed(unprocessed);
        }
        let mut sources =
            successors(Some(error as &(dyn Error + 'static)), |error: &&(dyn Error + 'static)| {
                (*error).source()
            });
        let is_lost = error.is_incomplete_message()
            || error.is_canceled()
            || error.is_closed()
            || error.is_timeout()
            || sources.any(|error| error.is::<io::Error>());
        if is_lost && !error.is_parse() { Self::Lost } else { Self::Other }
    }

    /// Returns true if the API server has processed nothing of the request.
    pub(super) fn is_unprocessed(self) -> bool {
        match self {
            Self::NotWritten | Self::Unprocessed(_) => true,
            Self::Lost | Self::Other => false,
        }
    }
}

impl Resends {
    pub(super) fn new(is_read: bool) -> Self {
        Self { is_read, sendings: 1, lost: 0, refused: 0 }
    }

    /// Returns how the request is sent again after this failure, or `None` if it is not.
    pub(super) fn after(&mut self, failure: SendFailure) -> Option<Resend> {
        if self.sendings >= SENDINGS_MAX {
            return None;
        }
        let (reason, leaves_connection) = match failure {
            SendFailure::NotWritten => (ResendReason::NotWritten, true),
            SendFailure::Unprocessed(Unprocessed::GoingAway) => (ResendReason::NotProcessed, true),
            SendFailure::Unprocessed(Unprocessed::Refused) => {
                self.refused += 1;
                // Others run on that connection, and it may have been a limit for a moment.
                (ResendReason::NotProcessed, self.refused > 1)
            }
            SendFailure::Lost if self.is_read && self.lost < LOST_READS_RESENT_MAX => {
                self.lost += 1;
                (ResendReason::Lost, true)
            }
            SendFailure::Lost | SendFailure::Other => return None,
        };
        let doublings = u32::try_from(self.sendings).ok().and_then(|sendings| sendings.checked_sub(2));
        let pause = doublings.map_or(Duration::ZERO, |doublings| PAUSE * (1 << cmp::min(doublings, 8)));
        self.sendings += 1;
        Some(Resend { reason, pause, leaves_connection })
    }
}

/// Returns true if a request may reach an API server more than once: a GET or HEAD without a body that goes
/// to the API server itself. One through a `proxy` may have effects in a workload. A segment with `%` may
/// hide that word.
pub(super) fn is_read(head: &request::Parts, has_body: bool) -> bool {
    let mut segments = head.uri.path().split('/');
    let is_own = !segments.any(|segment| segment.eq_ignore_ascii_case("proxy") || segment.contains('%'));
    !has_body && is_own && matches!(head.method, Method::GET | Method::HEAD)
}

#[cfg(test)]
mod tests {
    use http::Request;
    use proptest::prelude::*;

    use super::*;

    const GOING_AWAY: SendFailure = SendFailure::Unprocessed(Unprocessed::GoingAway);
    const REFUSED: SendFailure = SendFailure::Unprocessed(Unprocessed::Refused);

    #[test]
    fn a_write_is_sent_again_only_if_nothing_of_it_was_processed() {
        for (failure, is_sent_again) in [
            (SendFailure::NotWritten, true),
            (GOING_AWAY, true),
            (REFUSED, true),
            (SendFailure::Lost, false),
            (SendFailure::Other, false),
        ] {
            assert_eq!(Resends::new(false).after(failure).is_some(), is_sent_again, "{failure:?}");
            assert!(!is_sent_again || failure.is_unprocessed(), "{failure:?}");
        }
    }

    #[test]
    fn a_lost_read_is_sent_twice_more_at_most() {
        let mut read = Resends::new(true);

        for _ in 0..LOST_READS_RESENT_MAX {
            assert_eq!(read.after(SendFailure::Lost).map(|resend| resend.reason), Some(ResendReason::Lost));
        }

        assert_eq!(read.after(SendFailure::Lost), None);
        // A connection that takes nothing more says nothing of the read itself.
        assert!(read.after(GOING_AWAY).is_some());
        assert_eq!(Resends::new(true).after(SendFailure::Other), None);
    }

    #[test]
    fn a_connection_that_refuses_again_is_left() {
        let mut write = Resends::new(false);
        assert_eq!(write.after(REFUSED).map(|resend| resend.leaves_connection), Some(false));
        assert_eq!(write.after(REFUSED).map(|resend| resend.leaves_connection), Some(true));

        assert_eq!(Resends::new(false).after(GOING_AWAY).map(|resend| resend.leaves_connection), Some(true));
    }

    #[test]
    fn only_reads_of_the_api_server_itself_are_repeated() {
        for (method, path, has_body, expected) in [
            ("GET", "/api/v1/pods?watch=1", false, true),
            ("HEAD", "/version", false, true),
            ("GET", "/api/v1/pods", true, false),
            ("POST", "/api/v1/namespaces", false, false),
            ("DELETE", "/api/v1/namespaces/x", false, false),
            ("OPTIONS", "/", false, false),
            ("GET", "/api/v1/namespaces/n/pods/p/proxy/charge", false, false),
            ("GET", "/api/v1/nodes/n/proxy", false, false),
            ("GET", "/api/v1/nodes/n/%70roxy/run", false, false),
            ("GET", "/api/v1/pods?fieldSelector=a%3Dproxy", false, true),
        ] {
            let (head, ()) = Request::builder().method(method).uri(path).body(()).unwrap().into_parts();
            assert_eq!(is_read(&head, has_body), expected, "{method} {path}");
        }
    }

    proptest! {
        #[test]
        fn a_request_is_sent_on_so_many_connections_at_most(
            failures in prop::collection::vec(prop_oneof![Just(SendFailure::NotWritten), Just(GOING_AWAY), Just(REFUSED), Just(SendFailure::Lost)], 0..40),
            is_read: bool,
        ) {
            let mut resends = Resends::new(is_read);

            let again: Vec<Resend> = failures.iter().map_while(|failure| resends.after(*failure)).collect();

            prop_assert!(again.len() < SENDINGS_MAX);
            prop_assert!(again.iter().all(|resend| resend.pause <= Duration::from_secs(1)));
            if failures.len() >= SENDINGS_MAX && failures.iter().all(|failure| failure.is_unprocessed()) {
                prop_assert_eq!(again.len() + 1, SENDINGS_MAX);
            }
        }
    }
}
