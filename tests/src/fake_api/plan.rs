//! A behaviour made ready for one request, in terms that both versions of HTTP can carry out.

use std::time::Duration;

use bytes::Bytes;
use tokio::sync::broadcast;

use super::behaviour::{Behaviour, Cut, Declared, Event};

/// What happens to one request.
#[derive(Debug)]
pub(super) enum Plan {
    Reply(Reply),
    Stall,
    Deaf,
    Upgrade { pause: Duration, first: Bytes },
    Raw { bytes: Bytes, cut: Cut },
}

/// An answer whose body comes bit by bit.
#[derive(Debug)]
pub(super) struct Reply {
    pub(super) status: u16,
    pub(super) headers: Vec<(String, String)>,
    /// What the head says of the body, in bytes; `None` is chunked.
    pub(super) length: Option<u64>,
    pub(super) body: Source,
}

/// Where a body comes from.
#[derive(Debug)]
pub(super) enum Source {
    Pieces { rest: Bytes, piece_bytes: usize, pause: Duration, then: Step },
    Endless(Bytes),
    Feed(broadcast::Receiver<Event>),
}

/// What comes next of a body.
#[derive(Debug, Clone)]
pub(super) enum Step {
    Piece(Bytes),
    End,
    Cut(Cut),
}

/// How an exchange went.
#[derive(Debug)]
pub(super) enum Outcome {
    Answered,
    Cut(Cut),
    HungUp(String),
}

impl Plan {
    /// Subscribes to feeds, so that nothing is missed that is pushed once the request is known to have arrived.
    pub(super) fn of(behaviour: Behaviour) -> Self {
        let ok = |length, body| Self::Reply(Reply { status: 200, headers: json(), length, body });
        match behaviour {
            Behaviour::Answer(answer) => Self::Reply(Reply {
                status: answer.status,
                headers: answer.headers,
                length: Some(answer.body.len() as u64),
                body: Source::whole(answer.body, Step::End),
            }),
            Behaviour::Slow { answer, piece_bytes, pause } => Self::Reply(Reply {
                status: answer.status,
                headers: answer.headers,
                length: Some(answer.body.len() as u64),
                body: Source::Pieces { rest: answer.body, piece_bytes, pause, then: Step::End },
            }),
            Behaviour::Truncate { declared, sent, cut } => {
                let length = match declared {
                    Declared::ContentLength(length) => Some(length),
                    Declared::Chunked => None,
                };
                ok(length, Source::whole(sent, Step::Cut(cut)))
            }
            Behaviour::Endless(piece) => ok(None, Source::Endless(piece)),
            Behaviour::Watch(feed) => ok(None, Source::Feed(feed.subscribe())),
            Behaviour::Stall => Self::Stall,
            Behaviour::Deaf => Self::Deaf,
            Behaviour::Upgrade { pause, first } => Self::Upgrade { pause, first },
            Behaviour::Raw { bytes, cut } => Self::Raw { bytes, cut },
        }
    }
}

impl Source {
    fn whole(rest: Bytes, then: Step) -> Self {
        Self::Pieces { rest, piece_bytes: usize::MAX, pause: Duration::ZERO, then }
    }

    /// The next step; after `End` or `Cut` it must not be asked again.
    pub(super) async fn next(&mut self) -> Step {
        match self {
            Self::Pieces { rest, then, .. } if rest.is_empty() => then.clone(),
            Self::Pieces { rest, piece_bytes, pause, .. } => {
                if !pause.is_zero() {
                    tokio::time::sleep(*pause).await;
                }
                Step::Piece(rest.split_to(rest.len().min((*piece_bytes).max(1))))
            }
            Self::Endless(piece) => {
                // Gives the other tasks of this runtime their turn, however fast the reader is.
                tokio::task::yield_now().await;
                Step::Piece(piece.clone())
            }
            Self::Feed(events) => match events.recv().await {
                Ok(Event::Bytes(bytes)) => Step::Piece(bytes),
                Ok(Event::End) => Step::End,
                // The feed is gone or has outrun us: an honest watch does not go on.
                Err(_) => Step::Cut(Cut::Close),
            },
        }
    }
}

fn json() -> Vec<(String, String)> {
    vec![("Content-Type".to_owned(), "application/json".to_owned())]
}
