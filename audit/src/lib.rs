//! What was asked, by whom, and what became of it: a log that shows whether somebody changed it.
//!
//! Each line is an Event of `audit.k8s.io/v1`. A request is written twice: its *intent*, before anything is done for it,
//! and its *completion*, after its last byte. [`Log::intent`] answers once the line is written, so that what was not
//! written is not done.
//!
//! Lines are chained by a keyed code, and from time to time a signature over the chain's state, a *checkpoint*, is appended
//! to a file that may be sent elsewhere. [`verify::verify`] checks both. Who has neither key can change nothing unseen; who
//! has both, the server itself, can change what no checkpoint that was sent away covers.

mod chain;
mod checkpoint;
mod desk;
mod event;
mod files;
#[cfg(test)]
mod fuzz;
mod json;
mod keys;
mod log;
mod recovery;
mod settings;
mod sink;
mod strangers;
mod stream;
pub mod verify;
mod walk;
mod writer;

pub use checkpoint::{CHECKPOINTS_FILE, PUBLIC_KEY_FILE};
pub use desk::{Figures, QUEUE_MAX, Receipt};
pub use event::{
    AUDIT_ID_BYTES_MAX, Completion, EndReason, Event, GROUPS_MAX, Identity, LINE_BYTES_MAX, NAME_BYTES_MAX,
    NOTE_BYTES_MAX, Note, ObjectRef, Status, URI_BYTES_MAX, USER_AGENT_BYTES_MAX, User, without_values,
};
pub use files::{FILE_BYTES_MAX, FILE_BYTES_MIN, FILES_MAX, FILES_MIN, RESERVE_BYTES};
pub use keys::{ChainKey, NotAKey, PublicKey, SigningKey};
pub use log::{INTENT_MAX, Log, NotRecorded, RESERVED_MAX, Running};
pub use settings::{OpenError, SYNC_EVERY, Settings, Sync, Target};
pub use strangers::{STRANGERS_MAX, STRANGERS_TOLD_MAX, TELL_EVERY, Why};
pub use writer::{CHECKPOINT_EVERY, CHECKPOINT_LINES};
