//! Reduces a list in its cluster: lists page by page, reads object by object, and answers with an aggregate.
//!
//! No page is kept. Beside the aggregate the agent holds one object and the bytes of one frame, whatever the size of the list.

use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, ACCEPT_ENCODING, CONTENT_TYPE};
use http::request::Parts;
use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body::Body as _;
use http_body_util::Empty;
use policy::action::page_of;
use proto::deadlines::API_SERVER_HEAD_MAX;
use proto::headers::clean_response;
use summary::{
    Aggregate, EDGE_ANSWER_TYPE, EdgeAnswer, EdgeFailure, ListReader, NotAList, Question, SumOverflow,
};
use tokio::task::coop;
use tokio::time::timeout;

use crate::apiserver::{AnswerDeadline, ApiServer, ApiServerError, ResponseBody};

/// Most objects of one page. API servers hold as many in memory at once.
pub(super) const PAGE_OBJECTS_MAX: u32 = 500;

/// Most pages of one list, so that an API server that repeats a page is not asked for ever.
const PAGES_MAX: usize = 10_000;

/// The reason why there is no aggregate.
enum NoAggregate {
    /// The API server has refused the list. Its answer is passed on as it is.
    Refused(Box<Response<ResponseBody>>),
    /// Its answer cannot be reduced.
    Failed(EdgeFailure),
    /// It gave no answer, or an incomplete one.
    Unanswered(ApiServerError),
}

/// Lists what `head` asks for, and answers with the aggregate for this question, or with the API server's refusal.
///
/// # Errors
///
/// [`ApiServerError`] if the API server gives no answer, or not all pages within the deadline.
pub(super) async fn answer(
    api_server: &ApiServer,
    head: &Parts,
    deadline: AnswerDeadline,
    question: &str,
) -> Result<Response<ResponseBody>, ApiServerError> {
    let within = deadline.limit(API_SERVER_HEAD_MAX).unwrap_or(API_SERVER_HEAD_MAX);
    let reduced = match Question::parse(question) {
        Ok(question) => reduce_within(api_server, head, deadline, &question, within).await,
        Err(error) => {
            Err(NoAggregate::failed("NotAQuestion", &format!("this agent cannot read the question: {error}")))
        }
    };
    let answer = match reduced {
        Ok(aggregate) => EdgeAnswer::Summary(aggregate),
        Err(NoAggregate::Failed(failure)) => EdgeAnswer::Failed(failure),
        Err(NoAggregate::Refused(response)) => return Ok(*response),
        Err(NoAggregate::Unanswered(error)) => return Err(error),
    };
    let too_large = |error: summary::TooLarge| {
        // A failure always fits.
        EdgeAnswer::Failed(EdgeFailure::new("TooLarge", &error.to_string())).encode().unwrap_or_default()
    };
    let mut response = Response::new(ResponseBody::of_agent(answer.encode().unwrap_or_else(too_large)));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(EDGE_ANSWER_TYPE));
    Ok(response)
}

async fn reduce_within(
    api_server: &ApiServer,
    head: &Parts,
    deadline: AnswerDeadline,
    question: &Question,
    within: Duration,
) -> Result<Aggregate, NoAggregate> {
    match timeout(within, reduce(api_server, head, deadline, question)).await {
        Ok(reduced) => reduced,
        Err(_) => Err(NoAggregate::Unanswered(ApiServerError::Silent(within))),
    }
}

async fn reduce(
    api_server: &ApiServer,
    head: &Parts,
    deadline: AnswerDeadline,
    question: &Question,
) -> Result<Aggregate, NoAggregate> {
    let (mut aggregate, mut token) = (Aggregate::default(), String::new());
    for _ in 0..PAGES_MAX {
        let mut response = api_server.send_by(page(head, &token)?, deadline).await?;
        if response.status() != StatusCode::OK {
            clean_response(response.headers_mut());
            return Err(NoAggregate::Refused(Box::new(response)));
        }
        token = add_page(response.into_body(), &mut aggregate, question).await?;
        if token.is_empty() {
            return Ok(aggregate);
        }
    }
    Err(NoAggregate::failed(
        "TooManyPages",
        "the API server's list does not end: select fewer objects by labels or fields",
    ))
}

/// Adds the objects of one page. Returns the token of the next one; empty after the last.
async fn add_page(
    mut body: ResponseBody,
    aggregate: &mut Aggregate,
    question: &Question,
) -> Result<String, NoAggregate> {
    let mut reader = ListReader::default();
    while let Some(frame) = poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
        let Ok(data) = frame?.into_data() else { continue };
        reader.push(&data, |object| aggregate.add(object, question).map_err(NoAggregate::from))?;
        // A page may have arrived as a whole, and other tasks run on this thread.
        coop::consume_budget().await;
    }
    Ok(reader.finish()?.continue_token)
}

/// The request for one page, with the identity and the other headers of the first one.
fn page(head: &Parts, token: &str) -> Result<Request<Empty<Bytes>>, ApiServerError> {
    let mut request = Request::new(Empty::new());
    let target = head.uri.path_and_query().and_then(|target| page_of(target, PAGE_OBJECTS_MAX, token).ok());
    *request.uri_mut() =
        target.ok_or(ApiServerError::ProtocolError("it made the path of a page too long"))?.into();
    *request.method_mut() = Method::GET;
    *request.version_mut() = head.version;
    let headers = request.headers_mut();
    headers.clone_from(&head.headers);
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    headers.remove(ACCEPT_ENCODING);
    Ok(request)
}

impl NoAggregate {
    fn failed(reason: &str, message: &str) -> Self {
        Self::Failed(EdgeFailure::new(reason, message))
    }
}

impl From<ApiServerError> for NoAggregate {
    fn from(error: ApiServerError) -> Self {
        Self::Unanswered(error)
    }
}

impl From<NotAList> for NoAggregate {
    fn from(error: NotAList) -> Self {
        Self::failed("NotAList", &error.to_string())
    }
}

impl From<SumOverflow> for NoAggregate {
    fn from(error: SumOverflow) -> Self {
        Self::failed("SumOverflow", &error.to_string())
    }
}
