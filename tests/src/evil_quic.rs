//! Invalid QUIC: packets sealed with the right keys whose frames no library sends.
//!
//! [`forged`] changes what quinn is about to seal, so that handshakes and acknowledgements stay correct.
//! [`initial`] writes first packets by hand, without a handshake. [`relay`] is on the path and has no keys at
//! all.

pub mod forged;
pub mod frames;
pub mod initial;
pub mod parameters;
pub mod relay;
pub mod trial;
