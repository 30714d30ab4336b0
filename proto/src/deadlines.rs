//! Deadlines of each hop for the head of a response.
//!
//! The hop that is farther from the caller gives up first, so that the hop beside a silent peer is the one
//! that names it. The deadlines apply to requests that Kubernetes itself gives a deadline, and count from the
//! last byte of the request that was taken.

use std::time::Duration;

/// Deadline of an agent for its API server, which itself gives an ordinary request 60 s
/// (`--request-timeout`).
pub const API_SERVER_HEAD_MAX: Duration = Duration::from_secs(75);

/// Deadline of a gateway for an agent.
pub const AGENT_HEAD_MAX: Duration = Duration::from_secs(90);

const _: () = assert!(API_SERVER_HEAD_MAX.as_secs() < AGENT_HEAD_MAX.as_secs());
