//! Servers as tables in kubectl's style, and as objects of Kubernetes' form for programs.

use std::time::Duration;

use proto::admin::server::State;
use proto::admin::{Server, ServerFigures};
use serde_json::{Value, json};

use crate::print::{columns, none, or_none};

/// Digits of an epoch that are shown; they tell the processes of one server apart.
const EPOCH_DIGITS: usize = 8;

/// Digits of a digest that are shown.
const DIGEST_DIGITS: usize = 12;

/// One row for each server.
pub(super) fn usual(servers: &[Server]) -> Vec<String> {
    let titles = ["ID", "STATE", "EPOCH", "TUNNELS", "PEERS", "FRESHNESS", "POLICY", "VERSION"];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(servers.iter().map(cells));
    columns(&rows)
}

/// The same with the trust bundle, the clock, the start and the address of each server.
pub(super) fn wide(servers: &[Server]) -> Vec<String> {
    let titles = [
        "ID",
        "STATE",
        "EPOCH",
        "TUNNELS",
        "PEERS",
        "FRESHNESS",
        "POLICY",
        "VERSION",
        "BUNDLE",
        "CLOCK",
        "STARTED",
        "ADDRESS",
    ];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(servers.iter().map(|server| {
        let [id, state, epoch, tunnels, peers, freshness, policy, version] = cells(server);
        let bundle = digest(server, |told| &told.trust_bundle_digest);
        let clock = server.clock_ahead_ms.map_or_else(none, clock);
        let started = server.started.map_or_else(none, |started| started.to_string());
        let address = or_none(&server.peering_address);
        [id, state, epoch, tunnels, peers, freshness, policy, version, bundle, clock, started, address]
    }));
    columns(&rows)
}

/// A `ServerList` of these servers.
pub(super) fn objects(servers: &[Server]) -> Value {
    let items: Vec<Value> = servers.iter().map(object).collect();
    json!({ "apiVersion": "tombolo.dev/v1alpha1", "kind": "ServerList", "items": items })
}

/// The word for a state, which programs and people read.
pub(super) fn state(server: &Server) -> &'static str {
    match server.state() {
        State::Unspecified => "Unknown",
        State::Ready => "Ready",
        State::NotReady => "NotReady",
        State::Draining => "Draining",
        State::Behind => "Behind",
        State::Stale => "Stale",
        State::Silent => "Silent",
        State::Unreachable => "Unreachable",
        State::Gone => "Gone",
    }
}

fn cells(server: &Server) -> [String; 8] {
    let told = server.told.as_ref();
    let age = told.and_then(|told| Duration::try_from(told.records_age?).ok());
    [
        server.id.clone(),
        state(server).to_owned(),
        or_none(first(&server.epoch, EPOCH_DIGITS)),
        server.tunnels.map_or_else(none, |tunnels| tunnels.to_string()),
        told.map_or_else(none, |told| format!("{}/{}", told.peers_connected, told.peers)),
        age.map_or_else(none, |age| format!("{:.1}s", age.as_secs_f64())),
        digest(server, |told| &told.policy_digest),
        or_none(version(&server.software)),
    ]
}

fn object(server: &Server) -> Value {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    let told = server.told.as_ref();
    let age = told.and_then(|told| Duration::try_from(told.records_age?).ok());
    json!({
        "apiVersion": "tombolo.dev/v1alpha1",
        "kind": "Server",
        "metadata": { "name": server.id },
        "status": {
            "state": state(server),
            "asked": server.asked,
            "epoch": given(&server.epoch),
            "version": given(version(&server.software)),
            "started": server.started.map(|started| started.to_string()),
            "peeringAddress": given(&server.peering_address),
            "tunnels": server.tunnels,
            "peers": told.map(|told| told.peers),
            "peersConnected": told.map(|told| told.peers_connected),
            "recordsAgeSeconds": age.map(|age| age.as_secs_f64()),
            "policyDigest": told.and_then(|told| given(&told.policy_digest)),
            "trustBundleDigest": told.and_then(|told| given(&told.trust_bundle_digest)),
            "clockAheadMilliseconds": server.clock_ahead_ms,
        },
    })
}

fn digest(server: &Server, of: impl Fn(&ServerFigures) -> &String) -> String {
    server.told.as_ref().map_or_else(none, |told| or_none(first(of(told), DIGEST_DIGITS)))
}

/// The version in a text `NAME/VERSION`.
fn version(software: &str) -> &str {
    software.rsplit_once('/').map_or(software, |(_, version)| version)
}

fn clock(ahead_ms: i64) -> String {
    let sign = if ahead_ms < 0 { "-" } else { "+" };
    format!("{sign}{:.1}s", Duration::from_millis(ahead_ms.unsigned_abs()).as_secs_f64())
}

fn first(text: &str, digits: usize) -> &str {
    text.get(..digits).unwrap_or(text)
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    #[test]
    fn a_server_that_is_gone_has_its_id_and_nothing_else() {
        assert_eq!(
            usual(&servers()),
            [
                "ID     STATE   EPOCH      TUNNELS   PEERS    FRESHNESS   POLICY         VERSION",
                "east   Gone    <none>     <none>    <none>   <none>      <none>         <none>",
                "west   Ready   07070707   3         1/2      0.3s        aaaaaaaaaaaa   0.1.0",
            ]
        );
        let wide = wide(&servers()).remove(2);
        assert!(
            wide.ends_with("   bbbbbbbbbbbb   -2.5s    1970-01-01T00:00:00Z   west.example:8446"),
            "{wide}"
        );
    }

    #[test]
    fn objects_have_null_for_what_is_not_known() {
        let list = objects(&servers());

        assert_eq!(list["kind"], "ServerList");
        let (gone, west) = (&list["items"][0], &list["items"][1]);
        assert_eq!((&gone["metadata"]["name"], &gone["status"]["epoch"]), (&json!("east"), &Value::Null));
        assert_eq!((&gone["status"]["tunnels"], &gone["status"]["peers"]), (&Value::Null, &Value::Null));
        let status = &west["status"];
        assert_eq!(
            (&status["peersConnected"], &status["clockAheadMilliseconds"]),
            (&json!(1), &json!(-2500))
        );
        assert_eq!(status["policyDigest"], "a".repeat(64));
    }

    fn servers() -> [Server; 2] {
        let gone = Server { id: "east".to_owned(), state: State::Gone.into(), ..Server::default() };
        let west = Server {
            id: "west".to_owned(),
            state: State::Ready.into(),
            asked: true,
            epoch: "07".repeat(16),
            software: "tunnel-server/0.1.0".to_owned(),
            started: Some(Timestamp::default()),
            peering_address: "west.example:8446".to_owned(),
            tunnels: Some(3),
            told: Some(ServerFigures {
                peers: 2,
                peers_connected: 1,
                records_age: Duration::from_millis(345).try_into().ok(),
                policy_digest: "a".repeat(64),
                trust_bundle_digest: "b".repeat(64),
            }),
            clock_ahead_ms: Some(-2500),
        };
        [gone, west]
    }
}
