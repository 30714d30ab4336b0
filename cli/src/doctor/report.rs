//! The results of the checks, as lines for people or JSON for programs.

use std::error::Error;

use proto::name_text::is_invisible;
use serde_json::{Value, json};

/// The findings of all checks, in the order of the checks.
#[derive(Debug, Default)]
pub(crate) struct Report(Vec<Finding>);

/// The result of one check.
#[derive(Debug)]
struct Finding {
    check: &'static str,
    verdict: Verdict,
    found: String,
    /// Advice on how to fix it; absent if nothing is wrong.
    advice: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Ok,
    Warning,
    Failed,
}

impl Report {
    pub(super) fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.0.push(Finding { check, verdict: Verdict::Ok, found: found.into(), advice: None });
    }

    pub(super) fn warn(&mut self, check: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        let advice = Some(advice.into());
        self.0.push(Finding { check, verdict: Verdict::Warning, found: found.into(), advice });
    }

    pub(super) fn fail(&mut self, check: &'static str, found: impl Into<String>, advice: impl Into<String>) {
        let advice = Some(advice.into());
        self.0.push(Finding { check, verdict: Verdict::Failed, found: found.into(), advice });
    }

    /// A failure whose error message already says what to do.
    pub(super) fn fail_by(&mut self, check: &'static str, error: &dyn Error) {
        self.0.push(Finding {
            check,
            verdict: Verdict::Failed,
            found: daemon::error_chain(error).to_string(),
            advice: None,
        });
    }

    /// Tells whether at least one check failed.
    pub(crate) fn is_failed(&self) -> bool {
        self.0.iter().any(|finding| finding.verdict == Verdict::Failed)
    }

    /// One line for each finding.
    pub(crate) fn lines(&self) -> Vec<String> {
        let width = self.0.iter().map(|finding| finding.check.len()).max().unwrap_or_default();
        self.0
            .iter()
            .map(|Finding { check, verdict, found, advice }| {
                let advice = advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"));
                one_line(&format!("{:<7}   {check:<width$}   {found}{advice}", verdict.as_str()))
            })
            .collect()
    }

    /// The findings as JSON, with the keys `failed` and `checks`.
    pub(crate) fn json(&self) -> String {
        let checks: Vec<Value> = self
            .0
            .iter()
            .map(|finding| {
                json!({
                    "check": finding.check,
                    "verdict": finding.verdict.as_str(),
                    "found": finding.found,
                    "advice": finding.advice,
                })
            })
            .collect();
        format!("{:#}", json!({ "failed": self.is_failed(), "checks": checks }))
    }
}

impl Verdict {
    fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Failed => "failed",
        }
    }
}

/// Replaces control and invisible characters, because text from the network must neither steer the terminal nor begin a line.
fn one_line(text: &str) -> String {
    text.chars().map(|c| if is_invisible(c) { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_finding_is_one_line_with_what_to_do() {
        let mut report = Report::default();
        report.ok("clock", "is right");
        report.warn("certificate", "ends\nsoon", "renew it");

        assert_eq!(
            report.lines(),
            ["ok        clock         is right", "warning   certificate   ends soon; renew it"]
        );
        assert!(!report.is_failed());

        report.fail("readyz", "says no", "look at its log");
        assert!(report.is_failed());
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!(
            (&json["failed"], &json["checks"][2]["verdict"]),
            (&Value::Bool(true), &Value::from("failed"))
        );
    }
}
