//! The steps in which all CAs of a tenant are exchanged.

use std::fmt;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

/// One step. Its predecessor must be complete.
#[derive(ValueEnum, Serialize, Deserialize, Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[serde(rename_all = "camelCase")]
pub(crate) enum RotationStep {
    /// Make the next CAs; everything trusts them beside the present ones
    Trust,
    /// Issue everything anew by the next CAs, and sign tokens with the next key
    Issue,
    /// Stop trusting what the old CAs have issued, and forget them
    Finish,
}

impl RotationStep {
    /// The step that must be complete before; `None` for the first one.
    pub(crate) fn predecessor(self) -> Option<Self> {
        match self {
            Self::Trust => None,
            Self::Issue => Some(Self::Trust),
            Self::Finish => Some(Self::Issue),
        }
    }
}

impl fmt::Display for RotationStep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Trust => "trust",
            Self::Issue => "issue",
            Self::Finish => "finish",
        })
    }
}
