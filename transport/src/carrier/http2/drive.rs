//! The task that drives an HTTP/2 connection, and does nothing that could make it wait.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::{Context, Poll, Waker, ready};
use std::time::Instant;

use bytes::Bytes;
use h2::{Reason, RecvStream};
use http::{Method, Request, Response, Uri};
use proto::CloseCode;
use proto::wire::{Closing, carrier_note::Note};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;
use tokio::time::sleep;

use super::codes;
use super::common::{Common, Parting};
use super::notes::{Notes, NotesError};
use super::settings::FAREWELL_MAX;
use super::stream::{Receiving, Stream};
use super::wire::{Seen, Wire};
use crate::error::TunnelEnded;

/// Drives a connection until it is over.
pub(super) struct Drive<T> {
    pub(super) role: Role<T>,
    pub(super) notes: Notes,
    pub(super) common: Owned,
    pub(super) seen: Arc<Seen>,
}

/// Says that a connection is over when its task is, however that ends.
pub(super) struct Owned(pub(super) Arc<Common>);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.finish(TunnelEnded::Carrier("the task that drove it was ended".to_owned()));
    }
}

/// Which side of HTTP/2 this one is.
pub(super) enum Role<T> {
    /// The tunnel's server is HTTP/2's client.
    Server(h2::client::Connection<Wire<T>, Bytes>),
    /// The agent is HTTP/2's server, and sorts what comes.
    Agent(h2::server::Connection<Wire<T>, Bytes>, Doors),
}

/// Where the streams go that the server opens.
pub(super) struct Doors {
    pub(super) control: mpsc::Sender<Stream>,
    pub(super) exchanges: mpsc::Sender<Stream>,
}

/// What a stream is for, as its request says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// The session's frames.
    Control,
    /// The carrier's own.
    Notes,
    /// One exchange.
    Exchange,
}

/// What a look at the connection has shown.
enum Turn {
    /// Nothing moves any more.
    Over(Option<h2::Error>),
    /// The carrier's own stream.
    Notes(Stream),
    /// Streams have arrived whole.
    Ended,
}

impl Kind {
    const ALL: [Self; 3] = [Self::Control, Self::Notes, Self::Exchange];

