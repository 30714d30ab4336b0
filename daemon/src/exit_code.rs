//! The outcome of a daemon's run, and its exit code.

use std::{error::Error, io::Write as _, process::ExitCode};

use crate::{error_chain::error_chain, scope::GraceExceeded};

/// The outcome of a daemon's run.
#[derive(Debug)]
#[must_use = "the exit code comes from it"]
pub enum Outcome {
    /// It drained on request, or had no more to do, and all work ended by itself.
    Drained,
    /// It failed without a request to stop.
    Failed(Failure),
    /// Work was still running at the end of the grace period and was cut off.
    GraceExceeded(GraceExceeded),
    /// A second signal aborted running work.
    Aborted,
}

/// The reason why a daemon cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// Flags, environment or file are wrong. A restart does not help.
    #[error("the configuration is wrong")]
    Misconfigured(#[source] Box<dyn Error + Send + Sync>),
    /// Any other reason: a port in use, a lost disk. A restart may help.
    #[error("could not go on")]
    CouldNotGoOn(#[source] Box<dyn Error + Send + Sync>),
}

impl Outcome {
    /// The exit code, for supervisors that restart the process:
    ///
    /// | code | meaning |
    /// |---|---|
    /// | 0 | drained cleanly |
    /// | 1 | could not go on |
    /// | 2 | usage or configuration wrong (clap's code for wrong flags, too) |
    /// | 3 | the grace period passed and running work was cut off |
    /// | 4 | aborted by a second signal |
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Drained => 0,
            Self::Failed(Failure::CouldNotGoOn(_)) => 1,
            Self::Failed(Failure::Misconfigured(_)) => 2,
            Self::GraceExceeded(_) => 3,
            Self::Aborted => 4,
        }
    }
}

impl Failure {
    /// An error of the configuration, for `map_err`: exit code 2.
    pub fn misconfigured(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::Misconfigured(error.into())
    }

    /// Any other error, for `map_err`: exit code 1.
    pub fn could_not_go_on(error: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        Self::CouldNotGoOn(error.into())
    }
}

/// Reports how the daemon ended, in the log if it is installed, else on stderr. Returns the exit code.
pub fn conclude(ended: Result<Outcome, Failure>) -> ExitCode {
    let outcome = ended.unwrap_or_else(Outcome::Failed);
    let code = outcome.exit_code();
    match &outcome {
        Outcome::Drained => tracing::info!(code, "drained"),
        Outcome::Failed(failure) if tracing::dispatcher::has_been_set() => {
            tracing::error!(code, error = %error_chain(failure), "stopped");
        }
        Outcome::Failed(failure) => {
            // A broken stderr cannot be reported anywhere.
            let _ = writeln!(std::io::stderr(), "error: {}", error_chain(failure));
        }
        Outcome::GraceExceeded(exceeded) => {
            tracing::warn!(code, cut = exceeded.cut, "the grace period passed, running work was cut off");
        }
        Outcome::Aborted => tracing::warn!(code, "aborted by a second signal"),
    }
    ExitCode::from(code)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn every_outcome_has_its_own_code() {
        let outcomes = [
            Outcome::Drained,
            Outcome::Failed(Failure::could_not_go_on("no disk")),
            Outcome::Failed(Failure::misconfigured("no such key")),
            Outcome::GraceExceeded(GraceExceeded { cut: 1, grace: Duration::from_secs(1) }),
            Outcome::Aborted,
        ];

        let codes: Vec<u8> = outcomes.iter().map(Outcome::exit_code).collect();

        assert_eq!(codes, [0, 1, 2, 3, 4]);
    }
}
