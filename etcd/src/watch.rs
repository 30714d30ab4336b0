//! A watch over a range of keys that goes on at the next revision, whatever breaks in between.

use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::sleep;
use tonic::metadata::MetadataValue;
use tonic::{Request, Status, Streaming};
use tracing::debug;

use crate::client::Client;
use crate::error::TryError;
use crate::keys::{KeyRange, Revision};
use crate::rpc::event::EventType;
use crate::rpc::watch_client::WatchClient;
use crate::rpc::watch_request::RequestUnion;
use crate::rpc::{WatchCreateRequest, WatchProgressRequest, WatchRequest, WatchResponse};

/// Progress requests that can wait for their turn to be sent.
const REQUESTS_MAX: usize = 4;

/// The wait before a broken watch is opened again.
const REOPEN_PAUSE: Duration = Duration::from_millis(100);

/// A change of one key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// The key.
    pub key: Vec<u8>,
    /// The new value, or `None` if the key was removed.
    pub value: Option<Vec<u8>>,
    /// The revision of the change.
    pub revision: Revision,
}

/// An update that a watch tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchUpdate {
    /// Changes, in the order of their revisions. All changes of one revision come together.
    Changes(Vec<Change>),
    /// All changes up to this revision have been told.
    Complete(Revision),
}

/// The watch cannot go on, because etcd has compacted the next revision. Read everything anew, and watch from there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("etcd has compacted its history up to revision {}", .0.0)]
pub struct Compacted(pub Revision);

/// A watch. It ends when it is dropped.
#[derive(Debug)]
pub struct Watch {
    client: Client,
    range: KeyRange,
    next: Revision,
    /// The number of the member to ask, counted from the one that answered last.
    turn: usize,
    stream: Option<OpenStream>,
}

#[derive(Debug)]
struct OpenStream {
    requests: mpsc::Sender<WatchRequest>,
    answers: Streaming<WatchResponse>,
    /// The parts of an answer that is too long for one message.
    fragments: Vec<Change>,
}

impl Client {
    /// Watches a range for changes after `revision`. Connects when it is first asked.
    #[must_use]
    pub fn watch(&self, range: KeyRange, revision: Revision) -> Watch {
        let next = Revision(revision.0 + 1);
        Watch { client: self.clone(), range, next, turn: 0, stream: None }
    }
}

impl Watch {
    /// Waits for the next update. Breaks are mended without an end: no update is lost or told twice. Cancel-safe.
    ///
    /// # Errors
    /// [`Compacted`].
    pub async fn next(&mut self) -> Result<WatchUpdate, Compacted> {
        loop {
            let answer = match &mut self.stream {
                Some(stream) => stream.answers.message().await,
                None => {
                    match self.open().await {
                        Ok(stream) => self.stream = Some(stream),
                        Err(error) => self.broken(&error).await,
                    }
                    continue;
                }
            };
            match answer {
                Ok(Some(answer)) => {
                    if let Some(update) = self.update(answer).await? {
                        return Ok(update);
                    }
                }
                Ok(None) => self.broken(&TryError::Status(Status::unavailable("the watch ended"))).await,
                Err(status) => self.broken(&TryError::Status(status)).await,
            }
        }
    }

    /// Asks for [`WatchUpdate::Complete`]. Without an open stream nothing is asked.
    pub fn request_progress(&self) {
        if let Some(stream) = &self.stream {
            let request = RequestUnion::ProgressRequest(WatchProgressRequest {});
            // If others wait already, one answer serves them all.
            let _ = stream.requests.try_send(WatchRequest { request_union: Some(request) });
        }
    }

    async fn open(&self) -> Result<OpenStream, TryError> {
        let create = WatchCreateRequest {
            key: self.range.key.clone(),
            range_end: self.range.end.clone(),
            start_revision: self.next.0,
            progress_notify: true,
            fragment: true,
        };
        let create = WatchRequest { request_union: Some(RequestUnion::CreateRequest(create)) };
        let opened = self.client.open_stream(self.turn, |channel| {
            let create = create.clone();
            async move {
                let (requests, to_send) = mpsc::channel(REQUESTS_MAX);
                let mut request = Request::new(Requests { first: Some(create), to_send });
                // Without a leader the member ends the stream, and would be silent else.
                request.metadata_mut().insert("hasleader", MetadataValue::from_static("true"));
                let answers = WatchClient::new(channel).watch(request).await?.into_inner();
                Ok((requests, answers))
            }
        });
        let (endpoint, (requests, answers)) = opened.await?;
        debug!(%endpoint, from = self.next.0, "watching etcd");
        Ok(OpenStream { requests, answers, fragments: Vec::new() })
    }

    async fn broken(&mut self, error: &TryError) {
        debug!(%error, next = self.next.0, "the watch of etcd broke, and is opened again");
        self.stream = None;
        self.turn = self.turn.wrapping_add(1);
        sleep(REOPEN_PAUSE).await;
    }

    async fn update(&mut self, answer: WatchResponse) -> Result<Option<WatchUpdate>, Compacted> {
        let revision = Revision(answer.header.map_or(0, |header| header.revision));
        if answer.canceled {
            if answer.compact_revision > 0 {
                return Err(Compacted(Revision(answer.compact_revision)));
            }
            self.broken(&TryError::Status(Status::unavailable(answer.cancel_reason))).await;
            return Ok(None);
        }
        let Some(stream) = &mut self.stream else { return Ok(None) };
        if answer.created {
            return Ok(None);
        }
        if answer.events.is_empty() {
            // Every change before the answer's revision was told: such an answer tells of no change itself.
            let is_complete = stream.fragments.is_empty() && revision.0 + 1 >= self.next.0;
            return Ok(is_complete.then_some(WatchUpdate::Complete(revision)));
        }
        let changes = answer.events.into_iter().filter_map(|event| {
            let is_removed = event.r#type() == EventType::Delete;
            let found = event.kv?;
            let value = (!is_removed).then_some(found.value);
            Some(Change { key: found.key, value, revision: Revision(found.mod_revision) })
        });
        stream.fragments.extend(changes);
        if answer.fragment {
            return Ok(None);
        }
        let changes = std::mem::take(&mut stream.fragments);
        if let Some(last) = changes.last() {
            self.next = Revision(last.revision.0 + 1);
        }
        Ok(Some(WatchUpdate::Changes(changes)))
    }
}

/// The messages to the member: the watch's creation, and then progress requests.
struct Requests {
    first: Option<WatchRequest>,
    to_send: mpsc::Receiver<WatchRequest>,
}

impl tonic::codegen::tokio_stream::Stream for Requests {
    type Item = WatchRequest;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        context: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<WatchRequest>> {
        match self.first.take() {
            Some(first) => std::task::Poll::Ready(Some(first)),
            None => self.to_send.poll_recv(context),
        }
    }
}
