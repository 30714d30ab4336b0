//! A behaviour prepared for one request, in a form that both versions of HTTP can carry out.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast;

use super::behaviour::{Answer, Behaviour, BehaviourTable, Cut, Declared, Event};
use super::gate::{Gate, Moment};
use super::record::Head;
use super::store::{Store, StoreFeed, StoreReply};
use crate::process::Invocation;

/// The treatment of one request.
#[derive(Debug)]
pub(super) enum ResponsePlan {
    Reply(PlannedResponse),
    /// A reply that depends on the request's body.
    Ask(Store, Option<Gate>),
    NeverAnswer,
    Deaf,
    Upgrade {
        pause: Duration,
        first: Bytes,
        gate: Option<Gate>,
    },
    Exec,
    ExecProgram(Box<Invocation>),
    Raw {
        bytes: Bytes,
        cut: Cut,
    },
}

/// An answer whose body comes in pieces.
#[derive(Debug)]
pub(super) struct PlannedResponse {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// The length that the head declares for the body, in bytes; `None` is chunked.
    pub(super) length: Option<u64>,
    pub(super) body: BodySource,
    /// The gate at which the head waits.
    pub(super) gate: Option<Gate>,
    /// The end of the connection after the last byte, if it ends.
    pub(super) last: Option<Cut>,
}

/// The source of a body's bytes.
#[derive(Debug)]
pub(super) enum BodySource {
    Pieces { rest: Bytes, piece_bytes: usize, pause: Duration, then: BodyStep, hold: Option<GatedBytes> },
    Endless(Bytes),
    Feed(broadcast::Receiver<Event>),
    Store(Box<StoreFeed>),
}

/// A gate, and the number of bytes after it.
#[derive(Debug)]
pub(super) struct GatedBytes {
    rest_bytes: usize,
    gate: Gate,
}

/// The next step of sending a body.
#[derive(Debug, Clone)]
pub(super) enum BodyStep {
    Piece(Bytes),
    End,
    Cut(Cut),
}

/// The end of an exchange, as it is recorded.
#[derive(Debug)]
pub(super) enum ExchangeEnd {
    Answered,
    Cut(Cut),
    HungUp(String),
}

impl ResponsePlan {
    /// The plan for a request by the script. An agent that asks for the version on its own gets 404, whatever the script says of all paths.
    pub(super) fn of_head(head: &Head, script: &BehaviourTable) -> Self {
        if head.is_version_for_agent() {
            return Self::of(Behaviour::Answer(Answer::json(404, "{}")), None);
        }
        Self::of(script.behaviour(&head.target), script.gate(&head.target))
    }

    /// Subscribes to feeds at once, so that no event is missed after the request is recorded.
    pub(super) fn of(behaviour: Behaviour, gate: Option<Gate>) -> Self {
        let reply = match behaviour {
            Behaviour::Answer(answer) => PlannedResponse::answer(answer),
            Behaviour::Last { answer, cut } => {
                PlannedResponse { last: Some(cut), ..PlannedResponse::answer(answer) }
            }
            Behaviour::Slow { answer, piece_bytes, pause } => {
                let rest = answer.body.clone();
                let body = BodySource::Pieces { rest, piece_bytes, pause, then: BodyStep::End, hold: None };
                PlannedResponse { body, ..PlannedResponse::answer(answer) }
            }
            Behaviour::Truncate { declared, sent, cut } => {
                let length = match declared {
                    Declared::ContentLength(length) => Some(length),
                    Declared::Chunked => None,
                };
                PlannedResponse {
                    length,
                    body: BodySource::complete(sent, BodyStep::Cut(cut)),
                    ..PlannedResponse::empty(200)
                }
            }
            Behaviour::Endless(piece) => PlannedResponse {
                length: None,
                body: BodySource::Endless(piece),
                ..PlannedResponse::empty(200)
            },
            Behaviour::Watch(feed) => PlannedResponse {
                length: None,
                body: BodySource::Feed(feed.subscribe()),
                ..PlannedResponse::empty(200)
            },
            Behaviour::Store(store) => return Self::Ask(store, gate),
            Behaviour::NeverAnswer => return Self::NeverAnswer,
            Behaviour::Deaf => return Self::Deaf,
            Behaviour::Upgrade { pause, first } => return Self::Upgrade { pause, first, gate },
            Behaviour::Exec => return Self::Exec,
            Behaviour::ExecProgram(program) => return Self::ExecProgram(Box::new(program)),
            Behaviour::Raw { bytes, cut } => return Self::Raw { bytes, cut },
        };
        Self::Reply(reply.gated(gate))
    }

