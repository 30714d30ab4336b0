//! Says which clusters have answered: the header, the warnings and the body say it alike.

use prost_types::Timestamp;
use proto::ClusterId;
use serde_json::{Value, json};

use super::error::{ClusterCauses, ClusterSetError};
use super::outcome::{Failure, Member, Outcome};

/// Most clusters without an answer that warnings name. One more says how many there are.
const WARNINGS_MAX: usize = 10;

/// The longest text of one warning, in characters. The body has all of it.
const WARNING_CHARS_MAX: usize = 200;

/// The outcomes of the clusters that were asked.
#[derive(Debug)]
pub(super) struct Report(Vec<Member<()>>);

impl Report {
    pub(super) fn of<T>(members: &[Member<T>]) -> Self {
        Self(members.iter().map(Member::without_answer).collect())
    }

    /// The number of clusters without an answer.
    pub(super) fn failed(&self) -> usize {
        self.failures().count()
    }

    fn failures(&self) -> impl Iterator<Item = (&ClusterId, &Failure)> {
        self.0.iter().filter_map(|member| match &member.outcome {
            Outcome::Failed(failure) => Some((&member.cluster, failure)),
            Outcome::Fresh(()) | Outcome::Absent => None,
        })
    }

    /// Checks that there is something to answer with. A set without clusters has an empty list.
    ///
    /// # Errors
    /// Nobody has answered, or everybody has answered that there is no such resource.
    pub(super) fn check_answered(&self) -> Result<(), ClusterSetError> {
        let has_answer = self.0.iter().any(|member| matches!(member.outcome, Outcome::Fresh(())));
        if self.0.is_empty() || has_answer {
            return Ok(());
        }
        // Those without an answer may have it.
        Err(if self.failed() > 0 { self.nobody() } else { ClusterSetError::Absent })
    }

    pub(super) fn nobody(&self) -> ClusterSetError {
        ClusterSetError::NobodyAnswered(self.causes())
    }

    pub(super) fn partial(&self) -> ClusterSetError {
        ClusterSetError::Partial(self.causes())
    }

    fn causes(&self) -> ClusterCauses {
        ClusterCauses::new(
            self.failures().map(|(cluster, failure)| (cluster.clone(), failure.clone())).collect(),
        )
    }

    /// The value of the header.
    pub(super) fn counts(&self) -> String {
        let (asked, failed) = (self.0.len(), self.failed());
        format!("asked={asked}, answered={}, failed={failed}", asked - failed)
    }

    /// The values of `Warning` (RFC 7234, section 5.5), which kubectl prints.
    pub(super) fn warnings(&self) -> Vec<String> {
        let named = self.failures().take(WARNINGS_MAX);
        let mut texts: Vec<String> = named
            .map(|(cluster, failure)| format!("{cluster}: {}: {}", failure.reason, failure.message))
            .collect();
        let more = self.failed().saturating_sub(WARNINGS_MAX);
        if more > 0 {
            texts.push(format!("and {more} more clusters have not answered"));
        }
        texts.iter().map(|text| format!("299 - \"{}\"", quotable(text))).collect()
    }

    /// The list `clusters` of a body.
    pub(super) fn json(&self) -> Value {
        let line = |member: &Member<()>| {
            let (state, failure) = match &member.outcome {
                Outcome::Fresh(()) => ("Fresh", None),
                Outcome::Absent => ("Absent", None),
                Outcome::Failed(failure) => ("Failed", Some(failure)),
            };
            let as_of = Timestamp { nanos: 0, ..member.as_of.into() }.to_string();
            let mut said = json!({ "name": member.cluster.as_str(), "state": state, "asOf": as_of });
            if let Some(Failure { reason, message }) = failure {
                said["reason"] = json!(reason);
                said["message"] = json!(message);
            }
            said
        };
        self.0.iter().map(line).collect()
    }
}

/// A text for between quotation marks in a header.
fn quotable(text: &str) -> String {
    let plain = text.chars().map(|character| match character {
        '"' | '\\' => '\'',
        ' '..='~' => character,
        _ => '?',
    });
    let short: String = plain.clone().take(WARNING_CHARS_MAX).collect();
    if text.chars().count() > WARNING_CHARS_MAX { format!("{short}...") } else { short }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(failed: usize) -> Report {
        let fresh = [
            Member::new("a".parse().unwrap(), Outcome::Fresh(())),
            Member::new("b".parse().unwrap(), Outcome::Absent),
        ];
        let failed = (0..failed).map(|number| {
            Member::new(format!("z{number}").parse().unwrap(), Outcome::failed("AgentSilent", "say \"x\"\nü"))
        });
        Report::of(&fresh.into_iter().chain(failed).collect::<Vec<_>>())
    }

    #[test]
    fn all_three_places_name_the_same_clusters() {
        let report = report(3);
        assert_eq!(report.counts(), "asked=5, answered=2, failed=3");
        let warnings = report.warnings();
        assert_eq!(warnings[0], "299 - \"z0: AgentSilent: say 'x'??\"");
        assert_eq!(warnings.len(), 3);
        let body = report.json();
        let states: Vec<&str> =
            body.as_array().unwrap().iter().map(|line| line["state"].as_str().unwrap()).collect();
        assert_eq!(states, ["Fresh", "Absent", "Failed", "Failed", "Failed"]);
        assert_eq!(body[2]["reason"], "AgentSilent");
        assert_eq!(body[2]["message"], "say \"x\"\nü");
    }

    #[test]
    fn warnings_are_ten_and_a_number() {
        let warnings = report(51).warnings();
        assert_eq!(warnings.len(), WARNINGS_MAX + 1);
        assert_eq!(warnings[WARNINGS_MAX], "299 - \"and 41 more clusters have not answered\"");
    }
}
