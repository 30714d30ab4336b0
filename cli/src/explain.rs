//! `tombolo policy`: whether a policy is one, and what it decides.

mod question;

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use daemon::config::{self, LoadError};
use policy::{Document, KIND, PolicyFault, Rules, Verdict};
use serde_json::json;

use crate::args::{PolicyCheck, PolicyExplain, PolicyOutput};
use crate::files::{self, ReadError};
use crate::print;
use question::{NotAQuestion, Question};

/// The exit code of an explanation that ends with a denial.
const DENIED: u8 = 1;

/// The exit code where nothing could be decided.
const NOT_DECIDED: u8 = 2;

/// What a policy by itself cannot know.
const MAY_STILL_REFUSE: &str =
    "A server with policy.delegation in its configuration asks that cluster too, which may still refuse.";

/// Why a policy does not decide.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0}:{1}")]
    Fault(String, PolicyFault),
    #[error(transparent)]
    Question(#[from] NotAQuestion),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Says that nothing is wrong in a policy.
pub(crate) fn check(order: &PolicyCheck) -> Result<(), PolicyError> {
    let rules = read(&order.file)?;
    print::lines(&[format!("{}: {} rules, and nothing wrong in them", order.file.display(), rules.count())])?;
    Ok(())
}

/// Says what a policy decides, and by which rule. Never fails: the exit code says that nothing was decided.
pub(crate) fn explain(order: PolicyExplain) -> ExitCode {
    match decided(order) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => DENIED.into(),
        Err(error) => {
            print::failure(&error);
            NOT_DECIDED.into()
        }
    }
}

fn decided(order: PolicyExplain) -> Result<bool, PolicyError> {
    let (rules, output) = (read(&order.policy)?, order.output);
    let question = Question::of(order)?;
    let verdict = question.put_to(&rules);
    let allowed = verdict.is_allowed();
    match output {
        None => {
            let may = if allowed { "may" } else { "may not" };
            let said = format!("{:?} {may} {question}: {}", question.user, reason(verdict));
            let more = allowed.then(|| MAY_STILL_REFUSE.to_owned());
            print::lines(&[said].into_iter().chain(more).collect::<Vec<_>>())?;
        }
        Some(PolicyOutput::Json) => {
            let rule = verdict.rule().map(AsRef::<str>::as_ref);
            let said = json!({ "allowed": allowed, "rule": rule, "reason": reason(verdict).to_string(),
                "cluster": question.cluster.as_str(), "asked": question.asked(), "delegationMayRefuse": allowed });
            print::lines(&[said.to_string()])?;
        }
    }
    Ok(allowed)
}

/// The rules in a file, if a server would take them.
pub(crate) fn read(path: &Path) -> Result<Rules, PolicyError> {
    let document: Document = config::parse(&files::read(path)?, path, KIND)?;
    Rules::of(&document).map_err(|fault| PolicyError::Fault(path.display().to_string(), fault))
}

fn reason(verdict: Verdict<'_>) -> impl fmt::Display {
    fmt::from_fn(move |f| match verdict {
        Verdict::Allowed(rule) => write!(f, "the rule {rule} allows it"),
        Verdict::Denied(rule) => write!(f, "the rule {rule} denies it"),
        Verdict::NoRule => f.write_str("no rule allows it"),
    })
}
