//! How long each hop waits for the head of an answer: the farther one gives up first, so that whoever was silent is named
//! by the hop beside it.
//!
//! For requests that Kubernetes itself gives a deadline, counted from the last byte of the request that was taken.

use std::time::Duration;

/// An agent waits so long for its API server, which itself gives an ordinary request 60 s (`--request-timeout`).
pub const API_SERVER_HEAD_MAX: Duration = Duration::from_secs(75);

/// A gateway waits so long for an agent.
pub const AGENT_HEAD_MAX: Duration = Duration::from_secs(90);

const _: () = assert!(API_SERVER_HEAD_MAX.as_secs() < AGENT_HEAD_MAX.as_secs());
