//! The outcomes that a request of each kind may see under a fault, as codes of two characters.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A kind of request in the matrix.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Request {
    /// A read with a small answer.
    Get,
    /// A watch, and the lists and watches that follow it, as client-go's reflector does them.
    Watch,
    /// An upgraded connection that carries bytes both ways.
    Exec,
    /// A write by the method PATCH.
    Apply,
    /// A read with a large answer.
    Download,
}

/// The stage of a request when the fault began.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
    /// It began during the fault.
    New,
    /// It had reached the API server, and no byte of the answer had been sent.
    BeforeHead,
    /// Half of the answer had been sent; of a watch half an event; of an exec bytes flow.
    MidBody,
    /// All but the last byte had been sent; of a watch complete events; of an exec the last bytes and the end
    /// are on the way.
    AtTheEnd,
}

/// The outcome that a request saw.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Code {
    /// A read that was answered completely, and sent once.
    G0,
    /// The same after it was sent again, no byte of an answer having been seen.
    G1,
    /// A read that was refused by a `Status`.
    G2,
    /// A read that broke off with an error of the transport.
    G3,
    /// A watch that went on.
    W0,
    /// A watch that broke off; the next one went on from where it was.
    W1,
    /// The same, and a next one was refused meanwhile.
    W2,
    /// An exec that went on.
    E0,
    /// An exec that broke off.
    E1,
    /// An exec that was refused.
    E2,
    /// A write that was applied once and acknowledged.
    A0,
    /// A write whose outcome is not known to its caller; it was applied once or not at all.
    A1,
    /// A write that was refused and is not applied.
    A2,
    /// The API server's own answer, byte for byte.
    P,
    /// Neither an answer nor an error within a minute of the fault's end, or what the row grants.
    Hung,
    /// An outcome that is never allowed: bytes that nobody sent, a clean end where something is missing, a
    /// write that arrived twice.
    Wrong,
}

/// The word is none of the codes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is none of {all}", all = .1)]
pub struct UnknownCode(String, String);

impl Request {
    /// In the order of the table's columns.
    pub const ALL: [Self; 5] = [Self::Get, Self::Watch, Self::Exec, Self::Apply, Self::Download];

    /// `get`, `watch` and so on.
    pub fn word(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::Watch => "watch",
            Self::Exec => "exec",
            Self::Apply => "apply",
            Self::Download => "download",
        }
    }
}

impl Timing {
    /// From the latest to the earliest fault.
    pub const ALL: [Self; 4] = [Self::New, Self::BeforeHead, Self::MidBody, Self::AtTheEnd];

    /// `new`, `before-head` and so on.
    pub fn word(self) -> &'static str {
        match self {
            Self::New => "new",
            Self::BeforeHead => "before-head",
            Self::MidBody => "mid-body",
            Self::AtTheEnd => "at-the-end",
        }
    }
}

impl Code {
    /// All codes, in the order of the enum.
    pub const ALL: [Self; 16] = [
        Self::G0,
        Self::G1,
        Self::G2,
        Self::G3,
        Self::W0,
        Self::W1,
        Self::W2,
        Self::E0,
        Self::E1,
        Self::E2,
        Self::A0,
        Self::A1,
        Self::A2,
        Self::P,
        Self::Hung,
        Self::Wrong,
    ];

    /// The codes of `G0/G2`; none of `-`, which is not asked.
    ///
    /// # Errors
    /// [`UnknownCode`].
    pub fn list(text: &str) -> Result<Vec<Self>, UnknownCode> {
        if text == "-" { Ok(Vec::new()) } else { text.split('/').map(str::parse).collect() }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(&format!("{self:?}"))
    }
}

impl FromStr for Code {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        find(Self::ALL, text, |code| format!("{code:?}"))
    }
}

impl FromStr for Request {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        find(Self::ALL, text, |request| request.word().to_owned())
    }
}

impl FromStr for Timing {
    type Err = UnknownCode;

    fn from_str(text: &str) -> Result<Self, UnknownCode> {
        find(Self::ALL, text, |timing| timing.word().to_owned())
    }
}

fn find<T: Copy, const N: usize>(
    all: [T; N],
    text: &str,
    word: impl Fn(&T) -> String,
) -> Result<T, UnknownCode> {
    let words = || all.iter().map(&word).collect::<Vec<_>>().join(", ");
    all.iter().find(|one| word(one) == text).copied().ok_or_else(|| UnknownCode(text.to_owned(), words()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_parsed_as_they_are_printed() {
        assert_eq!(Code::list("G0/G2"), Ok(vec![Code::G0, Code::G2]));
        assert_eq!(Code::list("-"), Ok(vec![]));
        assert!(Code::list("G9").unwrap_err().to_string().contains("G0, G1"));
        for timing in Timing::ALL {
            assert_eq!(timing.word().parse(), Ok(timing));
        }
        for request in Request::ALL {
            assert_eq!(request.word().parse(), Ok(request));
        }
    }
}
