//! Runs everything that an HTTP/2 connection needs in one task: the connection itself, and the bodies and
//! answers of its requests.
//!
//! The HTTP/2 library tells a request that it began while a GOAWAY arrived from one that the server has not
//! processed only if both do not happen at the same time, on two threads. So whether a write may be sent again
//! depends on this. It costs nothing, because tasks of one connection wait for each other anyway.

use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hyper::client::conn::http2;
use hyper::rt::Executor;
use hyper_util::rt::TokioIo;

use crate::apiserver::request_body::RequestBody;
use crate::apiserver::socket::Socket;

type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The executor of one connection. It takes tasks, which the connection's driver then runs.
#[derive(Clone, Default)]
pub(super) struct Http2Tasks(Arc<Mutex<Vec<Task>>>);

/// A connection of hyper's, whose tasks its driver runs.
type HyperConnection = http2::Connection<TokioIo<Socket>, RequestBody, Http2Tasks>;

/// A connection with its tasks. Ends once the connection takes no requests any more, and all tasks have ended.
pub(super) struct Http2Driver {
    /// `None` once it takes no requests any more. Its tasks do not end before it is dropped.
    connection: Option<Pin<Box<HyperConnection>>>,
    /// The result of the connection, once it takes no requests any more.
    ended: Result<(), hyper::Error>,
    tasks: FuturesUnordered<Task>,
    new_tasks: Http2Tasks,
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Http2Tasks {
    fn execute(&self, task: F) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(Box::pin(task));
    }
}

impl Http2Tasks {
    fn take(&self) -> Vec<Task> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

impl Http2Driver {
    /// Drives a connection that was made with this executor.
    pub(super) fn new(connection: HyperConnection, new_tasks: Http2Tasks) -> Self {
        let tasks = new_tasks.take().into_iter().collect();
        Self { connection: Some(Box::pin(connection)), ended: Ok(()), tasks, new_tasks }
    }

    /// The number of streams that the server allows at a time, as it last said. None on a connection that takes
    /// no requests any more.
    pub(super) fn granted_streams(&self) -> usize {
        self.connection.as_ref().map_or(0, |connection| connection.current_max_send_streams())
    }

    /// Runs the tasks that are ready. Returns true if none is left.
    fn poll_tasks(&mut self, cx: &mut Context<'_>) -> bool {
        loop {
            self.tasks.extend(self.new_tasks.take());
            match self.tasks.poll_next_unpin(cx) {
                Poll::Ready(Some(())) => {}
                Poll::Ready(None) => return true,
                Poll::Pending => return false,
            }
        }
    }
}

impl Future for Http2Driver {
    type Output = Result<(), hyper::Error>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Result<(), hyper::Error>> {
        let this = &mut *self;
        // Frames that have arrived come first: the connection then knows of a GOAWAY before it takes a request.
        this.poll_tasks(cx);
        if let Some(connection) = &mut this.connection
            && let Poll::Ready(ended) = connection.as_mut().poll(cx)
        {
            this.ended = ended;
            this.connection = None;
        }
        // Requests that it has taken are tasks now.
        let is_idle = this.poll_tasks(cx);
        if is_idle && this.connection.is_none() {
            return Poll::Ready(std::mem::replace(&mut this.ended, Ok(())));
        }
        Poll::Pending
    }
}
