//! `GET /clusters`: the list of the clusters that the caller may reach.

use std::time::SystemTime;

use http::header::CONTENT_TYPE;
use http::{HeaderValue, Response};
use policy::ClusterFacts;
use prost_types::Timestamp;
use proto::ClusterId;
use proto::session::Health;
use serde_json::{Value, json};

use super::body::AnswerBody;
use crate::authz::PolicySnapshot;
use crate::directory::{Cluster, UnixSeconds};
use crate::identity::Caller;
use crate::registry::{ClusterStatus, Registry, RemoteTunnelStatus, TunnelStatus};

/// Answers with the clusters that the policy lets this caller reach, as a Kubernetes list. It reveals nothing
/// about others, not even their number.
pub(super) fn list(registry: &Registry, policy: &PolicySnapshot, caller: &Caller) -> Response<AnswerBody> {
    let may_reach = |cluster: &ClusterId, record: &Cluster| {
        policy.may_reach(caller, cluster, &ClusterFacts { labels: record.labels.clone() })
    };
    let items: Vec<Value> = registry.list(may_reach).iter().map(item).collect();
    let list = json!({
        "apiVersion": "tombolo.dev/v1alpha1",
        "kind": "ClusterList",
        "metadata": {},
        "items": items,
    });
    let mut response = Response::new(AnswerBody::text(list.to_string()));
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn item(listed: &ClusterStatus) -> Value {
    let here = listed.tunnels.iter().map(tunnel);
    json!({
        "apiVersion": "tombolo.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": { "name": listed.cluster.as_str() },
        "status": {
            "connected": listed.is_reachable(),
            "tunnels": here.chain(listed.at_peers.iter().map(remote_tunnel)).collect::<Vec<_>>(),
        },
    })
}

fn tunnel(tunnel: &TunnelStatus) -> Value {
    shown(tunnel.agent.instance(), (tunnel.health, tunnel.draining), Some(tunnel.since), &tunnel.endpoints)
}

/// A tunnel to another server, in the same form: callers do not see which server has it.
fn remote_tunnel(tunnel: &RemoteTunnelStatus) -> Value {
    let told = &tunnel.told;
    let since = told.since.and_then(|since| UnixSeconds(since).time());
    shown(told.agent.instance(), (tunnel.health, tunnel.draining), since, &told.advertised.endpoints)
}

fn shown(
    agent: &str,
    (health, draining): (Health, bool),
    since: Option<SystemTime>,
    endpoints: &[String],
) -> Value {
    json!({
        "agent": agent,
        "health": match health {
            Health::Live => "Live",
            Health::Suspect => "Suspect",
            Health::Lost => "Lost",
        },
        "draining": draining,
        "since": since.map(|since| Timestamp { nanos: 0, ..Timestamp::from(since) }.to_string()),
        "endpoints": endpoints,
    })
}
