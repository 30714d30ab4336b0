//! Watches that outlive their tunnel: the gateway begins them again where they were, and their callers see nothing of it.

mod cbor;
mod event;
mod json;
mod protobuf;
mod query;
mod relay;
mod room;
mod safe_point;
