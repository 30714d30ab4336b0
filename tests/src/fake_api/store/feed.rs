//! One watch of a collection, event by event.

use std::collections::VecDeque;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio::time::Instant;

use super::request::WatchRequest;
use super::{Store, line, status};
use crate::fake_api::gate::{Gate, Moment};

/// The annotation of the bookmark that ends the initial events.
const INITIAL_EVENTS_END: &str = "k8s.io/initial-events-end";

/// The remaining events of one watch.
#[derive(Debug)]
pub(in crate::fake_api) struct StoreFeed {
    store: Store,
    changes: watch::Receiver<u64>,
    /// The initial events, before any change.
    first: VecDeque<Bytes>,
    /// The resource version up to which changes were sent.
    sent: u64,
    /// Bookmarks that were sent, or requested before; `None` where they are not wanted.
    bookmarks: Option<u64>,
    ends_at: Option<Instant>,
    /// True if the feed ends once `first` is sent.
    is_over: bool,
    gate: Option<Gate>,
    /// The rest of an event that waits at the gate.
    rest: Option<Bytes>,
}

impl StoreFeed {
    pub(super) fn new(store: &Store, question: &WatchRequest) -> Self {
        // Subscribed before the first look, so that no change falls in between.
        let changes = store.0.changed.subscribe();
        let history = store.history();
        let mut first = VecDeque::new();
        let mut is_over = false;
        let sent = match question.from.filter(|_| !question.send_initial_events) {
            Some(from) if history.is_compacted(from) => {
                let message = format!("too old resource version: {from} ({})", history.revision());
                first.push_back(line("ERROR", &status(410, "Failure", "Expired", &message)));
                is_over = true;
                from
            }
            Some(from) => from,
            None => {
                first.extend(history.objects().map(|object| line("ADDED", object)));
                if question.send_initial_events && question.allow_bookmarks {
                    first.push_back(bookmark(history.revision(), true));
                }
                history.revision()
            }
        };
        let bookmarks = question.allow_bookmarks.then(|| history.bookmarks());
        drop(history);
        let ends_at = question.lasts.map(|lasts| Instant::now() + lasts);
        Self {
            store: store.clone(),
            changes,
            first,
            sent,
            bookmarks,
            ends_at,
            is_over,
            gate: None,
            rest: None,
        }
    }

    /// Makes the watch wait at a gate: in the middle of the next event, or between two.
    pub(in crate::fake_api) fn hold_at(&mut self, gate: Option<Gate>) {
        self.gate = gate.filter(|gate| gate.moment() != Moment::BeforeHead);
    }

    /// Returns the next bytes, or `None` at the watch's end. A feed that is dropped while it waits for its gate is cut off there.
    pub(in crate::fake_api) async fn next(&mut self) -> Option<Bytes> {
        loop {
            if let Some(rest) = self.rest.take() {
                if let Some(gate) = self.gate.take() {
                    gate.pass().await;
                }
                if rest.is_empty() {
                    continue; // An empty chunk would be the end.
                }
                return Some(rest);
            }
            if let Some(line) = self.due() {
                return Some(self.first_half(line));
            }
            if self.is_over {
                return None;
            }
            if !self.changed().await {
                return None;
            }
        }
    }

    fn due(&mut self) -> Option<Bytes> {
        self.changes.borrow_and_update();
        if let Some(line) = self.first.pop_front() {
            return Some(line);
        }
        if self.is_over {
            return None;
        }
        let history = self.store.history();
        if let Some(one) = history.after(self.sent) {
            self.sent = one.revision;
            return Some(one.line.clone());
        }
        let sent = self.bookmarks.as_mut()?;
        if *sent == history.bookmarks() {
            return None;
        }
        *sent = history.bookmarks();
        Some(bookmark(history.revision(), false))
    }

    /// The line, or its first half where a gate is in its middle.
    fn first_half(&mut self, mut line: Bytes) -> Bytes {
        if self.gate.is_none() {
            return line;
        }
        let is_mid = self.gate.as_ref().is_some_and(|gate| gate.moment() == Moment::MidBody);
        let half = if is_mid { line.len() / 2 } else { line.len() };
        self.rest = Some(line.split_off(half));
        line
    }

    /// Waits for a change; false at the watch's own end.
    async fn changed(&mut self) -> bool {
        let Some(ends_at) = self.ends_at else {
            let _ = self.changes.changed().await; // The sender lives in `store`.
            return true;
        };
        tokio::time::timeout_at(ends_at, self.changes.changed()).await.is_ok()
    }
}

fn bookmark(revision: u64, ends_initial_events: bool) -> Bytes {
    let mut metadata = json!({ "resourceVersion": revision.to_string(), "creationTimestamp": null });
    if ends_initial_events {
        metadata["annotations"] = json!({ INITIAL_EVENTS_END: "true" });
    }
    let object: Value = json!({ "kind": "ConfigMap", "apiVersion": "v1", "metadata": metadata });
    line("BOOKMARK", &object)
}
