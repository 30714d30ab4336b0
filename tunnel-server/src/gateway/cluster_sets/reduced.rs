//! Summaries of several clusters as one.

use summary::{Aggregate, Question as SummaryQuestion};

use super::accepted::Accepted;
use super::answer::SetAnswer;
use super::outcome::{Member, Outcome};
use super::question::Answered;
use super::report::Report;
use crate::gateway::refusal::Refusal;
use crate::gateway::summaries;
use crate::gateway::summary_error::SummaryError;

/// Merges the summaries of all clusters that have answered with one.
///
/// # Errors
/// No cluster has answered, none has the resource, or a sum is too large.
pub(super) fn merge(
    members: Vec<Member<Answered>>,
    question: &SummaryQuestion,
) -> Result<SetAnswer, Refusal> {
    let members: Vec<Member<Aggregate>> = members.into_iter().map(|member| read(member, question)).collect();
    let report = Report::of(&members);
    report.check_answered()?;
    let mut merged = Aggregate::default();
    for member in members {
        if let Outcome::Fresh(aggregate) = member.outcome {
            merged.merge(aggregate, question).map_err(SummaryError::from)?;
        }
    }
    Ok(SetAnswer::json(summaries::document(&merged, &report.json()), Accepted::Json, report))
}

fn read(member: Member<Answered>, question: &SummaryQuestion) -> Member<Aggregate> {
    let cluster = member.cluster.clone();
    member.and_then(|Answered { body, content_type }| {
        match summaries::parse(&cluster, content_type.as_ref(), &body, question) {
            Ok(aggregate) => Outcome::Fresh(aggregate),
            Err(error) => Outcome::failed(error.reason(), error.to_string()),
        }
    })
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use http::HeaderValue;
    use summary::EDGE_ANSWER_TYPE;

    use super::*;

    fn member(cluster: &str, content_type: &'static str, body: &'static str) -> Member<Answered> {
        let content_type = Some(HeaderValue::from_static(content_type));
        let answered = Answered { body: Bytes::from_static(body.as_bytes()), content_type };
        Member::new(cluster.parse().unwrap(), Outcome::Fresh(answered))
    }

    fn question() -> SummaryQuestion {
        SummaryQuestion::parse(r#"{"groupBy":[".a"]}"#).unwrap()
    }

    const ONE: &str = r#"{"summary":{"items":1,"groups":[{"key":["x"],"count":1}]}}"#;

    #[test]
    fn the_answers_of_some_are_merged_and_the_failures_are_named() {
        let members = vec![
            member("a", EDGE_ANSWER_TYPE, ONE),
            member("b", EDGE_ANSWER_TYPE, ONE),
            member("c", EDGE_ANSWER_TYPE, r#"{"failed":{"reason":"NotAList","message":"no list"}}"#),
            member("d", "application/json", r#"{"kind":"PodList","items":[]}"#),
            member("e", EDGE_ANSWER_TYPE, "{}"),
        ];
        let answer = merge(members, &question()).unwrap().response(false).unwrap();
        assert_eq!(answer.headers()["tombolo-clusters"], "asked=5, answered=2, failed=3");
    }

    #[test]
    fn there_is_no_summary_if_nobody_has_answered_with_one() {
        let refused = merge(vec![member("a", EDGE_ANSWER_TYPE, "garbage")], &question()).unwrap_err();
        assert_eq!(refused.cause(), "NobodyAnswered");
    }

    #[test]
    fn sums_that_cannot_be_merged_are_refused_in_words() {
        const LARGE: &str = r#"{"summary":{"items":18446744073709551615}}"#;
        let members = vec![member("a", EDGE_ANSWER_TYPE, LARGE), member("b", EDGE_ANSWER_TYPE, LARGE)];
        let refused = merge(members, &question()).unwrap_err();
        assert_eq!(refused.cause(), "NotReduced");
    }
}
