//! Bodies that carry a guard, so that a limit counts an exchange until the last byte of its bodies.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use daemon::metrics::requests::ActiveRequest;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::complete_body::CompleteBody;
use crate::exchanges::audit::AuditEntry;

/// A body that keeps `guard` until it is dropped.
pub(super) struct GuardedBody<B, T> {
    // Dropped before the guard: the slot is free once the body is gone.
    body: B,
    guard: T,
}

/// The body of a caller's request as the stack passes it on.
pub(super) type CallerBody = GuardedBody<CompleteBody, RequestSlot>;

/// One of the `limits.server.requests` slots. Clones are the same slot, which is free
/// again when all of them are dropped.
#[derive(Clone)]
pub(super) struct RequestSlot {
    _permit: Arc<OwnedSemaphorePermit>,
    active: Arc<ActiveRequest>,
    audit_entry: Arc<OnceLock<AuditEntry>>,
}

impl<B, T> GuardedBody<B, T> {
    pub(super) fn new(body: B, guard: T) -> Self {
        Self { body, guard }
    }

    /// The guard that the body carries.
    pub(super) fn guard(&self) -> &T {
        &self.guard
    }
}

impl RequestSlot {
    /// Takes a slot for a request, if one is free. The request counts as active as long as the slot is taken.
    pub(super) fn take(slots: &Arc<Semaphore>, active: &Arc<ActiveRequest>) -> Option<Self> {
        let permit = Arc::clone(slots).try_acquire_owned().ok()?;
        Some(Self { _permit: Arc::new(permit), active: Arc::clone(active), audit_entry: Arc::default() })
    }

    /// Keeps the request's audit entry open until the request ends.
    pub(super) fn set_audit_entry(&self, entry: AuditEntry) {
        // A request has one audit entry.
        let _ = self.audit_entry.set(entry);
    }

    /// The request's audit entry, once its intent is written.
    pub(super) fn audit_entry(&self) -> Option<&AuditEntry> {
        self.audit_entry.get()
    }

    /// The metrics of the request.
    pub(super) fn active(&self) -> &ActiveRequest {
        &self.active
    }
}

impl<B: Body + Unpin, T: Unpin> Body for GuardedBody<B, T> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.get_mut().body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
