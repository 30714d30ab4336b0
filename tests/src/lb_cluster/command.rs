//! A command on a worker, run to its end.

use std::time::Duration;

use crate::process::{Invocation, run};

/// Longest run of one command. A join waits for a certificate and a Node.
const COMMAND_MAX: Duration = Duration::from_secs(180);

/// The end of a command.
#[derive(Debug)]
pub struct Ended {
    /// True if its exit code is 0.
    pub is_done: bool,
    /// Its errors, and then its output.
    pub said: String,
    /// Its output without its errors.
    pub out: String,
}

impl Ended {
    /// Runs it to its end.
    ///
    /// # Panics
    /// If it does not run, or does not end in time.
    pub async fn of(program: &Invocation) -> Self {
        Self::within(COMMAND_MAX, program).await
    }

    /// The same with another limit.
    ///
    /// # Panics
    /// If it does not run, or does not end in time.
    pub async fn within(limit: Duration, program: &Invocation) -> Self {
        let output = run(program, limit).await.expect("it runs");
        let [out, error] =
            [&output.stdout, &output.stderr].map(|text| String::from_utf8_lossy(text).into_owned());
        Self { is_done: output.status.success(), said: format!("{error}{out}"), out }
    }
}
