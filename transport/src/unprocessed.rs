//! Tells from an HTTP/2 error whether the peer says that it has not processed the request.

use std::error::Error;
use std::iter::successors;

use h2::Reason;

/// The words with which an HTTP/2 server says that it has processed nothing of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unprocessed {
    /// The request's stream is above the last one that a GOAWAY names (RFC 9113, section 6.8). The connection
    /// takes no further requests.
    GoingAway,
    /// The request's stream was refused (RFC 9113, section 8.7). The connection goes on.
    Refused,
}

/// The server's words, if it says that it has processed nothing of the request that failed with `error`. Such
/// a request may be sent again, a write too. A library for HTTP/2 may hide its error behind others, so all
/// sources are looked at.
///
/// `h2` gives the error of a GOAWAY that was received to streams above its last number, and to requests that
/// it has not begun to send. It also gives it to a request that begins on one thread while another one reads
/// the GOAWAY, so a connection's tasks must not run on several threads at a time.
#[must_use]
pub fn unprocessed(error: &(dyn Error + 'static)) -> Option<Unprocessed> {
    let mut errors = successors(Some(error), |error: &&(dyn Error + 'static)| (*error).source());
    let error = errors.find_map(|error| error.downcast_ref::<h2::Error>())?;
    if !error.is_remote() {
        return None;
    }
    let is_refused = error.is_reset() && error.reason() == Some(Reason::REFUSED_STREAM);
    if error.is_go_away() { Some(Unprocessed::GoingAway) } else { is_refused.then_some(Unprocessed::Refused) }
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("no answer")]
    struct OuterError(#[source] h2::Error);

    #[test]
    fn an_error_of_this_side_does_not_say_that_nothing_was_processed() {
        let ours = h2::Error::from(Reason::REFUSED_STREAM);

        assert_eq!(unprocessed(&ours), None);
        assert_eq!(unprocessed(&OuterError(ours)), None);
        assert_eq!(unprocessed(&io::Error::from(io::ErrorKind::BrokenPipe)), None);
    }

    #[tokio::test]
    async fn only_a_refused_stream_of_the_peers_resets_was_not_processed() {
        for (reason, expected) in [
            (Reason::REFUSED_STREAM, Some(Unprocessed::Refused)),
            (Reason::INTERNAL_ERROR, None),
            (Reason::CANCEL, None),
            (Reason::NO_ERROR, None),
            (Reason::ENHANCE_YOUR_CALM, None),
        ] {
            let (near, far) = tokio::io::duplex(64 * 1024);
            let server = async {
                let mut server = h2::server::handshake(far).await.unwrap();
                let (_request, mut answer) = server.accept().await.unwrap().unwrap();
                answer.send_reset(reason);
                drop(answer);
                while server.accept().await.is_some() {}
            };
            let client = async {
                let (mut sender, connection) = h2::client::handshake(near).await.unwrap();
                let request = http::Request::get("https://api/").body(()).unwrap();
                let asked = async {
                    let (answer, _) = sender.send_request(request, true).unwrap();
                    let failed = answer.await.unwrap_err();
                    drop(sender);
                    failed
                };
                // Both are driven to their ends.
                let (failed, _) = tokio::join!(asked, connection);
                failed
            };

            let (failed, ()) = tokio::join!(client, server);

            assert_eq!(unprocessed(&failed), expected, "{reason:?}");
            assert_eq!(unprocessed(&OuterError(failed)), expected, "{reason:?}, behind another error");
        }
    }
}
