//! How requests and the fault find their moments: each request says that it stands where it should, and learns when the fault
//! begins and ends.

use std::time::Instant;

use tokio::sync::{mpsc, watch};

use super::code::Request;

/// What a request is given.
#[derive(Debug, Clone)]
pub struct FaultPhases {
    stands: mpsc::Sender<Request>,
    begun: watch::Receiver<Option<Instant>>,
    ended: watch::Receiver<Option<Instant>>,
}

/// What the one who makes the fault has.
#[derive(Debug)]
pub struct FaultController {
    cues: FaultPhases,
    standing: mpsc::Receiver<Request>,
    begun: watch::Sender<Option<Instant>>,
    ended: watch::Sender<Option<Instant>>,
}

impl FaultPhases {
    /// Says that a request stands where it should be when the fault begins.
    pub async fn stand(&self, request: Request) {
        let _ = self.stands.send(request).await; // Nobody waits any more: the trial is over.
    }

    /// Waits for the fault.
    pub async fn begun(&self) -> Instant {
        told(self.begun.clone()).await
    }

    /// Waits for the fault's end.
    pub async fn ended(&self) -> Instant {
        told(self.ended.clone()).await
    }

    /// When the fault has ended, if it has.
    pub fn has_ended(&self) -> Option<Instant> {
        *self.ended.borrow()
    }
}

impl FaultController {
    /// For a number of requests.
    pub fn new(requests: usize) -> Self {
        let (stands, standing) = mpsc::channel(requests.max(1));
        let ((begun, heard_begun), (ended, heard_ended)) = (watch::channel(None), watch::channel(None));
        Self { cues: FaultPhases { stands, begun: heard_begun, ended: heard_ended }, standing, begun, ended }
    }

    /// For one request.
    pub fn cues(&self) -> FaultPhases {
        self.cues.clone()
    }

    /// The next request that stands where it should.
    pub async fn next(&mut self) -> Option<Request> {
        self.standing.recv().await
    }

    /// The fault has begun.
    pub fn begin(&self) -> Instant {
        tell(&self.begun)
    }

    /// The fault has ended.
    pub fn end(&self) -> Instant {
        tell(&self.ended)
    }
}

async fn told(mut cue: watch::Receiver<Option<Instant>>) -> Instant {
    match cue.wait_for(Option::is_some).await.map(|at| *at) {
        Ok(Some(at)) => at,
        // The prompter is gone, and so is whoever wants to know.
        _ => std::future::pending().await,
    }
}

fn tell(cue: &watch::Sender<Option<Instant>>) -> Instant {
    let now = Instant::now();
    cue.send_replace(Some(now));
    now
}
