//! What happened, as an Event of `audit.k8s.io/v1` (`k8s.io/apiserver/pkg/apis/audit/v1`).
//!
//! Level Metadata: who, what, when and how it ended; never a body, a credential, or what ran through an upgraded
//! connection.

mod line;
mod notes;
mod uri;

use std::borrow::Cow;
use std::net::SocketAddr;
use std::time::SystemTime;

pub(crate) use line::{Line, Stage, micro_time};
pub use notes::{EndReason, Note};
pub use uri::without_values;

use notes::Notes;

/// Longest id of an exchange, in bytes.
pub const AUDIT_ID_BYTES_MAX: usize = 64;

/// Longest path with query, in bytes; what is longer is cut, as with all texts here.
pub const URI_BYTES_MAX: usize = 16 * 1024;

/// Longest name of a user, a group or an object, in bytes.
pub const NAME_BYTES_MAX: usize = 256;

/// Most groups of a user that are named; how many more there are stands beside them.
pub const GROUPS_MAX: usize = 64;

/// Longest name of a caller's program, in bytes.
pub const USER_AGENT_BYTES_MAX: usize = 512;

/// Longest value of one [`Note`], in bytes.
pub const NOTE_BYTES_MAX: usize = 512;

/// Longest line, its end included.
pub const LINE_BYTES_MAX: usize = 512 * 1024;

/// One character becomes at most so many bytes for each of its own, when it is escaped.
const ESCAPED_MAX: usize = 6;

/// What stands around the texts: keys, brackets, times, addresses and the code.
const FRAME_BYTES_MAX: usize = 16 * 1024;

const _: () = {
    let names = 2 * (1 + GROUPS_MAX) + 8;
    let texts = AUDIT_ID_BYTES_MAX
        + URI_BYTES_MAX
        + USER_AGENT_BYTES_MAX
        + names * NAME_BYTES_MAX
        + Note::COUNT * NOTE_BYTES_MAX;
    assert!(texts * ESCAPED_MAX + FRAME_BYTES_MAX <= LINE_BYTES_MAX);
};

/// What is asked, and by whom. Texts may be anything; they are escaped, and cut at their limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Names the exchange in every log; empty: the line's number is taken.
    pub audit_id: String,
    /// The path, with the query's values taken out by [`without_values`].
    pub request_uri: String,
    /// What is done.
    pub verb: Cow<'static, str>,
    /// Who asks.
    pub user: User,
    /// As whom it is done, where that is said.
    pub asserted: Option<Identity>,
    /// The other end of the socket.
    pub source: Option<SocketAddr>,
    /// The caller's program, in its own words.
    pub user_agent: Option<String>,
    /// What it is done to.
    pub object: Option<ObjectRef>,
    /// When the request came.
    pub received: SystemTime,
    /// All else.
    notes: Notes,
}

/// Who asks.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Its name; empty where nobody knows.
    pub username: String,
    /// Its groups.
    pub groups: Vec<String>,
    /// How it proved who it is; empty where it did not.
    pub method: String,
}

/// As whom something is done.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Identity {
    /// The name.
    pub username: String,
    /// The groups.
    pub groups: Vec<String>,
}

/// What something is done to; what is empty is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ObjectRef {
    /// The API group; empty for the core one.
    pub api_group: String,
    /// The version in the group.
    pub api_version: String,
    /// The plural in lower case.
    pub resource: String,
    /// What stands behind the name.
    pub subresource: String,
    /// Where it is.
    pub namespace: String,
    /// Which one it is.
    pub name: String,
}

/// What was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Status {
    /// The status of HTTP.
    pub code: u16,
    /// Kubernetes' word for it, or ours; empty for none.
    pub reason: &'static str,
}

/// What became of an exchange.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Completion {
    /// What was answered, if anything was.
    pub status: Option<Status>,
    /// All else.
    notes: Notes,
}

impl Event {
    /// `verb` is done to `request_uri` by `user`, now.
    #[must_use]
    pub fn new(verb: impl Into<Cow<'static, str>>, request_uri: impl Into<String>, user: User) -> Self {
        Self {
            audit_id: String::new(),
            request_uri: request_uri.into(),
            verb: verb.into(),
            user,
            asserted: None,
            source: None,
            user_agent: None,
            object: None,
            received: SystemTime::now(),
            notes: Notes::default(),
        }
    }

    /// With this said, in place of what was said of it before.
    #[must_use]
    pub fn with(mut self, note: Note, value: impl Into<String>) -> Self {
        self.note(note, value);
        self
    }

    /// Says this too, in place of what was said of it before.
    pub fn note(&mut self, note: Note, value: impl Into<String>) {
        self.notes.insert(note, value.into());
    }
}

impl Completion {
    /// It ended so.
    #[must_use]
    pub fn new(status: Option<Status>, end: EndReason) -> Self {
        let mut notes = Notes::default();
        notes.insert(Note::EndReason, end.as_str().to_owned());
        Self { status, notes }
    }

    /// With this said.
    #[must_use]
    pub fn with(mut self, note: Note, value: impl Into<String>) -> Self {
        self.notes.insert(note, value.into());
        self
    }
}

impl Status {
    /// A status of HTTP without a word.
    #[must_use]
    pub fn code(code: u16) -> Self {
        Self { code, reason: "" }
    }
}
