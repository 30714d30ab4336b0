//! Gives each request an `Audit-ID`, and removes an invalid one.

use http::{HeaderValue, Request};
use proto::headers;
use tower_http::request_id::{MakeRequestId, RequestId};
use uuid::Uuid;

use crate::forwarding::audit_id::AUDIT_ID;

/// Makes an ID for an exchange whose caller has sent none.
#[derive(Clone)]
pub(super) struct NewAuditId;

impl MakeRequestId for NewAuditId {
    fn make_request_id<B>(&mut self, _: &Request<B>) -> Option<RequestId> {
        HeaderValue::try_from(Uuid::now_v7().to_string()).ok().map(RequestId::new)
    }
}

/// Removes an `Audit-ID` that is malformed or was sent twice.
pub(super) fn keep_valid_audit_id<B>(mut request: Request<B>) -> Request<B> {
    let mut sent = request.headers().get_all(AUDIT_ID).iter();
    let (id, others) = (sent.next(), sent.next());
    if id.is_some_and(|id| others.is_some() || !headers::is_audit_id(id.as_bytes())) {
        request.headers_mut().remove(AUDIT_ID);
    }
    request
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_invalid_audit_id_is_removed() {
        for (sent, kept) in [(&["x"][..], 1), (&["x", "x"], 0), (&["a b"], 0), (&[""], 0), (&[], 0)] {
            let mut request = Request::new(());
            for id in sent {
                request.headers_mut().append(AUDIT_ID, HeaderValue::from_static(id));
            }
            assert_eq!(keep_valid_audit_id(request).headers().len(), kept, "{sent:?}");
        }
    }
}
