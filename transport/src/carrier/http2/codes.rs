//! Translates between our abort codes and HTTP/2's error codes.

use std::io;

use h2::Reason;

use crate::error::{TunnelEnded, aborted, ended};

/// This bit marks a code of ours, so that it differs from HTTP/2's own (RFC 9113, section 7, allows unknown
/// codes).
const OURS: u32 = 1 << 31;

/// A code of ours as the error code of RST_STREAM.
pub(super) fn reset_reason(code: u32) -> Reason {
    Reason::from(code | OURS)
}

/// The I/O error for a stream that the peer has reset.
pub(super) fn reset_error(reason: Reason) -> io::Error {
    let code = u32::from(reason);
    if code & OURS != 0 {
        aborted(code & !OURS)
    } else {
        // Reset by h2 itself, on either side.
        io::Error::new(io::ErrorKind::ConnectionReset, format!("HTTP/2 reset the stream: {reason}"))
    }
}

/// The I/O error of a stream for an error of h2.
pub(super) fn stream_error(error: h2::Error) -> io::Error {
    match error.reason() {
        Some(reason) if error.is_reset() => reset_error(reason),
        _ => ended(tunnel_ended(error)),
    }
}

/// The end of the tunnel for an error of h2.
pub(super) fn tunnel_ended(error: h2::Error) -> TunnelEnded {
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
            assert!(u32::from(reset_reason(code.number())) > u32::from(Reason::HTTP_1_1_REQUIRED));
            assert_eq!(abort_code(&reset_error(reset_reason(code.number()))), Some(code));
        }
        assert_eq!(abort_code(&reset_error(Reason::REFUSED_STREAM)), None);
    }
}
