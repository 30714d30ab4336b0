//! Reads of cluster sets: one request is asked of every cluster of the set that its caller may reach, and the answers become one.
//!
//! Each cluster is asked under a permit, an audit entry and a seat of its own (`member`). Clusters are asked in the order of their
//! names, page by page (`pages`). Those without an answer are named in a header, in warnings and in the body (`report`), so
//! that nobody takes a part for the whole.

pub(super) mod accepted;
mod answer;
pub(super) mod columns;
mod continue_token;
mod discovery;
mod error;
mod list;
mod named;
mod object;
mod outcome;
mod pages;
mod question;
mod reduced;
mod report;
pub(super) mod resources;
mod room;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderMap, Request, Response};
use policy::ClusterFacts;
use policy::action::{SetRead, SetReadKind};
use proto::ClusterId;
use proto::wire::Assert;
use serde_json::Value;
use tokio::time::Instant;

use super::body::AnswerBody;
use super::guarded_body::CallerBody;
use super::peer::Peer;
use super::refusal::Refusal;
use super::state::Gateway;
use crate::forwarding::park_timeout::time_to_answer;
use crate::identity::Caller;
use accepted::Accepted;
use continue_token::Position;
use outcome::{Member, Outcome};
use pages::{Page, Pages};
use question::{Answered, Question};
use report::Report;

pub(super) use error::ClusterCauses;
pub use error::ClusterSetError;

/// The time for a read whose caller names none (`timeoutSeconds`).
const TIME_DEFAULT: Duration = Duration::from_secs(5);

/// The same for discovery. A client asks for it before everything else, and a cluster that is missing here is missing later, too.
const DISCOVERY_TIME_DEFAULT: Duration = Duration::from_secs(2);

/// The longest time that a caller may name.
const TIME_MAX: Duration = Duration::from_secs(60);

/// The header that says how many clusters were asked, have answered, and have not.
const CLUSTERS_HEADER: &str = "tombolo-clusters";

/// The header by which a caller refuses an answer that is not of all clusters: `refuse`.
const PARTIAL_HEADER: &str = "tombolo-partial";

/// A read of a cluster set by a caller who is authenticated. Each cluster still needs a permit.
pub(super) struct AdmittedSetRead {
    pub(super) caller: Caller,
    pub(super) assumed: Option<Assert>,
    pub(super) read: SetRead,
    /// The question of a summary, if the caller wants one.
    pub(super) question: Option<summary::Question>,
}

impl Gateway {
    /// Asks the clusters of a set, and makes one answer of theirs.
    ///
    /// # Errors
    /// The read cannot be answered at all, or not of all clusters while its caller wants all.
    pub(super) async fn read_set(
        &self,
        peer: &Arc<Peer>,
        admitted: &AdmittedSetRead,
        request: &Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let AdmittedSetRead { caller, assumed, read, question: reduce } = admitted;
        let _counted = self.0.limiter.enter_set_read(caller)?;
        let accepted = Accepted::of(request.headers(), read.kind()).ok_or(ClusterSetError::NotAcceptable)?;
        let (sets, target) = (&self.0.cluster_sets, read.target());
        let deadline = deadline(read, &target);
        let bound = [read.set(), &target, accepted.as_str(), caller.user()];
        let position = read.continue_token().map(|token| sets.tokens.open(token, &bound)).transpose()?;
        let clusters = self.members(caller, read, position.as_ref())?;

        let room = sets.room.of_read();
        let question = Question { gateway: self, peer, caller, assumed, read, accepted, request, room };
        let asked = Asked { question: &question, deadline };
        if let Some(reduce) = reduce {
            let answer = reduced::merge(asked.all(&clusters).await, reduce)?;
            return answer.response(wants_all(request.headers())).map_err(Refusal::from);
        }
        let answer = match read.kind() {
            SetReadKind::List => asked.list(&clusters, position, &bound).await?,
            SetReadKind::Name => named::merge(asked.all(&clusters).await, accepted)?,
            SetReadKind::Discovery => discovery::merge(asked.all(&clusters).await, accepted)?,
            SetReadKind::Document => asked.document(&clusters).await?,
        };
        answer.response(wants_all(request.headers())).map_err(Refusal::from)
    }