    /// The same with the request's body known.
    pub(super) fn with_body(self, head: &Head, body: impl FnOnce() -> Vec<u8>) -> Self {
        match self {
            Self::Ask(store, gate) => {
                Self::Reply(PlannedResponse::of_store(store.reply(head, &body())).gated(gate))
            }
            known => known,
        }
    }
}

impl PlannedResponse {
    /// A reply with JSON's content type and no body.
    pub(super) fn empty(status: u16) -> Self {
        let body = BodySource::complete(Bytes::new(), BodyStep::End);
        Self { status, headers: json(), length: Some(0), body, gate: None, last: None }
    }

    fn of_store(reply: StoreReply) -> Self {
        match reply {
            StoreReply::Json(status, body) => Self::answer(Answer::json(status, body.to_string())),
            StoreReply::Watch(feed) => {
                Self { length: None, body: BodySource::Store(feed), ..Self::empty(200) }
            }
        }
    }

    fn answer(answer: Answer) -> Self {
        let length = Some(answer.body.len() as u64);
        let body = BodySource::complete(answer.body, BodyStep::End);
        Self { status: answer.status, headers: answer.headers, length, body, gate: None, last: None }
    }

    /// Makes it wait at a gate.
    fn gated(mut self, gate: Option<Gate>) -> Self {
        let moment = gate.as_ref().map(Gate::moment);
        match &mut self.body {
            BodySource::Pieces { rest, hold, .. } => {
                let rest_bytes = if moment == Some(Moment::AtTheEnd) { 1 } else { rest.len() / 2 };
                *hold = gate
                    .clone()
                    .filter(|_| moment != Some(Moment::BeforeHead))
                    .map(|gate| GatedBytes { rest_bytes, gate });
            }
            BodySource::Store(feed) => feed.hold_at(gate.clone()),
            BodySource::Endless(_) | BodySource::Feed(_) => {}
        }
        self.gate = gate.filter(|_| moment == Some(Moment::BeforeHead));
        self
    }
}

impl BodySource {
    fn complete(rest: Bytes, then: BodyStep) -> Self {
        Self::Pieces { rest, piece_bytes: usize::MAX, pause: Duration::ZERO, then, hold: None }
    }

    /// The next step; after `End` or `Cut` it must not be asked again.
    pub(super) async fn next(&mut self) -> BodyStep {
        match self {
            Self::Pieces { rest, then, .. } if rest.is_empty() => then.clone(),
            Self::Pieces { rest, piece_bytes, pause, hold, .. } => {
                if let Some(reached) = hold.take_if(|hold| rest.len() <= hold.rest_bytes) {
                    reached.gate.pass().await;
                }
                if !pause.is_zero() {
                    tokio::time::sleep(*pause).await;
                }
                let up_to = hold.as_ref().map_or(rest.len(), |hold| rest.len() - hold.rest_bytes);
                BodyStep::Piece(rest.split_to(up_to.min((*piece_bytes).max(1))))
            }
            Self::Endless(piece) => {
                // Gives the other tasks of this runtime their turn, however fast the reader is.
                tokio::task::yield_now().await;
                BodyStep::Piece(piece.clone())
            }
            Self::Feed(events) => match events.recv().await {
                Ok(Event::Bytes(bytes)) => BodyStep::Piece(bytes),
                Ok(Event::End) => BodyStep::End,
                // The feed is gone or has outrun us: an honest watch does not go on.
                Err(_) => BodyStep::Cut(Cut::Close),
            },
            Self::Store(feed) => feed.next().await.map_or(BodyStep::End, BodyStep::Piece),
        }
    }
}

fn json() -> Vec<(String, String)> {
    vec![("Content-Type".to_owned(), "application/json".to_owned())]
}
