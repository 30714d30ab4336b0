//! Watches that outlive their tunnel: the gateway resumes them over another one, and their callers do not
//! notice.
//!
//! A watch is followed only if the request is a watch and the answer brings events in an encoding of
//! Kubernetes; everything else passes unchanged. A watch over a WebSocket is a pipe of bytes like any
//! upgraded connection, and ends with its tunnel.

pub(super) mod body;
mod buffer_budget;
mod cbor;
mod encoding;
mod event;
mod follow;
#[cfg(test)]
mod fuzz;
mod json;
mod protobuf;
mod query;
mod relay;
pub(super) mod resources;
pub(super) mod resumable;
mod resume;
mod resume_point;
mod version;
