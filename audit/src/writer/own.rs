//! What the log says of itself, in events like all others.

use std::net::SocketAddr;
use std::sync::Arc;

use super::Writer;
use crate::chain::Code;
use crate::desk::{Duty, Entry};
use crate::event::{Completion, EndReason, Event, Note, Status, User};
use crate::strangers::Told;

/// Who says it.
const SELF: &str = "tombolo:audit";

/// What is said.
pub(super) enum Said {
    /// The server has started, behind a line with this code, where no file says it.
    Opened { previous: Option<Code>, cut_bytes: u64 },
    /// Here begins a file, behind a line with this code.
    FileBegins { previous: Code },
    /// It could not be written.
    Failed { why: String },
    /// It can be written again, and so much was not done meanwhile.
    Healed { refused: u64 },
    /// The server stops.
    Closed,
}

impl Writer {
    /// An entry that says it.
    pub(super) fn said(&self, said: Said) -> Entry {
        let (word, duty) = match &said {
            Said::Opened { .. } => ("opened", Duty::Aside),
            Said::FileBegins { .. } => ("file-begins", Duty::Aside),
            Said::Failed { .. } => ("failed", Duty::Reserved),
            Said::Healed { .. } => ("healed", Duty::Aside),
            Said::Closed => ("closed", Duty::Aside),
        };
        let event = Event::new(word, "/audit", user())
            .with(Note::Log, word)
            .with(Note::LogMark, self.mark.clone())
            .with(Note::Server, self.server.clone());
        let event = match said {
            Said::Opened { previous, cut_bytes } => {
                let previous = previous.map(|previous| (Note::Previous, previous.to_text()));
                let cut = (cut_bytes > 0).then(|| (Note::CutBytes, cut_bytes.to_string()));
                previous.into_iter().chain(cut).fold(event, |event, (note, value)| event.with(note, value))
            }
            Said::FileBegins { previous } => event.with(Note::Previous, previous.to_text()),
            Said::Failed { why } => event.with(Note::Detail, why),
            Said::Healed { refused } => event.with(Note::Count, refused.to_string()),
            Said::Closed => event,
        };
        Entry { event: Arc::new(event), completion: Some(Completion::new(None, EndReason::Clean)), duty }
    }
}

/// What strangers did, a line for each of the busiest, and one for all others.
pub(super) fn strangers(told: Told) -> impl Iterator<Item = Entry> {
    let each = told.each.into_iter().map(|(source, why, count)| {
        let mut event = Event::new("authenticate", "", User::default())
            .with(Note::Decision, why.as_str())
            .with(Note::Count, count.to_string());
        event.source = Some(SocketAddr::new(source, 0));
        event
    });
    let others = told.others.into_iter().map(|(sources, count)| {
        Event::new("authenticate", "", User::default())
            .with(Note::Count, count.to_string())
            .with(Note::Sources, sources.to_string())
    });
    each.chain(others).map(|event| Entry {
        event: Arc::new(event),
        completion: Some(Completion::new(Some(Status::code(401)), EndReason::Refused)),
        duty: Duty::Aside,
    })
}

fn user() -> User {
    User { username: SELF.to_owned(), ..User::default() }
}
