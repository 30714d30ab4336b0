//! Clients that people use beside the pinned kubectl, each with real pods through the tunnel and beside it.

mod helm;
mod k9s;
mod libraries;
mod minors;

pub(crate) use minors::number;
