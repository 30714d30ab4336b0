//! A limit lasts as long as what it limits: what an exchange occupies rides in its bodies, to the last byte.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use daemon::metrics::exchanges::Active;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::exchanges::audit::AuditEntry;

/// A body that holds `T` until it is dropped.
pub(super) struct GuardedBody<B, T> {
    // Before what it holds: the place is free once the body is gone.
    body: B,
    guard: T,
}

/// One of the places that [`EXCHANGES_MAX`](crate::shares::EXCHANGES_MAX) gives. Clones are the same place, free again when all
/// of them are dropped.
#[derive(Clone)]
pub(super) struct RequestSlot {
    _permit: Arc<OwnedSemaphorePermit>,
    active: Arc<Active>,
    record: Arc<OnceLock<AuditEntry>>,
}

impl<B, T> GuardedBody<B, T> {
    pub(super) fn new(body: B, guard: T) -> Self {
        Self { body, guard }
    }

    /// What it holds.
    pub(super) fn guard(&self) -> &T {
        &self.guard
    }
}

impl RequestSlot {
    /// Takes a place for a request, which counts as active while it is held, if one is left.
    pub(super) fn take(slots: &Arc<Semaphore>, active: &Arc<Active>) -> Option<Self> {
        let permit = Arc::clone(slots).try_acquire_owned().ok()?;
        Some(Self { _permit: Arc::new(permit), active: Arc::clone(active), record: Arc::default() })
    }

    /// Keeps what the audit log knows of the request to its end.
    pub(super) fn set_audit_entry(&self, record: AuditEntry) {
        // A request is recorded once.
        let _ = self.record.set(record);
    }

    /// What the audit log knows of the request.
    pub(super) fn audit_entry(&self) -> Option<&AuditEntry> {
        self.record.get()
    }

    /// How the request is count_bytes.
    pub(super) fn active(&self) -> &Active {
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
