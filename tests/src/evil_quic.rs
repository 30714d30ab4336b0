//! QUIC as nobody should speak it: packets sealed with the right keys whose frames no library sends.
//!
//! [`forged`] changes what quinn is about to seal, so that handshakes and acknowledgements are as they must be. [`initial`]
//! writes first packets by hand, for who shakes no hands. [`relay`] stands on the path and has no key at all.

pub mod forged;
pub mod frames;
pub mod initial;
pub mod parameters;
pub mod relay;
pub mod trial;
