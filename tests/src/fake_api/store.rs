//! Objects with resource versions, with lists and watches of them, sufficient for a reflector.
//!
//! Everything emitted is recorded, so that a watcher's events can be compared with it exactly.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::record::Head;

mod feed;
mod history;
mod request;

pub use history::{Change, Emitted};

pub(super) use feed::StoreFeed;
use history::History;
use request::{StoreRequest, WatchRequest};

/// A collection of ConfigMaps of one namespace; clones are the same collection.
#[derive(Debug, Clone)]
pub struct Store(Arc<StoreState>);

#[derive(Debug)]
struct StoreState {
    history: Mutex<History>,
    /// Goes up with each change and each bookmark.
    changed: watch::Sender<u64>,
}

/// The answer of a collection to one request.
#[derive(Debug)]
pub(super) enum StoreReply {
    /// A status and a JSON body.
    Json(u16, Value),
    /// A body that stays open and sends the events of this feed.
    Watch(Box<StoreFeed>),
}

impl Store {
    /// A collection without any objects.
    pub fn new() -> Self {
        Self(Arc::new(StoreState { history: Mutex::default(), changed: watch::Sender::new(0) }))
    }

    /// Creates or changes an object, and returns its new resource version.
    pub fn put(&self, name: &str, mark: &str) -> u64 {
        self.change(|history| history.put(name, json!({ "mark": mark })))
    }

    /// Deletes an object, if it is there, and returns the resource version of that.
    pub fn delete(&self, name: &str) -> Option<u64> {
        self.change(|history| history.delete(name))
    }

    /// Forgets what happened up to a resource version: a watch from before it gets a 410.
    pub fn compact(&self, revision: u64) {
        self.history().compact(revision);
    }

    /// Sends a bookmark to every watch that allows them.
    pub fn bookmark(&self) {
        self.change(History::bookmark);
    }

    /// The resource version of the last change.
    pub fn revision(&self) -> u64 {
        self.history().revision()
    }

    /// Every change so far, in order.
    pub fn emitted(&self) -> Vec<Emitted> {
        self.history().emitted().to_vec()
    }

    /// Number of times that a mark was written, by any client.
    pub fn times_written(&self, mark: &str) -> usize {
        self.history().emitted().iter().filter(|one| one.mark == mark).count()
    }

    /// The answer to a request, whose body has been read.
    pub(super) fn reply(&self, head: &Head, body: &[u8]) -> StoreReply {
        match StoreRequest::of(&head.method, &head.target, body) {
            StoreRequest::List => StoreReply::Json(200, self.history().list()),
            StoreRequest::Get(name) => match self.history().object(&name) {
                Some(object) => StoreReply::Json(200, object),
                None => not_found(&name),
            },
            StoreRequest::Put { name, data, is_new } => {
                self.change(|history| history.put(&name, data));
                let object = self.history().object(&name).unwrap_or_default();
                StoreReply::Json(if is_new { 201 } else { 200 }, object)
            }
            StoreRequest::Delete(name) => match self.delete(&name) {
                Some(_) => StoreReply::Json(200, status(200, "Success", "", &name)),
                None => not_found(&name),
            },
            StoreRequest::Watch(question) => self.watch(&question),
            StoreRequest::Unknown(why) => StoreReply::Json(400, status(400, "Failure", "BadRequest", why)),
        }
    }

    fn watch(&self, question: &WatchRequest) -> StoreReply {
        StoreReply::Watch(Box::new(StoreFeed::new(self, question)))
    }

    fn change<T>(&self, change: impl FnOnce(&mut History) -> T) -> T {
        let result = change(&mut self.history());
        self.0.changed.send_modify(|count| *count += 1);
        result
    }

    fn history(&self) -> MutexGuard<'_, History> {
        self.0.history.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for Store {
    fn default() -> Self {
        Self::new()
    }
}

fn not_found(name: &str) -> StoreReply {
    StoreReply::Json(404, status(404, "Failure", "NotFound", &format!("configmaps {name:?} not found")))
}

fn status(code: u16, outcome: &str, reason: &str, message: &str) -> Value {
    json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": outcome, "reason": reason, "code": code,
        "message": message,
    })
}

/// A line of a watch.
fn line(kind: &str, object: &Value) -> Bytes {
    Bytes::from(format!("{}\n", json!({ "type": kind, "object": object })))
}
