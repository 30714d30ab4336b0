//! What HTTP/2's error codes say of a stream and of a connection.

use std::io;

use h2::Reason;

use crate::error::{TunnelEnded, aborted, ended};

/// Set in a code of ours, so that it is none of HTTP/2's own (RFC 9113, section 7, which lets unknown codes pass).
const OURS: u32 = 1 << 31;

/// How a code of ours travels in RST_STREAM.
pub(super) fn reason(code: u32) -> Reason {
    Reason::from(code | OURS)
}

/// What a stream's reader or writer is told of a stream that was reset.
pub(super) fn reset(reason: Reason) -> io::Error {
    let code = u32::from(reason);
    if code & OURS != 0 {
        aborted(code & !OURS)
    } else {
        // h2's own doing, on either side.
        io::Error::new(io::ErrorKind::ConnectionReset, format!("HTTP/2 reset the stream: {reason}"))
    }
}

/// What a stream's reader or writer is told of an error of h2.
pub(super) fn broken(error: h2::Error) -> io::Error {
    match error.reason() {
        Some(reason) if error.is_reset() => reset(reason),
        _ => ended(connection(error)),
    }
}

/// How an error of h2 ended the connection.
pub(super) fn connection(error: h2::Error) -> TunnelEnded {
    match error.get_io() {
        Some(error) if error.kind() == io::ErrorKind::TimedOut => TunnelEnded::Lost,
        Some(_) | None => TunnelEnded::Carrier(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use proto::AbortCode;

    use super::*;
    use crate::error::abort_code;

    #[test]
    fn our_codes_come_through_and_are_none_of_http2s_own() {
        for code in [AbortCode::Abandoned, AbortCode::BadOpen, AbortCode::Unknown(0x7fff_ffff)] {
            assert!(u32::from(reason(code.number())) > u32::from(Reason::HTTP_1_1_REQUIRED));
            assert_eq!(abort_code(&reset(reason(code.number()))), Some(code));
        }
        assert_eq!(abort_code(&reset(Reason::REFUSED_STREAM)), None);
    }
}
