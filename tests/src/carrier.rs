//! The carrier of a run's agents whose configuration does not name one.

use std::env;

use serde::Serialize;

use crate::skip::skip;

/// The environment variable that agents read, too.
const AGENT_CARRIER: &str = "TOMBOLO_AGENT_CARRIER";

/// The carriers that these tests distinguish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Carrier {
    /// QUIC, the default of agents where UDP passes.
    Quic,
    /// HTTP/2 over TCP, as `TOMBOLO_AGENT_CARRIER` asks for.
    Http2,
}

impl Carrier {
    /// The carrier that this run's environment names.
    pub fn of_run() -> Self {
        env::var(AGENT_CARRIER).ok().and_then(|name| Self::named(&name)).unwrap_or(Self::Quic)
    }

    /// The carrier of this name.
    pub fn named(name: &str) -> Option<Self> {
        [Self::Quic, Self::Http2].into_iter().find(|carrier| carrier.as_str() == name)
    }

    /// As metrics and people call it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Quic => "quic",
            Self::Http2 => "http2",
        }
    }
}

/// Returns true if a test is about QUIC alone and this run uses another carrier. Then the test is logged and
/// counted as skipped.
pub fn is_not_quic(test: &str, reason: &str) -> bool {
    let is_other = Carrier::of_run() != Carrier::Quic;
    if is_other {
        skip(test, &format!("about QUIC alone: {reason}"));
    }
    is_other
}
