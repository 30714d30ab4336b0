//! `tombolo policy`: checks a policy file, and explains its decisions.

mod question;

use std::fmt;
use std::io;
use std::path::Path;
use std::process::ExitCode;

use daemon::config::{self, LoadError};
use policy::{Document, DocumentError, KIND, Rules, Verdict};
use serde_json::json;

use crate::args::{PolicyCheck, PolicyExplain, PolicyOutput};
use crate::files::{self, ReadError};
use crate::print;
use question::{Question, QuestionError};

/// The exit code of `explain` for a denied request.
const DENIED: u8 = 1;

/// The exit code of `explain` if nothing was decided.
const NOT_DECIDED: u8 = 2;

/// A limit of every explanation: the policy file does not know the answer of the delegated cluster.
const MAY_STILL_REFUSE: &str =
    "A server with policy.delegation in its configuration asks that cluster too, which may still refuse.";

/// The error if a policy could not be used for a decision.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PolicyError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Load(#[from] LoadError),
    #[error("{0}:{1}")]
    Fault(String, DocumentError),
    #[error(transparent)]
    Question(#[from] QuestionError),
    #[error("cannot print")]
    Print(#[from] io::Error),
}

/// Checks a policy, and prints how many rules it has, and which of them could surprise their author.
pub(crate) fn check(args: &PolicyCheck) -> Result<(), PolicyError> {
    let rules = read(&args.file)?;
    let (file, count) = (args.file.display(), rules.count());
    let mut lines = vec![format!("{file}: {count} rules, and nothing wrong in them")];
    lines.extend(rules.notices().iter().map(|notice| format!("{file}: note: {notice}")));
    print::lines(&lines)?;
    Ok(())
}

/// Prints the decision of a policy with its rule. The exit code tells allowed, denied and undecided apart.
pub(crate) fn explain(args: PolicyExplain) -> ExitCode {
    match print_decision(args) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => DENIED.into(),
        Err(error) => {
            print::failure(&error);
            NOT_DECIDED.into()
        }
    }
}

fn print_decision(args: PolicyExplain) -> Result<bool, PolicyError> {
    let (rules, output) = (read(&args.policy)?, args.output);
    let question = Question::from_args(args)?;
    let verdict = question.decide(&rules);
    let allowed = verdict.is_allowed();
    match output {
        None => {
            let may = if allowed { "may" } else { "may not" };
            let line = format!("{:?} {may} {question}: {}", question.user, reason(verdict));
            let more = allowed.then(|| MAY_STILL_REFUSE.to_owned());
            print::lines(&[line].into_iter().chain(more).collect::<Vec<_>>())?;
        }
        Some(PolicyOutput::Json) => {
            let rule = verdict.rule().map(AsRef::<str>::as_ref);
            let object = json!({ "allowed": allowed, "rule": rule, "reason": reason(verdict).to_string(),
                "cluster": question.cluster.as_str(), "asked": question.asked(), "delegationMayRefuse": allowed });
            print::lines(&[object.to_string()])?;
        }
    }
    Ok(allowed)
}

/// Reads the rules of a policy file. Refuses every file that a server would refuse.
pub(crate) fn read(path: &Path) -> Result<Rules, PolicyError> {
    let document: Document = config::parse(&files::read(path)?, path, KIND)?;
    Rules::from_document(&document).map_err(|fault| PolicyError::Fault(path.display().to_string(), fault))
}

fn reason(verdict: Verdict<'_>) -> impl fmt::Display {
    fmt::from_fn(move |f| match verdict {
        Verdict::Allowed(rule) => write!(f, "the rule {rule} allows it"),
        Verdict::Denied(rule) => write!(f, "the rule {rule} denies it"),
        Verdict::DeniedInPart(rule) => {
            write!(f, "the rule {rule} denies it in some namespaces, and the request spans all of them")
        }
        Verdict::NoRule => f.write_str("no rule allows it"),
    })
}
