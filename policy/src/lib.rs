//! Who may do what: what a request asks of a cluster, and which rule decides.
//!
//! Pure: requests, documents and what is known of a cluster come in as arguments. A [`Document`] is read by whoever has
//! the file, [`Rules::of`] makes it valid or says what is wrong in which line, and [`Rules::decide`] answers. What no rule
//! allows is forbidden, and a rule that denies wins, whatever the order.

pub mod action;
mod document;
mod fault;
#[cfg(test)]
mod fuzz;
mod method;
mod network;
mod rules;
mod target;

pub use document::{Document, KIND};
pub use fault::PolicyFault;
pub use method::{DIAL_TOKEN, DIAL_TOKEN_PREFIX, NotAMethod, method};
pub use network::{Network, NotANetwork};
pub use rules::{ClusterFacts, ENTRIES_MAX, RULES_MAX, Request, Rules, Verdict, Who};
pub use target::{Host, NotATarget, NotATargetEntry, ServiceName, Target, TargetEntry, may_advertise};
