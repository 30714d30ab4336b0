//! The report of a cell's trial, as it is stored.

use serde::{Deserialize, Serialize};

use super::code::{Code, Request, Timing};

/// One cell: a fault, how far the requests were, a seed.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CellReport {
    /// The ID of the row.
    pub row: String,
    /// The stage of the requests.
    pub timing: Timing,
    /// The seed from which all chance was drawn.
    pub seed: u64,
    /// Seconds from the fault's begin until the server reported it; absent where it never did.
    pub noticed: Option<f64>,
    /// The observation of each request.
    pub observed: Vec<Observed>,
    /// Observations beyond the requests that are never allowed.
    pub wrong: Vec<String>,
    /// The effect on a caller of another cluster.
    #[serde(default)]
    pub bystander: Option<BystanderSummary>,
}

/// The effect of a fault on a bystander.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct BystanderSummary {
    /// The 99th percentile of its requests before the fault, in ms.
    pub before_ms: f64,
    /// The same percentile during the fault.
    pub during_ms: f64,
    /// Number of requests that it sent.
    pub asked: usize,
    /// Number of these that failed.
    pub failed: usize,
}

/// The observation of one request.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Observed {
    /// The kind of the request.
    pub request: Request,
    /// The outcome of the request.
    pub code: Code,
    /// A description of the outcome.
    pub detail: String,
    /// Seconds from the fault's begin until its caller got an error.
    pub noticed: Option<f64>,
    /// Seconds from the fault's end until something came again.
    pub resumed: Option<f64>,
    /// Bytes or events that are missing from an answer that looked complete.
    pub lost: u64,
    /// Events or writes that came twice.
    pub twice: u64,
}

impl CellReport {
    /// The empty report of a cell.
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