    /// HTTP/2 wants an authority; nobody reads it.
    fn uri(self) -> &'static str {
        match self {
            Self::Control => "https://tombolo/control",
            Self::Notes => "https://tombolo/notes",
            Self::Exchange => "https://tombolo/exchange",
        }
    }

    fn of(path: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| Uri::from_static(kind.uri()).path() == path)
    }

    /// Asks for a stream of this kind.
    pub(super) fn request(self) -> Request<()> {
        let mut request = Request::new(());
        *request.method_mut() = Method::POST;
        *request.uri_mut() = Uri::from_static(self.uri());
        request
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Drive<T> {
    pub(super) async fn run(mut self) {
        let how = match self.converse().await {
            Ok(how) => how,
            Err(error) => TunnelEnded::Carrier(error.to_string()),
        };
        // Before h2 tells the streams: whoever reads an error of theirs finds out why.
        self.common.0.finish(how);
    }

    async fn converse(&mut self) -> Result<TunnelEnded, NotesError> {
        let Self { role, notes, common: Owned(common), seen } = self;
        // So that the round trip is known when the first exchange comes.
        common.ping(Instant::now());
        loop {
            for stream in seen.take_ended() {
                notes.put(Note::Taken(stream))?;
            }
            // All arms are cancel-safe: the connection and the notes keep what they have, and what was asked for stays
            // asked for.
            tokio::select! {
                turn = poll_fn(|cx| role.poll(cx, common, seen)) => match turn {
                    Turn::Over(error) => return last_words(notes, common, error),
                    Turn::Notes(stream) => notes.begin(stream),
                    Turn::Ended => {}
                },
                note = poll_fn(|cx| notes.poll(cx)) => {
                    if let Some(note) = note? && let Some(how) = heard(note, notes, common)? {
                        return Ok(how);
                    }
                }
                () = common.ping_asked() => notes.ping()?,
                parting = common.parting() => return part(role, notes, common, seen, parting).await,
            }
        }
    }
}

impl<T: AsyncRead + AsyncWrite + Unpin> Role<T> {
    /// Reads, writes and sorts as much as there is.
    fn poll(&mut self, cx: &mut Context<'_>, common: &Arc<Common>, seen: &Seen) -> Poll<Turn> {
        let turn = match self {
            Self::Server(connection) => {
                std::pin::Pin::new(connection).poll(cx).map(|over| Turn::Over(over.err()))
            }
            Self::Agent(connection, doors) => poll_agent(connection, doors, cx, common),
        };
        if turn.is_pending() && seen.has_ended() { Poll::Ready(Turn::Ended) } else { turn }
    }
}

fn poll_agent<T: AsyncRead + AsyncWrite + Unpin>(
    connection: &mut h2::server::Connection<Wire<T>, Bytes>,
    doors: &Doors,
    cx: &mut Context<'_>,
    common: &Arc<Common>,
) -> Poll<Turn> {
    loop {
        let (request, mut respond) = match ready!(connection.poll_accept(cx)) {
            None => return Poll::Ready(Turn::Over(None)),
            Some(Err(error)) => return Poll::Ready(Turn::Over(Some(error))),
            Some(Ok(accepted)) => accepted,
        };
        let (head, body): (_, RecvStream) = request.into_parts();
        let Ok(send) = respond.send_response(Response::new(()), false) else {
            // Aborted before it was seen.
            continue;
        };
        let stream = Stream::new(send, Receiving::Body(body), common, None);
        let is_taken = match Kind::of(head.uri.path()) {
            Some(Kind::Exchange) => doors.exchanges.try_send(stream).is_ok(),
            Some(Kind::Control) => doors.control.try_send(stream).is_ok(),
            Some(Kind::Notes) => return Poll::Ready(Turn::Notes(stream)),
            None => false,
        };
        if !is_taken {
            respond.send_reset(Reason::REFUSED_STREAM);
        }
    }
}

/// Does what a note asks for. Says how the connection ends, if the note was the last.
fn heard(note: Note, notes: &mut Notes, common: &Common) -> Result<Option<TunnelEnded>, NotesError> {
    match note {
        Note::Taken(stream) => common.taken(stream),
        Note::Ping(number) => notes.put(Note::Pong(number))?,
        Note::Pong(number) => {
            if notes.is_answer(number) {
                common.ponged(Instant::now());
            }
        }
        Note::Closing(Closing { code, reason }) => {
            let code = CloseCode::from_number(code);
            common.closed(Parting { code, reason });
            return Ok(Some(TunnelEnded::closed(code)));
        }
    }
    Ok(None)
}

/// The connection is over; what came before its end may say why.
fn last_words(
    notes: &mut Notes,
    common: &Common,
    error: Option<h2::Error>,
) -> Result<TunnelEnded, NotesError> {
    let mut cx = Context::from_waker(Waker::noop());
    while let Poll::Ready(Ok(note)) = notes.poll_next(&mut cx) {
        if let Some(note) = note
            && let Some(how) = heard(note, notes, common)?
        {
            return Ok(how);
        }
    }
    let cut = || TunnelEnded::Carrier("the TCP connection was closed without a word".to_owned());
    Ok(error.map_or_else(cut, codes::connection))
}

/// Tells the peer, and waits until it has closed, or could have.
async fn part<T: AsyncRead + AsyncWrite + Unpin>(
    role: &mut Role<T>,
    notes: &mut Notes,
    common: &Arc<Common>,
    seen: &Seen,
    parting: Parting,
) -> Result<TunnelEnded, NotesError> {
    let Parting { code, reason } = parting;
    notes.put(Note::Closing(Closing { code: code.number(), reason }))?;
    let farewell = sleep(FAREWELL_MAX);
    tokio::pin!(farewell);
    loop {
        // All arms are cancel-safe: see `converse`.
        tokio::select! {
            turn = poll_fn(|cx| role.poll(cx, common, seen)) => match turn {
                Turn::Over(_) => break,
                // Nobody is told of ends any more.
                Turn::Ended => drop(seen.take_ended()),
                Turn::Notes(stream) => notes.begin(stream),
            },
            note = poll_fn(|cx| notes.poll(cx)) => drop(note?),
            () = &mut farewell => break,
        }
    }
    Ok(TunnelEnded::Carrier("closed by this side".to_owned()))
}
