//! Who may do what: what a request asks of a cluster, and which rule decides.
//!
//! Pure: requests, documents and what is known of a cluster come in as arguments.

pub mod action;
