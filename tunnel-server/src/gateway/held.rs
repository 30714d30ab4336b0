//! A limit lasts as long as what it limits: what an exchange occupies rides in its bodies, to the last byte.

use std::pin::Pin;
use std::sync::{Arc, OnceLock};
use std::task::{Context, Poll};

use daemon::metrics::exchanges::Active;
use hyper::body::{Body, Frame, SizeHint};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::exchanges::record::Record;

/// A body that holds `T` until it is dropped.
pub(super) struct Held<B, T> {
    // Before what it holds: the place is free once the body is gone.
    body: B,
    held: T,
}

/// One of the places that [`EXCHANGES_MAX`](crate::limits::EXCHANGES_MAX) gives. Clones are the same place, free again when all
/// of them are dropped.
#[derive(Clone)]
pub(super) struct Slot {
    _place: Arc<OwnedSemaphorePermit>,
    active: Arc<Active>,
    record: Arc<OnceLock<Record>>,
}

impl<B, T> Held<B, T> {
    pub(super) fn new(body: B, held: T) -> Self {
        Self { body, held }
    }

    /// What it holds.
    pub(super) fn held(&self) -> &T {
        &self.held
    }
}

impl Slot {
    /// Takes a place for a request, which counts as active while it is held, if one is left.
    pub(super) fn take(slots: &Arc<Semaphore>, active: &Arc<Active>) -> Option<Self> {
        let permit = Arc::clone(slots).try_acquire_owned().ok()?;
        Some(Self { _place: Arc::new(permit), active: Arc::clone(active), record: Arc::default() })
    }

    /// Keeps what the audit log knows of the request to its end.
    pub(super) fn keep(&self, record: Record) {
        // A request is recorded once.
        let _ = self.record.set(record);
    }

    /// What the audit log knows of the request.
    pub(super) fn record(&self) -> Option<&Record> {
        self.record.get()
    }

    /// How the request is counted.
    pub(super) fn active(&self) -> &Active {
        &self.active
    }
}

impl<B: Body + Unpin, T: Unpin> Body for Held<B, T> {
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
