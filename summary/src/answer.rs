//! The answer of an agent: the aggregate of its cluster, or the reason why there is none.

use serde::{Deserialize, Serialize};

use crate::aggregate::Aggregate;
use crate::encoding::{ENCODED_BYTES_MAX, RawAggregate, TooLarge};
use crate::question::Question;

/// The media type of an agent's answer. An answer of another type was not made by a reducing agent.
pub const EDGE_ANSWER_TYPE: &str = "application/vnd.tombolo.summary+json";

/// The longest reason and message of a failure, in characters.
const REASON_CHARS_MAX: usize = 64;
const MESSAGE_CHARS_MAX: usize = 512;

/// The answer of an agent to a question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum EdgeAnswer {
    /// The aggregate of the cluster.
    Summary(Aggregate),
    /// The API server answered what cannot be reduced.
    Failed(EdgeFailure),
}

/// The reason why an agent has no aggregate although its API server has answered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EdgeFailure {
    /// The word of the failure for programs.
    pub reason: String,
    /// The sentence about it for people.
    pub message: String,
}

/// The reason why the bytes of an agent are no answer to the question.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AnswerFault {
    /// The answer has more bytes than [`ENCODED_BYTES_MAX`].
    #[error("it has more than {ENCODED_BYTES_MAX} bytes")]
    TooLong,
    /// It is no JSON of an answer.
    #[error("it is no summary in JSON")]
    NotJson,
    /// The aggregate is not one of this question, or has more than it may.
    #[error("it is no summary for this question")]
    OtherQuestion,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
enum Written<'a> {
    Summary(&'a Aggregate),
    Failed(&'a EdgeFailure),
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
enum RawAnswer {
    Summary(RawAggregate),
    Failed(EdgeFailure),
}

impl EdgeFailure {
    /// A failure with this word for programs and this sentence for people.
    #[must_use]
    pub fn new(reason: &str, message: &str) -> Self {
        Self {
            reason: reason.chars().take(REASON_CHARS_MAX).collect(),
            message: message.chars().take(MESSAGE_CHARS_MAX).collect(),
        }
    }
}

impl EdgeAnswer {
    /// The JSON of the answer.
    ///
    /// # Errors
    ///
    /// [`TooLarge`]: the aggregate has too many bytes. A failure always fits.
    pub fn encode(&self) -> Result<Vec<u8>, TooLarge> {
        let written = match self {
            Self::Summary(aggregate) => Written::Summary(aggregate),
            Self::Failed(failure) => Written::Failed(failure),
        };
        // Texts and numbers alone, so that writing cannot fail.
        let bytes = serde_json::to_vec(&written).unwrap_or_default();
        if bytes.len() > ENCODED_BYTES_MAX { Err(TooLarge(bytes.len())) } else { Ok(bytes) }
    }

    /// Reads the answer of an agent, which is not trusted.
    ///
    /// # Errors
    ///
    /// [`AnswerFault`]
    pub fn decode(bytes: &[u8], question: &Question) -> Result<Self, AnswerFault> {
        if bytes.len() > ENCODED_BYTES_MAX {
            return Err(AnswerFault::TooLong);
        }
        match serde_json::from_slice(bytes).map_err(|_| AnswerFault::NotJson)? {
            RawAnswer::Summary(raw) => {
                raw.check(question).map(Self::Summary).ok_or(AnswerFault::OtherQuestion)
            }
            RawAnswer::Failed(EdgeFailure { reason, message }) => {
                Ok(Self::Failed(EdgeFailure::new(&reason, &message)))
            }
        }
    }
}
