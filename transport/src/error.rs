//! How a stream was aborted and how a tunnel ended, found again behind other crates' errors.

use std::error::Error;
use std::io;

use proto::session::Violation;
use proto::{AbortCode, CloseCode};
use quinn::{Connection, ConnectionError, ReadError, StoppedError, VarInt, WriteError};

/// The peer aborted the whole stream. Stands inside the `io::Error` that a read or write returns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Aborted(pub AbortCode);

/// How a tunnel ended. Its streams end with it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TunnelEnded {
    /// Both sides agreed and lost nothing.
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
    Violation(#[from] Violation),
    /// Bytes on the control stream that are no frame.
    #[error("the control stream is not readable")]
    Frame(#[from] proto::frame::FrameError),
    /// The carrier ended the connection.
    #[error("the connection broke: {0}")]
    Carrier(String),
}

impl From<ConnectionError> for TunnelEnded {
    fn from(error: ConnectionError) -> Self {
        match error {
            ConnectionError::ApplicationClosed(close) => {
                match CloseCode::from_number(number(close.error_code)) {
                    CloseCode::Drained => Self::Drained,
                    code @ (CloseCode::Stopping
                    | CloseCode::NotGreeted
                    | CloseCode::Violation
                    | CloseCode::Lost
                    | CloseCode::Unknown(_)) => Self::ClosedByPeer(code),
                }
            }
            ConnectionError::Reset => Self::Restarted,
            ConnectionError::TimedOut => Self::Lost,
            error @ (ConnectionError::VersionMismatch
            | ConnectionError::TransportError(_)
            | ConnectionError::ConnectionClosed(_)
            | ConnectionError::LocallyClosed
            | ConnectionError::CidsExhausted) => Self::Carrier(error.to_string()),
        }
    }
}

/// The code with which a peer aborted a stream, if that is what stands behind `error`.
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

/// Ends a connection that came to no tunnel.
pub(crate) fn not_greeted(connection: &Connection) {
    let code = CloseCode::NotGreeted;
    connection.close(VarInt::from_u32(code.number()), code.to_string().as_bytes());
}

pub(crate) fn number(code: VarInt) -> u32 {
    u32::try_from(code.into_inner()).unwrap_or(u32::MAX)
}

pub(crate) fn aborted(code: VarInt) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionReset, Aborted(AbortCode::from_number(number(code))))
}

pub(crate) fn ended(error: ConnectionError) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, TunnelEnded::from(error))
}

pub(crate) fn of_read(error: ReadError) -> io::Error {
    match error {
        ReadError::Reset(code) => aborted(code),
        ReadError::ConnectionLost(error) => ended(error),
        error @ (ReadError::ClosedStream | ReadError::IllegalOrderedRead | ReadError::ZeroRttRejected) => {
            io::Error::new(io::ErrorKind::NotConnected, error.to_string())
        }
    }
}

pub(crate) fn of_write(error: WriteError) -> io::Error {
    match error {
        WriteError::Stopped(code) => aborted(code),
        WriteError::ConnectionLost(error) => ended(error),
        error @ (WriteError::ClosedStream | WriteError::ZeroRttRejected) => {
            io::Error::new(io::ErrorKind::NotConnected, error.to_string())
        }
    }
}

pub(crate) fn of_stopped(outcome: Result<Option<VarInt>, StoppedError>) -> io::Result<()> {
    match outcome {
        Ok(None) => Ok(()),
        Ok(Some(code)) => Err(aborted(code)),
        Err(StoppedError::ConnectionLost(error)) => Err(ended(error)),
        Err(error @ StoppedError::ZeroRttRejected) => {
            Err(io::Error::new(io::ErrorKind::NotConnected, error.to_string()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("outer")]
    struct Outer(#[source] io::Error);

    #[test]
    fn a_code_is_found_behind_other_errors() {
        let error = Outer(aborted(VarInt::from_u32(AbortCode::ApiServerLost.number())));
        assert_eq!(abort_code(&error), Some(AbortCode::ApiServerLost));
    }

    #[test]
    fn an_error_without_a_code_has_none() {
        assert_eq!(abort_code(&Outer(io::Error::other("else"))), None);
        assert_eq!(abort_code(&Outer(ended(ConnectionError::TimedOut))), None);
    }
}
