//! The status line of HTTP/1.1 of an answer, which says why a CONNECT was refused: Go's programs show nothing else of it.

use std::fmt::Display;

use http::Response;
use hyper::ext::ReasonPhrase;

/// Longest reason phrase, in bytes: a line of a terminal or two.
const REASON_BYTES_MAX: usize = 256;

/// Says there why, as far as it fits.
pub(crate) fn set<B>(cause: &impl Display, answer: &mut Response<B>) {
    let fits = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let phrase: Vec<u8> = cause.to_string().bytes().filter(fits).take(REASON_BYTES_MAX).collect();
    if let Ok(reason) = ReasonPhrase::try_from(phrase) {
        answer.extensions_mut().insert(reason);
    }
}
