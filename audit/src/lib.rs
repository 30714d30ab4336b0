//! The audit log: requests, their users and their outcomes, in lines that show whether anybody changed them.
//!
//! Each line is an Event of `audit.k8s.io/v1`. A request is written twice: its *intent*, before anything is
//! done for it, and its *completion*, after its last byte. [`Log::intent`] returns once the line is written,
//! so that a request without a line is not served.
//!
//! Each line carries a MAC that covers the line before it. From time to time a *checkpoint*, a signature over
//! the chain's position, is appended to a file that may be sent elsewhere. [`verify::verify`] checks both. An
//! attacker with neither key cannot change anything unnoticed. An attacker with both, the server itself, can
//! change only lines that no exported checkpoint covers.

mod chain;
mod checkpoint;
mod event;
mod files;
#[cfg(test)]
mod fuzz;
mod json;
mod keys;
mod log;
mod reader;
mod recovery;
mod settings;
mod shared;
mod sink;
mod stream;
mod text_enum;
mod unauthenticated;
pub mod verify;
mod writer;

pub use checkpoint::{CHECKPOINTS_FILE, PUBLIC_KEY_FILE};
pub use event::{
    ANNOTATION_BYTES_MAX, AUDIT_ID_BYTES_MAX, Annotation, Completion, EndReason, Event, GROUPS_MAX, Identity,
    LINE_BYTES_MAX, NAME_BYTES_MAX, ObjectRef, Status, URI_BYTES_MAX, USER_AGENT_BYTES_MAX, User,
    without_values,
};
pub use files::{FILE_BYTES_MAX, FILE_BYTES_MIN, FILES_MAX, FILES_MIN, RESERVE_BYTES};
pub use keys::{ChainKey, NotAKey, PublicKey, SigningKey};
pub use log::{AuditError, INTENT_MAX, Log, RESERVED_MAX, WriterGuard};
pub use settings::{OpenError, SYNC_EVERY, Settings, Sync, Target};
pub use shared::{Figures, QUEUE_MAX, Receipt};
pub use unauthenticated::{FailureCause, REPORT_EVERY, UNAUTHENTICATED_LINES_MAX, UNAUTHENTICATED_MAX};
pub use writer::{CHECKPOINT_EVERY, CHECKPOINT_LINES};
