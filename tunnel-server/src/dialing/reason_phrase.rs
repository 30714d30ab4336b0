//! Puts the reason of a refused CONNECT into the status line of HTTP/1.1, because Go's programs show nothing
//! else.

use std::fmt::Display;

use http::Response;
use hyper::ext::ReasonPhrase;

/// Longest reason phrase, in bytes: a line of a terminal or two.
const REASON_BYTES_MAX: usize = 256;

/// Sets the reason phrase to `cause`, without characters that a status line cannot have, and shortened to its
/// limit.
pub(crate) fn set<B>(cause: &impl Display, answer: &mut Response<B>) {
    let fits = |byte: &u8| byte.is_ascii_graphic() || *byte == b' ';
    let phrase: Vec<u8> = cause.to_string().bytes().filter(fits).take(REASON_BYTES_MAX).collect();
    if let Ok(reason) = ReasonPhrase::try_from(phrase) {
        answer.extensions_mut().insert(reason);
    }
}
