//! The body of a watch's answer: the events of one stream, and of the next where that one was lost with its tunnel.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use proto::AbortCode;
use proto::session::Health;
use tracing::info;
use transport::TunnelEnded;

use super::Watch;
use super::again::{Outcome, written};
use super::relay::Relay;
use super::safe_point::Unsafe;
use crate::exchanges::Ended;
use crate::gateway::body::Passed;
use crate::gateway::forward::{Answered, Source};
use crate::limits::LimitGuard;
use crate::metrics::{self, ParkedWatch, WatchEnded};

/// A watch's events on their way to its caller. Dropped before its end, it abandons whatever it is about.
pub(in crate::gateway) struct Watched {
    watch: Arc<Watch>,
    relay: Relay,
    state: State,
    _share: LimitGuard,
}

enum State {
    /// Events come.
    Goes(Going),
    /// The tunnel was lost; another one is waited for.
    Parked { again: Again, _parked: ParkedWatch },
    /// Nothing comes any more.
    Over,
}

/// A stream of events.
struct Going {
    passed: Passed,
    source: Source,
    /// Resolves when the watch is better begun again over another tunnel.
    moves: Option<Moves>,
}

type Again = Pin<Box<dyn Future<Output = Outcome> + Send>>;
type Moves = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The next piece for the caller, or nothing any more.
type Piece = Option<Result<Frame<Bytes>, hyper::Error>>;

impl Watched {
    pub(super) fn new(
        watch: Arc<Watch>,
        relay: Relay,
        passed: Passed,
        source: Source,
        share: LimitGuard,
    ) -> Self {
        let state = State::Goes(Going::of(&watch, passed, source));
        Self { watch, relay, state, _share: share }
    }

    /// The next piece. One poll of each stream or wait, until there is one.
    pub(in crate::gateway) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        loop {
            let piece = match &mut self.state {
                State::Goes(_) => ready!(self.poll_stream(cx)),
                State::Parked { again, .. } => {
                    let outcome = ready!(again.as_mut().poll(cx));
                    self.begin_again(outcome)
                }
                State::Over => return Poll::Ready(None),
            };
            if let Some(piece) = piece {
                return Poll::Ready(Some(piece));
            }
        }
    }

    /// What the stream brings; `None` where the next state says more.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        let State::Goes(going) = &mut self.state else { return Poll::Ready(None) };
        let Poll::Ready(frame) = going.passed.poll_frame(cx) else {
            ready!(going.poll_moves(cx));
            // Whoever cannot be begun again stays where it is: the tunnel may come back.
            going.moves = None;
            return if self.relay.safe_point().is_ok() { Poll::Ready(self.park()) } else { Poll::Pending };
        };
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    if going.moves.is_none() {
                        going.moves = Some(moves(&self.watch, &going.source));
                    }
                    of(self.relay.pass(&data))
                }
                Err(trailers) => Some(Ok(trailers)),
            },
            None => {
                self.state = State::Over;
                of(self.relay.rest())
            }
            Some(Err(error)) if !going.source.is_lost(&error) => self.end(error, None),
            Some(Err(error)) => match self.relay.safe_point() {
                Ok(_) => self.park(),
                Err(reason) => self.end(error, Some(reason)),
            },
        })
    }

    /// Ends it with an ERROR event; `None` within an event that has begun to pass, where none can stand.
    pub(in crate::gateway) fn cut(&mut self, why: Ended) -> Option<Bytes> {
        self.state = State::Over;
        let status = written(&why.into(), self.relay.encoding());
        self.relay.is_between_events().then(|| self.relay.fail(&status))
    }

    /// Ends as the stream did.
    fn end(&mut self, error: hyper::Error, reason: Option<Unsafe>) -> Piece {
        if let Some(reason) = reason {
            metrics::watch_ended(reason.into());
            let cluster = self.watch.action.cluster();
            info!(%cluster, %reason, "a watch ended with its tunnel");
        }
        self.state = State::Over;
        Some(Err(error))
    }

    fn park(&mut self) -> Piece {
        if let Ok(version) = self.relay.safe_point() {
            let again = Arc::clone(&self.watch).again(version.clone(), self.relay.encoding());
            self.state = State::Parked { again: Box::pin(again), _parked: ParkedWatch::begin() };
        }
        None
    }

    fn begin_again(&mut self, outcome: Outcome) -> Piece {
        match outcome {
            Outcome::Goes(answered) => {
                let Answered { response, source } = *answered;
                metrics::watch_resumed();
                self.state = State::Goes(Going::of(&self.watch, response.into_body(), source));
                of(self.relay.begin_again())
            }
            Outcome::Refused(reason, status) => {
                metrics::watch_ended(reason);
                self.state = State::Over;
                of(self.relay.fail(&status))
            }
            // As the API server ends a watch: whoever watches goes on from where it was.
            Outcome::Over => {
                metrics::watch_ended(WatchEnded::TimedOut);
                self.state = State::Over;
                None
            }
            Outcome::Stopping => {
                metrics::watch_ended(WatchEnded::Stopping);
                self.state = State::Over;
                None
            }
        }
    }
}

impl Going {
    fn of(watch: &Arc<Watch>, passed: Passed, source: Source) -> Self {
        let moves = Some(moves(watch, &source));
        Self { passed, source, moves }
    }

    fn poll_moves(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.moves.as_mut().map_or(Poll::Pending, |moves| moves.as_mut().poll(cx))
    }
}

impl Source {
    /// Whether what broke was the tunnel, or the agent at its far end; not the API server, nor this server.
    fn is_lost(&self, error: &hyper::Error) -> bool {
        // A stream may know before its tunnel does.
        let is_gone = self.route.tunnel.health() == Health::Lost || is_of_tunnel(error);
        match self.verdict.heard() {
            None => is_gone,
            // An agent that stops cuts off what is left at its deadline.
            Some(AbortCode::Abandoned | AbortCode::Draining) => is_gone || self.route.tunnel.is_draining(),
            Some(_) => false,
        }
    }
}

impl From<Unsafe> for WatchEnded {
    fn from(reason: Unsafe) -> Self {
        match reason {
            Unsafe::NotYet => Self::NoSafePoint,
            Unsafe::Query => Self::UnclearQuery,
            Unsafe::TooLarge => Self::EventTooLarge,
            Unsafe::NoRoom => Self::NoRoom,
            Unsafe::NotAnEvent => Self::NotAnEvent,
            Unsafe::Unordered => Self::Unordered,
            Unsafe::Ended => Self::ErrorEvent,
        }
    }
}

/// Whether the end of a tunnel stands behind an error.
fn is_of_tunnel(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if error.is::<TunnelEnded>() {
            return true;
        }
        let inside = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        next = match inside {
            Some(inside) => Some(inside),
            None => error.source(),
        };
    }
    false
}

/// Resolves when `source` is silent while another tunnel of its cluster is not, for long enough; or its agent stops, and
/// another one is there.
fn moves(watch: &Arc<Watch>, source: &Source) -> Moves {
    let (watch, route) = (Arc::clone(watch), source.route.clone());
    Box::pin(async move {
        let (registry, cluster) = (&watch.gateway.0.passage.registry, watch.action.cluster());
        // Both arms are cancel-safe: they only look.
        tokio::select! {
            () = registry.stable_elsewhere(cluster, &route) => {}
            () = registry.successor_ready(cluster, &route) => {}
        }
    })
}

fn of(bytes: Bytes) -> Piece {
    (!bytes.is_empty()).then(|| Ok(Frame::data(bytes)))
}
