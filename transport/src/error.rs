//! The ends of streams and tunnels as error types, and how to find them behind other crates' errors.

use std::error::Error;
use std::io;

use proto::session::ProtocolViolation;
use proto::{AbortCode, CloseCode};

/// The peer aborted the whole stream. This is the inner error of the `io::Error` that a read or write
/// returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Aborted(pub AbortCode);

/// The reason why a tunnel ended. Its streams end with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TunnelEnded {
    /// Both sides drained the tunnel and lost nothing.
    #[error("drained")]
    Drained,
    /// The other side closed the tunnel.
    #[error("closed by the other side: {0}")]
    ClosedByPeer(CloseCode),
    /// Nothing was heard for too long.
    #[error("nothing was heard for too long")]
    Lost,
    /// The other side does not know the connection any more: it was restarted.
    #[error("the other side was restarted")]
    Restarted,
    /// The peer broke the protocol of the control stream.
    #[error("protocol violation")]
    Violation(#[from] ProtocolViolation),
    /// Bytes on the control stream are no frame.
    #[error("the control stream is not readable")]
    Frame(#[from] proto::frame::FrameError),
    /// The carrier ended the connection.
    #[error("the connection broke: {0}")]
    Carrier(String),
}

impl TunnelEnded {
    /// The end of a tunnel that the peer closed with this code.
    pub(crate) fn closed(code: CloseCode) -> Self {
        match code {
            CloseCode::Drained => Self::Drained,
            code @ (CloseCode::Stopping
            | CloseCode::NotGreeted
            | CloseCode::Violation
            | CloseCode::Lost
            | CloseCode::KeyCopied
            | CloseCode::Revoked
            | CloseCode::Expired
            | CloseCode::Replaced
            | CloseCode::Unknown(_)) => Self::ClosedByPeer(code),
        }
    }
}

/// The code with which a peer aborted a stream, if `error` was caused by that.
///
/// Looks through other crates' errors: hyper keeps an `io::Error` as its source, and that keeps ours inside.
#[must_use]
pub fn abort_code(error: &(dyn Error + 'static)) -> Option<AbortCode> {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(Aborted(code)) = error.downcast_ref() {
            return Some(*code);
        }
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    None
}

pub(crate) fn aborted(code: u32) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, Aborted(AbortCode::from_number(code)))
}

pub(crate) fn ended(how: TunnelEnded) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, how)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn a_code_is_found_behind_other_errors() {
        let error = Outer(aborted(AbortCode::ApiServerLost.number()));
        assert_eq!(abort_code(&error), Some(AbortCode::ApiServerLost));
    }

    #[test]
    fn an_error_without_a_code_has_none() {
        assert_eq!(abort_code(&Outer(io::Error::other("else"))), None);
        assert_eq!(abort_code(&Outer(ended(TunnelEnded::Lost))), None);
    }
}
