//! Synchronizes requests and the fault: each request reports that it has reached its stage, and learns when
//! the fault begins and ends.

use std::time::Instant;

use tokio::sync::{mpsc, watch};

use super::code::Request;

/// A request's view of the fault's phases.
#[derive(Debug, Clone)]
pub struct FaultPhases {
    ready_sender: mpsc::Sender<Request>,
    begun: watch::Receiver<Option<Instant>>,
    ended: watch::Receiver<Option<Instant>>,
}

/// The controller of the fault's phases.
#[derive(Debug)]
pub struct FaultController {
    phases: FaultPhases,
    ready_receiver: mpsc::Receiver<Request>,
    begun: watch::Sender<Option<Instant>>,
    ended: watch::Sender<Option<Instant>>,
}

impl FaultPhases {
    /// Reports that a request has reached its stage.
    pub async fn ready(&self, request: Request) {
        let _ = self.ready_sender.send(request).await; // Fails only when the trial is over.
    }

    /// Waits until the fault begins.
    pub async fn begun(&self) -> Instant {
        wait_for(self.begun.clone()).await
    }

    /// Waits for the fault's end.
    pub async fn ended(&self) -> Instant {
        wait_for(self.ended.clone()).await
    }

    /// The time when the fault has ended, if it has.
    pub fn has_ended(&self) -> Option<Instant> {
        *self.ended.borrow()
    }
}

impl FaultController {
    /// For a number of requests.
    pub fn new(requests: usize) -> Self {
        let (ready_sender, ready_receiver) = mpsc::channel(requests.max(1));
        let ((begun, begun_receiver), (ended, ended_receiver)) = (watch::channel(None), watch::channel(None));
        Self {
            phases: FaultPhases { ready_sender, begun: begun_receiver, ended: ended_receiver },
            ready_receiver,
            begun,
            ended,
        }
    }

    /// A view for one request.
    pub fn phases(&self) -> FaultPhases {
        self.phases.clone()
    }

    /// Waits for the next request that has reached its stage.
    pub async fn next(&mut self) -> Option<Request> {
        self.ready_receiver.recv().await
    }

    /// Announces that the fault has begun.
    pub fn begin(&self) -> Instant {
        announce(&self.begun)
    }

    /// Announces that the fault has ended.
    pub fn end(&self) -> Instant {
        announce(&self.ended)
    }
}

async fn wait_for(mut cue: watch::Receiver<Option<Instant>>) -> Instant {
    match cue.wait_for(Option::is_some).await.map(|at| *at) {
        Ok(Some(at)) => at,
        // The controller is gone, and nobody waits for the result.
        _ => std::future::pending().await,
    }
}

fn announce(cue: &watch::Sender<Option<Instant>>) -> Instant {
    let now = Instant::now();
    cue.send_replace(Some(now));
    now
}
