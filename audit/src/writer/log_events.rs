//! Events about the log itself, in the same form as all others.

use std::net::SocketAddr;
use std::sync::Arc;

use crate::chain::Mac;
use crate::event::{Annotation, Completion, EndReason, Event, Status, User};
use crate::shared::{Entry, EntryKind};
use crate::unauthenticated::SourceReport;

/// The user name of the log's own events.
const LOG_USER: &str = "tombolo:audit";

/// The events that the log writes about itself.
pub(super) enum LogEvent {
    /// The server has started. For a stream, `previous` is the MAC of the line before.
    Opened { previous: Option<Mac>, cut_bytes: u64 },
    /// A file begins after the line with this MAC.
    FileBegins { previous: Mac },
    /// The log could not be written.
    Failed { why: String },
    /// The log can be written again; `refused` requests were refused meanwhile.
    Healed { refused: u64 },
    /// The server stops, and the log with it.
    Closed,
}

impl LogEvent {
    /// The entry of this event, in the log of `server` with the key's `mark`.
    pub(super) fn into_entry(self, mark: &str, server: &str) -> Entry {
        let (word, kind) = match &self {
            Self::Opened { .. } => ("opened", EntryKind::BestEffort),
            Self::FileBegins { .. } => ("file-begins", EntryKind::BestEffort),
            Self::Failed { .. } => ("failed", EntryKind::Reserved),
            Self::Healed { .. } => ("healed", EntryKind::BestEffort),
            Self::Closed => ("closed", EntryKind::BestEffort),
        };
        let event = Event::new(word, "/audit", user())
            .with(Annotation::Log, word)
            .with(Annotation::LogMark, mark)
            .with(Annotation::Server, server);
        let event = match self {
            Self::Opened { previous, cut_bytes } => {
                let previous = previous.map(|previous| (Annotation::Previous, previous.to_text()));
                let cut = (cut_bytes > 0).then(|| (Annotation::CutBytes, cut_bytes.to_string()));
                previous.into_iter().chain(cut).fold(event, |event, (key, value)| event.with(key, value))
            }
            Self::FileBegins { previous } => event.with(Annotation::Previous, previous.to_text()),
            Self::Failed { why } => event.with(Annotation::Detail, why),
            Self::Healed { refused } => event.with(Annotation::Count, refused.to_string()),
            Self::Closed => event,
        };
        Entry { event: Arc::new(event), completion: Some(Completion::new(None, EndReason::Clean)), kind }
    }
}

/// The report of unauthenticated requests: a line for each of the busiest sources, and one line for all
/// others.
pub(super) fn unauthenticated(report: SourceReport) -> impl Iterator<Item = Entry> {
    let each = report.each.into_iter().map(|(source, cause, count)| {
        let mut event = Event::new("authenticate", "", User::default())
            .with(Annotation::Decision, cause.as_str())
            .with(Annotation::Count, count.to_string());
        event.source = Some(SocketAddr::new(source, 0));
        event
    });
    let others = report.others.into_iter().map(|(sources, count)| {
        Event::new("authenticate", "", User::default())
            .with(Annotation::Count, count.to_string())
            .with(Annotation::Sources, sources.to_string())
    });
    each.chain(others).map(|event| Entry {
        event: Arc::new(event),
        completion: Some(Completion::new(Some(Status::code(401)), EndReason::Refused)),
        kind: EntryKind::BestEffort,
    })
}

fn user() -> User {
    User { username: LOG_USER.to_owned(), ..User::default() }
}
