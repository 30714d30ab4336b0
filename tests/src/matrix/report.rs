//! What a trial of a cell observed, as it is kept.

use serde::{Deserialize, Serialize};

use super::code::{Code, Request, Timing};

/// One cell: a fault, how far the requests were, a seed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellReport {
    /// The row's id.
    pub row: String,
    /// How far the requests were.
    pub timing: Timing,
    /// From which all chance was drawn.
    pub seed: u64,
    /// Seconds from the fault's begin until the server told of it; absent where it never did.
    pub noticed: Option<f64>,
    /// What each request saw.
    pub observed: Vec<Observed>,
    /// What must never be, beyond what a request saw.
    pub wrong: Vec<String>,
    /// What somebody noticed who asks of another cluster.
    #[serde(default)]
    pub bystander: Option<BystanderSummary>,
}

/// What a bystander noticed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BystanderSummary {
    /// The 99th percentile of its requests before the fault, in ms.
    pub before_ms: f64,
    /// The same during it.
    pub during_ms: f64,
    /// How many it asked.
    pub asked: usize,
    /// How many of these failed.
    pub failed: usize,
}

/// What one request saw.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// Which.
    pub request: Request,
    /// In a word.
    pub code: Code,
    /// In more words.
    pub detail: String,
    /// Seconds from the fault's begin until its caller was told.
    pub noticed: Option<f64>,
    /// Seconds from the fault's end until something came again.
    pub resumed: Option<f64>,
    /// Bytes or events that are missing from what was taken for whole.
    pub lost: u64,
    /// Events or writes that came twice.
    pub twice: u64,
}

impl CellReport {
    /// A report of a cell of which nothing is known yet.
    pub fn new(row: &str, timing: Timing, seed: u64) -> Self {
        Self {
            row: row.to_owned(),
            timing,
            seed,
            noticed: None,
            observed: Vec::new(),
            wrong: Vec::new(),
            bystander: None,
        }
    }
}
