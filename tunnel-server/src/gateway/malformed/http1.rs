//! Replaces hyper's own answer to a request of HTTP/1.1 that it cannot read by one with a `Status`.

use http::StatusCode;

use super::refusal;
use crate::gateway::refusal::MalformedRequest;

/// The version of HTTP and the status at the beginning of an answer, such as `HTTP/1.1 400 `.
const STATUS_LINE_BYTES: usize = 13;

/// The answer that is sent in place of hyper's, which is `own`. The connection ends after it.
pub(in crate::gateway) fn answer(own: &[u8]) -> Vec<u8> {
    let (parts, body) = refusal(reason(own)).response().into_parts();
    let version = own.get(..8).filter(|version| version.starts_with(b"HTTP/1.")).unwrap_or(b"HTTP/1.1");
    let mut answer = version.to_vec();
    let reason_phrase = parts.status.canonical_reason().unwrap_or_default();
    answer.extend_from_slice(format!(" {} {reason_phrase}\r\n", parts.status.as_str()).as_bytes());
    for (name, value) in &parts.headers {
        for piece in [name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"] {
            answer.extend_from_slice(piece);
        }
    }
    answer.extend_from_slice(format!("content-length: {}\r\n\r\n{body}", body.len()).as_bytes());
    answer
}

/// The reason for which hyper refuses a request, by the status of its answer.
fn reason(own: &[u8]) -> MalformedRequest {
    let status = own.get(..STATUS_LINE_BYTES).and_then(|line| StatusCode::from_bytes(&line[9..12]).ok());
    match status {
        Some(StatusCode::URI_TOO_LONG) => MalformedRequest::TargetTooLong,
        Some(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE) => MalformedRequest::HeadTooLarge,
        Some(_) | None => MalformedRequest::Unreadable,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_of_the_http_library_gets_a_status_object() {
        for (own, status_line, reason) in [
            (
                "HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n",
                "HTTP/1.1 400 Bad Request",
                "BadRequest",
            ),
            ("HTTP/1.0 400 Bad Request\r\n\r\n", "HTTP/1.0 400 Bad Request", "BadRequest"),
            ("HTTP/1.1 414 URI Too Long\r\n\r\n", "HTTP/1.1 414 URI Too Long", "RequestEntityTooLarge"),
            (
                "HTTP/1.1 431 Request Header Fields Too Large\r\n\r\n",
                "HTTP/1.1 431 Request Header Fields Too Large",
                "RequestEntityTooLarge",
            ),
            ("", "HTTP/1.1 400 Bad Request", "BadRequest"),
        ] {
            let answer = String::from_utf8(answer(own.as_bytes())).unwrap();
            let (head, body) = answer.split_once("\r\n\r\n").unwrap();
            assert!(head.starts_with(&format!("{status_line}\r\n")), "{head}");
            assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
            assert!(head.contains("connection: close"), "{head}");
            let status: serde_json::Value = serde_json::from_str(body).unwrap();
            assert_eq!((&status["kind"], &status["reason"]), (&"Status".into(), &reason.into()), "{body}");
        }
    }
}