    /// The clusters of the set that the caller may reach, in the order of their names and from `position` on.
    /// Others are neither named nor counted.
    fn members(
        &self,
        caller: &Caller,
        read: &SetRead,
        position: Option<&Position>,
    ) -> Result<Vec<ClusterId>, ClusterSetError> {
        let sets = Arc::clone(&self.0.cluster_sets.sets.borrow());
        let set = sets.iter().find(|set| set.name == read.set());
        let set = set.ok_or_else(|| ClusterSetError::Unknown(read.set().to_owned()))?;
        let policy = self.0.policy.snapshot();
        let is_wanted = |cluster: &ClusterId, labels: &BTreeMap<String, String>| {
            position.is_none_or(|from| cluster.as_str() >= from.cluster.as_str())
                && set.selector.selects(labels)
                && read.selector().is_none_or(|selector| selector.selects(labels))
                && policy.may_reach(caller, cluster, &ClusterFacts { labels: labels.clone() })
        };
        let entries = self
            .0
            .forwarding
            .registry
            .directory()
            .entries(|cluster, record| is_wanted(cluster, &record.labels));
        Ok(entries.into_iter().map(|entry| entry.cluster).collect())
    }
}

/// A read whose clusters are being asked, until its deadline.
struct Asked<'a> {
    question: &'a Question<'a>,
    deadline: Instant,
}

impl Asked<'_> {
    /// Asks all clusters at once, up to the limit, for the same.
    async fn all(&self, clusters: &[ClusterId]) -> Vec<Member<Answered>> {
        pages::all(clusters, |number, cluster| self.question.ask(number, cluster, None, None, self.deadline))
            .await
    }

    /// Asks for lists, from `position` on, and makes a page of them.
    async fn list(
        &self,
        clusters: &[ClusterId],
        position: Option<Position>,
        bound: &[&str; 4],
    ) -> Result<answer::SetAnswer, ClusterSetError> {
        let columns = position.as_ref().and_then(|position| position.columns.clone());
        let first = position.and_then(|position| Some((position.cluster, position.inner?)));
        let pages = Pages { limit: self.question.read.limit(), deadline: self.deadline, first };
        let ask = |number, cluster, limit, token| async move {
            let answered = self.question.ask(number, cluster, limit, token, self.deadline).await;
            answered.and_then(|answered| list::parse(answered, self.question.accepted))
        };
        let Page { members, next } = pages.read(clusters, ask).await;
        let tokens = &self.question.gateway.0.cluster_sets.tokens;
        list::merge(members, self.question.accepted, columns, |columns| {
            next.map(|(cluster, inner)| {
                tokens.seal(&Position { cluster: cluster.to_string(), inner, columns }, bound)
            })
        })
    }

    /// The first document that any cluster answers with.
    async fn document(&self, clusters: &[ClusterId]) -> Result<answer::SetAnswer, ClusterSetError> {
        let ask = |number, cluster| self.question.ask(number, cluster, None, None, self.deadline);
        let (found, members) = pages::first(clusters, ask).await;
        let report = Report::of(&members);
        match found {
            Some(Answered { body, content_type }) => {
                Ok(answer::SetAnswer::document(body, content_type, report))
            }
            None => Err(report.check_answered().err().unwrap_or(ClusterSetError::Absent)),
        }
    }
}

/// The list `clusters` of a body that one cluster has answered for itself.
pub(super) fn report_of_one(cluster: &ClusterId) -> Value {
    Report::of(&[Member::new(cluster.clone(), Outcome::Fresh(()))]).json()
}

/// The end of a read with this target.
fn deadline(read: &SetRead, target: &str) -> Instant {
    let default = match read.kind() {
        SetReadKind::Discovery | SetReadKind::Document => DISCOVERY_TIME_DEFAULT,
        SetReadKind::List | SetReadKind::Name => TIME_DEFAULT,
    };
    let wanted = read.timeout().unwrap_or(default).min(TIME_MAX);
    // kubectl gives up after its --request-timeout, and could not read a later answer.
    let readable = target.split_once('?').and_then(|(_, query)| time_to_answer(query));
    Instant::now() + readable.map_or(wanted, |readable| readable.min(wanted))
}

fn wants_all(headers: &HeaderMap) -> bool {
    headers.get(PARTIAL_HEADER).is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"refuse"))
}
