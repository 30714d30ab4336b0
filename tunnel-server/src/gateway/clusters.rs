//! `GET /clusters`: the clusters that the caller may reach, as a list, as a table, or as a watch.

mod snapshot;
mod table;
mod view;
mod watch;
pub(super) mod watch_body;

use std::sync::Arc;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, Request, Response};
use policy::ClusterFacts;
use policy::action::ListRead;
use serde_json::json;

use super::audit;
use super::body::AnswerBody;
use super::cluster_sets::accepted::Accepted;
use super::guarded_body::CallerBody;
use super::peer::Peer;
use super::refusal::Refusal;
use super::state::Gateway;
use crate::identity::Caller;
use view::ClusterView;
use watch::{ListWatch, Signals};
use watch_body::ListWatchBody;

pub(super) use snapshot::ClusterSnapshots;

impl Gateway {
    /// Answers with the clusters that the policy lets this caller reach, as a Kubernetes list or table. It reveals nothing
    /// about others, not even their number.
    pub(super) fn list_clusters(
        &self,
        caller: &Caller,
        read: &ListRead,
        headers: &HeaderMap,
    ) -> Response<AnswerBody> {
        let policy = self.0.policy.snapshot();
        // The labels decide before a tunnel is looked at.
        let listed = self.0.forwarding.registry.list(|cluster, record| {
            read.selects(&record.labels)
                && policy.may_reach(caller, cluster, &ClusterFacts { labels: record.labels.clone() })
        });
        let clusters: Vec<ClusterView> = listed.iter().map(ClusterView::of).collect();
        let accepted = accepted(headers);
        let list = if accepted.is_table() {
            table::table(&clusters, accepted, read.row_object(), true)
        } else {
            json!({
                "apiVersion": view::API_VERSION,
                "kind": "ClusterList",
                "metadata": {},
                "items": clusters.iter().map(ClusterView::object).collect::<Vec<_>>(),
            })
        };
        answer(AnswerBody::text(list.to_string()), accepted.as_str())
    }

    /// Begins a watch of the clusters that the policy lets this caller reach. It is in the table of running exchanges and in the audit
    /// log until it ends.
    ///
    /// # Errors
    /// A limit is reached, the credential was revoked, or the audit log cannot be written.
    pub(super) async fn watch_clusters(
        &self,
        peer: &Peer,
        caller: &Caller,
        read: ListRead,
        request: &Request<CallerBody>,
    ) -> Result<Response<AnswerBody>, Refusal> {
        let guard = self.0.limiter.enter_list_watch(caller)?;
        let generation = self.0.policy.snapshot().generation();
        let exchange = self.0.exchanges.enter_list_watch(caller, generation)?;
        let event = audit::list_watch_intent(caller, peer, request);
        let entry = self.0.audit_log.begin(exchange, generation, event).await?;
        request.body().guard().set_audit_entry(entry);
        let registry = self.0.forwarding.registry.clone();
        let signals = Signals {
            registry: registry.changes(),
            directory: registry.directory().changes(),
            policy: self.0.policy.subscribe(),
            scope: self.0.forwarding.scope.clone(),
        };
        let (policy, snapshots) = (self.0.policy.clone(), self.0.cluster_snapshots.clone());
        let (caller, selected) = (caller.clone(), read.clone());
        let beat = snapshots.beat;
        let look = move |noticed| {
            let (clusters, policy) = (snapshots.not_older_than(noticed, &registry), policy.snapshot());
            let is_visible = |view: &&Arc<ClusterView>| {
                selected.selects(&view.facts.labels) && policy.may_reach(&caller, &view.name, &view.facts)
            };
            clusters.iter().filter(is_visible).cloned().collect()
        };
        let events = ListWatch::new(look, signals, accepted(request.headers()), &read, beat).events();
        // Tables of a watch have the content type of JSON, too.
        Ok(answer(AnswerBody::ListWatch(ListWatchBody::new(events, guard)), Accepted::Json.as_str()))
    }
}

/// The form of the answer: a table for a caller that prefers one, and else JSON.
fn accepted(headers: &HeaderMap) -> Accepted {
    Accepted::first(headers, |form| form == Accepted::Json || form.is_table()).unwrap_or(Accepted::Json)
}

fn answer(body: AnswerBody, content_type: &'static str) -> Response<AnswerBody> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
