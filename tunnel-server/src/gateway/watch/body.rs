//! The body of a watch's answer: the events of one stream, and of the next one after its tunnel was lost.

use std::error::Error;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::Frame;
use proto::AbortCode;
use proto::session::Health;
use tokio::task::coop;
use tokio::time::sleep;
use tracing::info;
use transport::TunnelEnded;

use super::relay::Relay;
use super::resumable::ResumableWatch;
use super::resume::{ResumeOutcome, encode_status};
use super::resume_point::NotResumable;
use crate::exchanges::TerminationReason;
use crate::forwarding::exchange::{ResponseSource, TunnelResponse};
use crate::forwarding::tunnel_body::TunnelBody;
use crate::gateway::body_error::BodyError;
use crate::gateway::event_delay::EventDelay;
use crate::limits::LimitGuard;
use crate::metrics::{self, ParkedWatch, WatchEnded};

/// The events of a watch on their way to its caller. Dropped before its end, it abandons its stream or its
/// wait.
pub(in crate::gateway) struct WatchBody {
    watch: Arc<ResumableWatch>,
    relay: Relay,
    state: WatchState,
    /// Resolves when the watch ends because this server drains; `None` if no other server shares its records.
    leaves: Option<MoveFuture>,
    _limit_guard: LimitGuard,
}

enum WatchState {
    /// A stream brings the watch's events.
    Streaming(EventStream),
    /// The tunnel was lost, and the watch waits for another one.
    Parked { resume: ResumeFuture, _parked: ParkedWatch },
    /// The watch was not resumed, and an ERROR event says why. The body is broken off once it has left.
    Breaking(EventDelay, WatchEnded),
    /// The watch has ended, and its body too.
    Ended,
}

/// A stream of a tunnel that brings events.
struct EventStream {
    body: TunnelBody,
    source: ResponseSource,
    /// Resolves when the watch should be resumed over another tunnel.
    moves: Option<MoveFuture>,
}

type ResumeFuture = Pin<Box<dyn Future<Output = ResumeOutcome> + Send>>;
type MoveFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The next piece for the caller. `None` at the end, or where the next state has more.
type Piece = Option<Result<Frame<Bytes>, BodyError>>;

impl WatchBody {
    pub(super) fn new(
        watch: Arc<ResumableWatch>,
        relay: Relay,
        body: TunnelBody,
        source: ResponseSource,
        limit_guard: LimitGuard,
    ) -> Self {
        let state = WatchState::Streaming(EventStream::new(&watch, body, source));
        let leaves = leaves(&watch);
        Self { watch, relay, state, leaves, _limit_guard: limit_guard }
    }

    /// Polls for the next piece: each stream or wait once, until there is one.
    pub(in crate::gateway) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        let polled = self.poll_piece(cx);
        // Only between two pieces, so that a busy watch does not look for the end with each of them.
        if polled.is_pending() && self.poll_leave(cx) {
            return Poll::Ready(None);
        }
        polled
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        loop {
            // Bookmarks that are kept back make no piece, so their loop has to yield.
            let unit = ready!(coop::poll_proceed(cx));
            let piece = match &mut self.state {
                WatchState::Streaming(_) => ready!(self.poll_stream(cx)),
                WatchState::Parked { resume, .. } => {
                    let outcome = ready!(resume.as_mut().poll(cx));
                    self.resume(outcome)
                }
                WatchState::Breaking(delay, reason) => {
                    ready!(delay.poll(cx));
                    let error = BodyError::NotResumed(*reason);
                    self.state = WatchState::Ended;
                    Some(Err(error))
                }
                WatchState::Ended => return Poll::Ready(None),
            };
            unit.made_progress();
            if let Some(piece) = piece {
                return Poll::Ready(Some(piece));
            }
        }
    }

    /// Ends the watch if it is time to leave this server. Its caller has all complete events so far, and goes on from there.
    fn poll_leave(&mut self, cx: &mut Context<'_>) -> bool {
        if !self.leaves.as_mut().is_some_and(|leaves| leaves.as_mut().poll(cx).is_ready()) {
            return false;
        }
        self.leaves = None;
        let runs = matches!(self.state, WatchState::Streaming(_) | WatchState::Parked { .. });
        // Half a large event has left otherwise, and its rest must follow.
        let ends = runs && self.relay.is_between_events();
        if ends {
            self.state = WatchState::Ended;
        }
        ends
    }

    /// Polls the stream. The piece is `None` where the next state has more.
    fn poll_stream(&mut self, cx: &mut Context<'_>) -> Poll<Piece> {
        let WatchState::Streaming(stream) = &mut self.state else { return Poll::Ready(None) };
        let Poll::Ready(frame) = stream.body.poll_frame(cx) else {
            ready!(stream.poll_moves(cx));
            // A watch that cannot be resumed stays on its tunnel, which may recover.
            stream.moves = None;
            return if self.relay.resume_point().is_ok() { Poll::Ready(self.park()) } else { Poll::Pending };
        };
        Poll::Ready(match frame {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(data) => {
                    if stream.moves.is_none() {
                        stream.moves = Some(moves(&self.watch, &stream.source));
                    }
                    data_frame(self.relay.pass(&data))
                }
                Err(trailers) => Some(Ok(trailers)),
            },
            None => {
                self.state = WatchState::Ended;
                data_frame(self.relay.rest())
            }
            Some(Err(error)) if !stream.source.is_lost(&error) => self.end(error, None),
            Some(Err(error)) => match self.relay.resume_point() {
                Ok(_) => self.park(),
                Err(reason) => self.end(error, Some(reason)),
            },
        })
    }

    /// Ends the watch with an ERROR event. `None` inside an event that has begun to pass, where no other
    /// event can be, and behind an ERROR event.
    pub(in crate::gateway) fn end_early(&mut self, why: TerminationReason) -> Option<Bytes> {
        let is_over = matches!(self.state, WatchState::Breaking(..) | WatchState::Ended);
        self.state = WatchState::Ended;
        if is_over {
            return None;
        }
        let status = encode_status(&why.into(), self.relay.encoding());
        self.relay.is_between_events().then(|| self.relay.fail(&status))
    }

    /// Ends the watch with the error of its stream. `reason` says why it is not resumed, if its tunnel was
    /// lost.
    fn end(&mut self, error: hyper::Error, reason: Option<NotResumable>) -> Piece {
        if let Some(reason) = reason {
            metrics::watch_ended(reason.into());
            let cluster = self.watch.action.cluster();
            info!(%cluster, %reason, "a watch ended with its tunnel");
        }
        self.state = WatchState::Ended;
        Some(Err(error.into()))
    }

    /// Begins to wait for another tunnel.
    fn park(&mut self) -> Piece {
        if let Ok(version) = self.relay.resume_point() {
            let resume = Arc::clone(&self.watch).resume(version.clone(), self.relay.encoding());
            self.state = WatchState::Parked { resume: Box::pin(resume), _parked: ParkedWatch::begin() };
        }
        None
    }

    /// Continues after the wait for another tunnel.
    fn resume(&mut self, outcome: ResumeOutcome) -> Piece {
        match outcome {
            ResumeOutcome::Resumed(answer) => {
                let TunnelResponse { response, source } = *answer;
                metrics::watch_resumed();
                self.state =
                    WatchState::Streaming(EventStream::new(&self.watch, response.into_body(), source));
                data_frame(self.relay.resume())
            }
            ResumeOutcome::Refused(reason, status) => {
                metrics::watch_ended(reason);
                // The API server has ended an answered one, and ends a watch so itself.
                let is_clean = matches!(reason, WatchEnded::Answered);
                self.state = if is_clean {
                    WatchState::Ended
                } else {
                    WatchState::Breaking(EventDelay::begin(), reason)
                };
                data_frame(self.relay.fail(&status))
            }
            // Events may be missing, so a clean end would be taken for all that there were.
            ResumeOutcome::TimedOut => self.break_off(WatchEnded::TimedOut),
            ResumeOutcome::Stopping => self.break_off(WatchEnded::Stopping),
        }
    }

    /// Ends a watch that was not resumed with an error of its body.
    fn break_off(&mut self, reason: WatchEnded) -> Piece {
        metrics::watch_ended(reason);
        self.state = WatchState::Ended;
        Some(Err(BodyError::NotResumed(reason)))
    }
}

