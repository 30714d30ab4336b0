//! Refusals: why a request is not served, and the `Status` with which this server answers it.
//!
//! [`Refusal`] lists the reasons. One table ([`Refusal::facts`]) states what follows from each: status,
//! cause, advice, when to try again, and the end in the audit log and in metrics. Everything else reads it
//! from there.

mod answer;
mod causes;
mod encode;
mod facts;
mod reasons;
mod status;
mod table;
#[cfg(test)]
mod tests;

pub(super) use causes::RefusalCause;
pub use reasons::{MalformedRequest, Refusal};
