//! A thin client of etcd v3.
//!
//! It adds what etcd's API leaves to its users: endpoints that are asked in turn, with half a second for each try; the
//! difference between a write that was surely not made and one whose outcome is unknown; a watch that goes on at the next
//! revision, whatever breaks, and says when it cannot; and releases of etcd that lose events are named.
//!
//! Reads are linearizable: a member that has no quorum does not answer them.

mod channel;
mod client;
mod endpoint;
mod error;
mod keys;
mod lease;
mod member;
mod transaction;
mod watch;

/// The messages and clients that are generated from etcd's schema.
#[allow(
    missing_docs,
    unreachable_pub,
    dead_code,
    unused_qualifications,
    elided_lifetimes_in_paths,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    clippy::enum_variant_names,
    clippy::too_many_lines,
    clippy::unwrap_used,
    clippy::use_self,
    clippy::wildcard_enum_match_arm,
    reason = "generated"
)]
mod rpc {
    tonic::include_proto!("etcdserverpb");
}

pub use client::{Client, ENDPOINTS_MAX, READ_MAX, TRY_MAX};
pub use endpoint::{Endpoint, NotAnEndpoint};
pub use error::{CommitError, Error, TryError};
pub use keys::{Entry, KeyRange, Listing, PAGE_KEYS, Revision};
pub use lease::{Lease, LeaseEnded};
pub use member::{MemberStatus, Unsuitable, VERSION_MIN, Version};
pub use transaction::{Compare, Outcome, TRANSACTION_OPERATIONS_MAX, Write};
pub use watch::{Change, Compacted, Watch, WatchUpdate};