impl EventStream {
    fn new(watch: &Arc<ResumableWatch>, body: TunnelBody, source: ResponseSource) -> Self {
        let moves = Some(moves(watch, &source));
        Self { body, source, moves }
    }

    fn poll_moves(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        self.moves.as_mut().map_or(Poll::Pending, |moves| moves.as_mut().poll(cx))
    }
}

impl ResponseSource {
    /// Returns true if the tunnel or its agent broke, and not the API server or this server.
    fn is_lost(&self, error: &hyper::Error) -> bool {
        // A stream may notice the loss before its tunnel does.
        let is_gone = self.route.health() == Health::Lost || is_of_tunnel(error);
        match self.abort_codes.peer_code() {
            None => is_gone,
            // Another server had it.
            Some(AbortCode::TunnelLost) => true,
            // A stopping agent aborts the remaining streams at its deadline.
            Some(AbortCode::Abandoned | AbortCode::Draining) => is_gone || self.route.is_draining(),
            Some(_) => false,
        }
    }
}

impl From<NotResumable> for WatchEnded {
    fn from(reason: NotResumable) -> Self {
        match reason {
            NotResumable::NotYet => Self::NoSafePoint,
            NotResumable::Query => Self::UnclearQuery,
            NotResumable::TooLarge => Self::EventTooLarge,
            NotResumable::OverBudget => Self::NoRoom,
            NotResumable::NotAnEvent => Self::NotAnEvent,
            NotResumable::Unordered => Self::Unordered,
            NotResumable::ErrorEvent => Self::ErrorEvent,
        }
    }
}

/// Returns true if the end of a tunnel caused the error.
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

/// Resolves when `source` is silent and its agent answers over another tunnel, when it was silent for long enough
/// while a tunnel of another agent was not, or when its agent stops and another one is connected.
fn moves(watch: &Arc<ResumableWatch>, source: &ResponseSource) -> MoveFuture {
    let (watch, route, stream) = (Arc::clone(watch), source.route.clone(), source.stream);
    Box::pin(async move {
        let (registry, cluster) = (&watch.gateway.0.forwarding.registry, watch.action.cluster());
        // All arms are cancel-safe: they only observe the registry.
        tokio::select! {
            // Its agent answers over another tunnel.
            _ = route.fate(stream) => {}
            () = registry.stable_elsewhere(cluster, &route) => {}
            () = registry.successor_ready(cluster, &route) => {}
        }
    })
}

/// Resolves some time after a drain has begun, if servers share their records and so serve the same clusters.
fn leaves(watch: &ResumableWatch) -> Option<MoveFuture> {
    let shared = &watch.gateway.0;
    if !shared.forwarding.registry.directory().is_shared() {
        return None;
    }
    let (draining, after) = (shared.forwarding.scope.draining(), shared.watches.end_in_drain());
    Some(Box::pin(async move {
        draining.await;
        sleep(after).await;
    }))
}

fn data_frame(bytes: Bytes) -> Piece {
    (!bytes.is_empty()).then(|| Ok(Frame::data(bytes)))
}
