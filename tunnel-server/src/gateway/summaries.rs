//! Summaries: reads the aggregate that an agent has made of a list, and writes the answer to the caller.

use std::future::poll_fn;

use bytes::{Bytes, BytesMut};
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response, StatusCode};
use proto::ClusterId;
use serde_json::{Value, json};
use summary::{Aggregate, EDGE_ANSWER_TYPE, ENCODED_BYTES_MAX, EdgeAnswer, Question};

use super::body::{AnswerBody, passed};
use super::summary_error::SummaryError;
use crate::forwarding::exchange::TunnelResponse;
use crate::limits::LimitGuard;

/// The answer to a caller that has asked one cluster: the summary with the list `clusters`, or the refusal of the API server as it came.
///
/// # Errors
/// [`SummaryError`]
pub(super) async fn of_cluster(
    answer: TunnelResponse,
    (cluster, clusters): (&ClusterId, &Value),
    question: &Question,
    limit_guard: LimitGuard,
) -> Result<Response<AnswerBody>, SummaryError> {
    if answer.response.status() != StatusCode::OK {
        return Ok(passed(answer, limit_guard));
    }
    let (head, mut body) = answer.response.into_parts();
    let mut bytes = BytesMut::new();
    // The check of the type comes first, so that a list of an agent that does not reduce is not read.
    check_type(cluster, head.headers.get(CONTENT_TYPE))?;
    while let Some(frame) = poll_fn(|cx| body.poll_frame(cx)).await {
        let frame = frame.map_err(|_| SummaryError::BrokenOff(cluster.clone()))?;
        let Ok(data) = frame.into_data() else { continue };
        bytes.extend_from_slice(&data);
        if bytes.len() > ENCODED_BYTES_MAX {
            break;
        }
    }
    let aggregate = decode(cluster, &bytes, question)?;
    let mut response = Response::new(AnswerBody::text(document(&aggregate, clusters)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Reads the answer of one agent.
///
/// # Errors
/// [`SummaryError`]
pub(super) fn parse(
    cluster: &ClusterId,
    content_type: Option<&HeaderValue>,
    bytes: &Bytes,
    question: &Question,
) -> Result<Aggregate, SummaryError> {
    check_type(cluster, content_type)?;
    decode(cluster, bytes, question)
}

/// The document of a summary, with the states of the clusters that were asked.
pub(super) fn document(aggregate: &Aggregate, clusters: &Value) -> String {
    json!({
        "kind": "Summary",
        "apiVersion": "tombolo.dev/v1alpha1",
        "clusters": clusters,
        "summary": aggregate,
    })
    .to_string()
}

fn check_type(cluster: &ClusterId, content_type: Option<&HeaderValue>) -> Result<(), SummaryError> {
    let is_reduced = content_type.is_some_and(|value| value == EDGE_ANSWER_TYPE);
    if is_reduced { Ok(()) } else { Err(SummaryError::NotReducing(cluster.clone())) }
}

fn decode(cluster: &ClusterId, bytes: &[u8], question: &Question) -> Result<Aggregate, SummaryError> {
    match EdgeAnswer::decode(bytes, question) {
        Ok(EdgeAnswer::Summary(mut aggregate)) => {
            // The name comes from the agent's certificate, and never from what it says.
            aggregate.set_cluster(cluster.as_str());
            Ok(aggregate)
        }
        Ok(EdgeAnswer::Failed(failure)) => Err(SummaryError::NotReduced(cluster.clone(), failure)),
        Err(fault) => Err(SummaryError::NotASummary(cluster.clone(), fault)),
    }
}

#[cfg(test)]
mod tests {
    use summary::{AnswerFault, EdgeFailure};

    use super::*;

    fn read(content_type: &'static str, body: &'static [u8]) -> Result<Aggregate, SummaryError> {
        let content_type = HeaderValue::from_static(content_type);
        parse(&cluster(), Some(&content_type), &Bytes::from_static(body), &question())
    }

    fn question() -> Question {
        Question::parse(r#"{"select":[".a"]}"#).unwrap()
    }

    fn cluster() -> ClusterId {
        "edge-a".parse().unwrap()
    }

    #[test]
    fn an_agent_names_no_cluster_in_its_summary() {
        let body = br#"{"summary":{"items":1,"rows":[{"name":"x","cluster":"edge-b","cells":[null]}]}}"#;
        let aggregate = read(EDGE_ANSWER_TYPE, body).unwrap();
        assert_eq!(aggregate.rows().next().unwrap().cluster, "edge-a");
        let document: Value = serde_json::from_str(&document(&aggregate, &json!([]))).unwrap();
        assert_eq!(document["kind"], "Summary");
        assert_eq!(document["summary"]["rows"][0]["cluster"], "edge-a");
    }

    #[test]
    fn a_list_in_place_of_a_summary_is_refused_by_its_type() {
        let refused = read("application/json", br#"{"kind":"PodList","items":[]}"#).unwrap_err();
        assert_eq!(refused, SummaryError::NotReducing(cluster()));
    }

    #[test]
    fn a_garbled_answer_and_a_failure_at_the_edge_are_named() {
        let cluster = cluster();
        let garbled = read(EDGE_ANSWER_TYPE, b"{]").unwrap_err();
        assert_eq!(garbled, SummaryError::NotASummary(cluster.clone(), AnswerFault::NotJson));
        let failed = read(EDGE_ANSWER_TYPE, br#"{"failed":{"reason":"NotAList","message":"no list"}}"#);
        let failure = EdgeFailure::new("NotAList", "no list");
        assert_eq!(failed, Err(SummaryError::NotReduced(cluster, failure)));
    }
}
