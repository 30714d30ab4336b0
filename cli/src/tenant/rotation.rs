//! The steps in which all CAs of a tenant are exchanged, and how far an exchange has come.

use std::time::SystemTime;

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use crate::names::RotationStep;

/// An exchange that is under way.
#[derive(Serialize, Deserialize, Debug, Clone, PartialEq, Eq)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct Rotation {
    /// The last step that was begun.
    pub(super) step: RotationStep,
    /// The time at which all parts had it, RFC 3339. Without it, the step was interrupted or has failed.
    pub(super) completed: Option<String>,
}

/// A step cannot be taken now.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum NotYet {
    #[error("no exchange of CAs is under way; begin with --step trust")]
    NotBegun,
    #[error("the step {0} is not complete; run --step {0} again to go on with it")]
    Incomplete(RotationStep),
    #[error("the step {0} comes before; run --step {0} first")]
    Skipped(RotationStep),
    #[error("the exchange is in the step {0} already, and never goes back")]
    Past(RotationStep),
}

/// A step that can be taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Admitted {
    /// It is taken for the first time.
    Begins,
    /// It was begun, and goes on.
    GoesOn,
    /// It is complete, and there is nothing to do.
    IsComplete,
}

/// Decides whether a step can be taken after what was done so far.
///
/// # Errors
/// [`NotYet`]
pub(super) fn admit(step: RotationStep, rotation: Option<&Rotation>) -> Result<Admitted, NotYet> {
    let Some(rotation) = rotation else {
        return if step == RotationStep::Trust { Ok(Admitted::Begins) } else { Err(NotYet::NotBegun) };
    };
    if rotation.step == step {
        return Ok(if rotation.is_complete() { Admitted::IsComplete } else { Admitted::GoesOn });
    }
    if rotation.step > step {
        return Err(NotYet::Past(rotation.step));
    }
    match step.predecessor() {
        Some(before) if before != rotation.step => Err(NotYet::Skipped(before)),
        _ if !rotation.is_complete() => Err(NotYet::Incomplete(rotation.step)),
        _ => Ok(Admitted::Begins),
    }
}

impl Rotation {
    /// A step that begins now.
    pub(super) fn begun(step: RotationStep) -> Self {
        Self { step, completed: None }
    }

    /// The same step, complete at this time.
    pub(super) fn complete(self, now: SystemTime) -> Self {
        let completed = OffsetDateTime::from(now).format(&Rfc3339).ok();
        Self { completed, ..self }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.completed.is_some()
    }

    /// The time at which the step was complete.
    pub(super) fn completed_at(&self) -> Option<OffsetDateTime> {
        OffsetDateTime::parse(self.completed.as_deref()?, &Rfc3339).ok()
    }

    /// The state for people, with the command that comes next.
    pub(super) fn text(&self, tenant: &str) -> String {
        let command = |step| format!("tombolo tenant certificates rotate-ca {tenant} --step {step}");
        match (&self.completed, self.step) {
            (None, step) => format!("the step {step} is not complete; go on: {}", command(step)),
            (Some(at), RotationStep::Trust) => {
                format!("everything trusts both since {at}; next: {}", command(RotationStep::Issue))
            }
            (Some(at), RotationStep::Issue | RotationStep::Finish) => {
                format!("the next ones issue since {at}; next: {}", command(RotationStep::Finish))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_step_waits_until_its_predecessor_is_complete() {
        use RotationStep::{Finish, Issue, Trust};
        let begun = |step| Some(Rotation::begun(step));
        let complete = |step| Some(Rotation::begun(step).complete(SystemTime::UNIX_EPOCH));
        for (step, rotation, expected) in [
            (Trust, None, Ok(Admitted::Begins)),
            (Issue, None, Err(NotYet::NotBegun)),
            (Finish, None, Err(NotYet::NotBegun)),
            (Trust, begun(Trust), Ok(Admitted::GoesOn)),
            (Issue, begun(Trust), Err(NotYet::Incomplete(Trust))),
            (Finish, begun(Trust), Err(NotYet::Skipped(Issue))),
            (Trust, complete(Trust), Ok(Admitted::IsComplete)),
            (Issue, complete(Trust), Ok(Admitted::Begins)),
            (Finish, complete(Trust), Err(NotYet::Skipped(Issue))),
            (Trust, begun(Issue), Err(NotYet::Past(Issue))),
            (Issue, begun(Issue), Ok(Admitted::GoesOn)),
            (Finish, begun(Issue), Err(NotYet::Incomplete(Issue))),
            (Finish, complete(Issue), Ok(Admitted::Begins)),
            (Issue, begun(Finish), Err(NotYet::Past(Finish))),
            (Finish, begun(Finish), Ok(Admitted::GoesOn)),
        ] {
            assert_eq!(admit(step, rotation.as_ref()), expected, "{step} after {rotation:?}");
        }
    }
}
