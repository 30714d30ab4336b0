//! The `Audit-ID` header, which names an exchange in the logs of the server, the agent and the API server.

use http::{HeaderName, Request};
use proto::headers;

/// The header that names an exchange.
pub(crate) const AUDIT_ID: HeaderName = HeaderName::from_static(headers::AUDIT_ID);

/// The ID of an exchange. The entry point has given each request one.
pub(crate) fn audit_id<B>(request: &Request<B>) -> &str {
    request.headers().get(AUDIT_ID).and_then(|id| id.to_str().ok()).unwrap_or_default()
}
