//! Requests as a kube-apiserver saw them, read from its audit log.

use std::fs;
use std::io;
use std::path::Path;
use std::time::{Duration, Instant};

use serde::Deserialize;

/// Pause between two looks at the log.
const POLL_EVERY: Duration = Duration::from_millis(20);

/// One line of the audit log (`audit.k8s.io/v1`), at level Metadata.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AuditEvent {
    /// The same for all events of one request.
    #[serde(rename = "auditID")]
    pub audit_id: String,
    /// `ResponseStarted` (watches and the like), `ResponseComplete` or `Panic`.
    pub stage: String,
    /// The raw path with its query.
    #[serde(rename = "requestURI")]
    pub request_uri: String,
    /// `get`, `list`, `watch`, `create`, …
    pub verb: String,
    /// The user whose credential it was.
    pub user: AuditUser,
    /// The impersonated user, if there was one.
    pub impersonated_user: Option<AuditUser>,
    /// The addresses it came through.
    #[serde(rename = "sourceIPs", default)]
    pub source_addresses: Vec<String>,
    /// The value of the `User-Agent` header.
    pub user_agent: Option<String>,
    /// The status of the response.
    pub response_status: Option<AuditStatus>,
    /// The time of arrival, RFC 3339 with microseconds.
    pub request_received_timestamp: String,
    /// The time of this stage, RFC 3339 with microseconds.
    pub stage_timestamp: String,
}

/// A user as Kubernetes knows it.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct AuditUser {
    /// Its name; empty where the credential was nobody's.
    #[serde(default)]
    pub username: String,
    /// The groups of the user.
    #[serde(default)]
    pub groups: Vec<String>,
    /// Its unique id, if it has one.
    pub uid: Option<String>,
}

/// The status of an answer.
#[derive(Debug, Clone, Deserialize)]
pub struct AuditStatus {
    /// The HTTP status of the response.
    pub code: Option<u16>,
    /// The reason of a Kubernetes `Status`.
    pub reason: Option<String>,
    /// The message of the status.
    pub message: Option<String>,
}

/// An error of reading the log.
#[derive(Debug, thiserror::Error)]
pub enum AuditError {
    /// The file could not be read.
    #[error("could not read the audit log")]
    Read(#[source] io::Error),
    /// A line is not an audit event.
    #[error("the audit log has a line that is not an event: {line}")]
    Line {
        /// The line that could not be parsed.
        line: String,
        /// The error of the parser.
        #[source]
        source: serde_json::Error,
    },
    /// The awaited event did not arrive in time.
    #[error("no such audit event within {limit:?}; there are {} events, the last of them {last}", count)]
    Deadline {
        /// The time that was waited.
        limit: Duration,
        /// Number of events in the log.
        count: usize,
        /// The verb and path of the last event.
        last: String,
    },
}

/// All events so far. A last line without its end is still being written and is left out.
pub fn read(log: &Path) -> Result<Vec<AuditEvent>, AuditError> {
    let text = match fs::read_to_string(log) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(AuditError::Read(error)),
    };
    text.split_inclusive('\n')
        .filter(|line| line.ends_with('\n'))
        .map(|line| {
            serde_json::from_str(line)
                .map_err(|source| AuditError::Line { line: line.trim_end().to_owned(), source })
        })
        .collect()
}

/// Waits for an event that `wanted` accepts.
pub async fn wait(
    log: &Path,
    limit: Duration,
    wanted: impl Fn(&AuditEvent) -> bool,
) -> Result<AuditEvent, AuditError> {
    let deadline = Instant::now() + limit;
    loop {
        let events = read(log)?;
        if let Some(found) = events.iter().find(|event| wanted(event)) {
            return Ok(found.clone());
        }
        if Instant::now() >= deadline {
            let last = events
                .last()
                .map_or_else(|| "(none)".to_owned(), |event| format!("{} {}", event.verb, event.request_uri));
            return Err(AuditError::Deadline { limit, count: events.len(), last });
        }
        tokio::time::sleep(POLL_EVERY).await;
    }
}
