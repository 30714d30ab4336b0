//! The real binary, as a person uses it.
