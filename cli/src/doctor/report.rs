//! The results of the checks, as lines for people or JSON for programs, and the exit code that follows from them.

use std::error::Error;

use proto::help::{Anchor, Reference, TROUBLESHOOTING};
use proto::name_text::is_invisible;
use serde_json::{Value, json};

use super::check::Check;

/// Exit code if no check failed. There may be warnings.
const EXIT_HEALTHY: u8 = 0;

/// Exit code if at least one check failed.
const EXIT_FAILED: u8 = 1;

/// Exit code if there was nothing to check: a configuration or a kubeconfig cannot be read. Wrong usage has the same code.
const EXIT_UNUSABLE: u8 = 2;

/// The findings of all checks, in the order of the checks.
#[derive(Debug, Default)]
pub(crate) struct Report {
    findings: Vec<Finding>,
    /// True if the file to check by cannot be used, so that nothing else was checked.
    is_unusable: bool,
}

/// The result of one check.
#[derive(Debug)]
struct Finding {
    check: Check,
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
    pub(super) fn ok(&mut self, check: Check, found: impl Into<String>) {
        self.add(check, Verdict::Ok, found.into(), None);
    }

    pub(super) fn warn(&mut self, check: Check, found: impl Into<String>, advice: impl Into<String>) {
        self.add(check, Verdict::Warning, found.into(), Some(advice.into()));
    }

    pub(super) fn fail(&mut self, check: Check, found: impl Into<String>, advice: impl Into<String>) {
        self.add(check, Verdict::Failed, found.into(), Some(advice.into()));
    }

    /// A failure whose error message already says what to do.
    pub(super) fn fail_by(&mut self, check: Check, error: &dyn Error) {
        self.add(check, Verdict::Failed, daemon::error_chain(error).to_string(), None);
    }

    /// Reports that the configuration or the kubeconfig cannot be used, which leaves nothing to check.
    pub(super) fn unusable(&mut self, check: Check, found: impl Into<String>, advice: impl Into<String>) {
        self.set_unusable();
        self.fail(check, found, advice);
    }

    /// The failure that was just reported leaves nothing to check.
    pub(super) fn set_unusable(&mut self) {
        self.is_unusable = true;
    }

    /// The lines of what failed, for a command that goes on only without a failure.
    pub(crate) fn failures(&self) -> String {
        let failed = self.findings.iter().filter(|finding| finding.verdict == Verdict::Failed);
        let sentence = |Finding { found, advice, .. }: &Finding| match advice {
            Some(advice) => format!("{found}; {advice}"),
            None => found.clone(),
        };
        failed.map(sentence).collect::<Vec<_>>().join("; ")
    }

    /// 0 without a failure, 1 with one, and 2 if the file to check by cannot be used.
    pub(crate) fn exit_code(&self) -> u8 {
        match (self.is_unusable, self.is_failed()) {
            (true, _) => EXIT_UNUSABLE,
            (false, true) => EXIT_FAILED,
            (false, false) => EXIT_HEALTHY,
        }
    }

    /// One line for each finding. If any is not ok, a last line refers to the headings of the documentation.
    pub(crate) fn lines(&self) -> Vec<String> {
        let width =
            self.findings.iter().map(|finding| finding.check.as_str().len()).max().unwrap_or_default();
        let findings = self.findings.iter().map(|Finding { check, verdict, found, advice }| {
            let (check, verdict) = (check.as_str(), verdict.as_str());
            let advice = advice.as_ref().map_or_else(String::new, |advice| format!("; {advice}"));
            one_line(&format!("{verdict:<7}   {check:<width$}   {found}{advice}"))
        });
        findings.chain(self.reference()).collect()
    }

    /// The line with the page that explains the checks, and with the anchor of each one that is not ok.
    fn reference(&self) -> Option<String> {
        let mut anchors: Vec<String> = Vec::new();
        for finding in self.findings.iter().filter(|finding| finding.verdict != Verdict::Ok) {
            let anchor = Anchor(finding.check.as_str()).to_string();
            if !anchors.contains(&anchor) {
                anchors.push(anchor);
            }
        }
        (!anchors.is_empty()).then(|| format!("help      {TROUBLESHOOTING}{}", anchors.join(", ")))
    }

    /// The findings as JSON, with the keys `failed`, `exitCode` and `checks`.
    pub(crate) fn json(&self) -> String {
        let checks: Vec<Value> = self
            .findings
            .iter()
            .map(|finding| {
                json!({
                    "check": finding.check.as_str(),
                    "result": finding.verdict.as_str(),
                    "message": finding.found,
                    "advice": finding.advice,
                    "help": Reference(finding.check.as_str()).to_string(),
                })
            })
            .collect();
        format!("{:#}", json!({ "failed": self.is_failed(), "exitCode": self.exit_code(), "checks": checks }))
    }

    /// Tells whether at least one check failed.
    fn is_failed(&self) -> bool {
        self.findings.iter().any(|finding| finding.verdict == Verdict::Failed)
    }

    fn add(&mut self, check: Check, verdict: Verdict, found: String, advice: Option<String>) {
        self.findings.push(Finding { check, verdict, found, advice });
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
        report.ok(Check::Clock, "is right");
        report.warn(Check::Certificate, "ends\nsoon", "renew it");

        assert_eq!(
            report.lines(),
            [
                "ok        clock         is right",
                "warning   certificate   ends soon; renew it",
                "help      docs/operate/troubleshooting.md#certificate",
            ]
        );

        report.fail(Check::Readiness, "says no", "look at its log");
        let json: Value = serde_json::from_str(&report.json()).unwrap();
        assert_eq!((&json["failed"], &json["exitCode"]), (&Value::Bool(true), &Value::from(1)));
        let failed = json!({ "check": "readiness", "result": "failed", "message": "says no", "advice": "look at its log",
            "help": "docs/operate/troubleshooting.md#readiness" });
        assert_eq!(json["checks"][2], failed);
        assert_eq!(json["checks"][0]["advice"], Value::Null);
    }

    #[test]
    fn a_report_without_a_problem_has_no_reference() {
        let mut report = Report::default();
        report.ok(Check::Clock, "is right");
        assert_eq!(report.lines(), ["ok        clock   is right"]);
        for check in [Check::Rights, Check::TunnelQuic, Check::Rights] {
            report.fail(check, "is wrong", "mend it");
        }
        let last = report.lines().pop();
        assert_eq!(last.as_deref(), Some("help      docs/operate/troubleshooting.md#rights, #tunnel-quic"));
    }

    #[test]
    fn warnings_are_healthy_and_an_unusable_file_is_no_failed_check() {
        let mut report = Report::default();
        assert_eq!(report.exit_code(), 0);
        report.warn(Check::TunnelQuic, "UDP is blocked", "allow it");
        assert_eq!(report.exit_code(), 0);
        report.fail(Check::Rights, "there are none", "bind them");
        assert_eq!(report.exit_code(), 1);
        report.unusable(Check::Configuration, "it is not there", "write it");
        assert_eq!(report.exit_code(), 2);
    }
}
