//! The policy engine: parses the action that a request asks for, and decides whether a rule allows it.
//!
//! Pure: requests, documents and facts about clusters come in as arguments. The owner of the file reads a
//! [`Document`]. [`Rules::from_document`] validates it, or returns the line and the key of the first error.
//! [`Rules::decide`] decides. Without an allowing rule a request is forbidden, and a denying rule wins in any
//! order.

pub mod action;
mod document;
mod error;
#[cfg(test)]
mod fuzz;
mod label;
mod method;
mod network;
mod rules;
mod target;

pub use document::{Document, ENTRIES_MAX, KIND, RULES_MAX};
pub use error::DocumentError;
pub use label::{
    LABEL_BYTES_MAX, LabelSelector, NotALabelSelector, Operator, Requirement, is_label_name, is_label_value,
};
pub use method::{DIAL_TOKEN, DIAL_TOKEN_PREFIX, NotAMethod, parse_method};
pub use network::{Network, NotANetwork};
pub use rules::{ClusterFacts, Notice, Principal, Request, Rules, Verdict};
pub use target::entry::{NotATargetEntry, TargetEntry, may_advertise};
pub use target::service::ServiceName;
pub use target::{Host, NotATarget, Target};
