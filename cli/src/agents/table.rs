//! Agents as tables in kubectl's style, and as objects of Kubernetes' form for programs.

use proto::admin::EnrolledAgent;
use serde_json::{Value, json};

use crate::print::{columns, none, or_none};

/// The text of a cell whose value the server does not know.
const UNKNOWN: &str = "<unknown>";

/// One row for each agent.
pub(super) fn usual(agents: &[EnrolledAgent]) -> Vec<String> {
    let mut rows = vec![["AGENT", "EXPIRES", "SERIAL", "STATE", "VERSION", "POD"].map(str::to_owned)];
    rows.extend(agents.iter().map(|agent| {
        let [name, expires] = [name(agent), expires(agent)];
        [
            name,
            expires,
            agent.serial.clone(),
            state(agent).to_owned(),
            or_none(&agent.version),
            or_none(&agent.pod),
        ]
    }));
    columns(&rows)
}

/// The same with the time at which the certificate was issued, and whether the agent has a tunnel.
pub(super) fn wide(agents: &[EnrolledAgent]) -> Vec<String> {
    let titles = ["AGENT", "EXPIRES", "SERIAL", "STATE", "ISSUED", "CONNECTED", "VERSION", "POD"];
    let mut rows = vec![titles.map(str::to_owned)];
    rows.extend(agents.iter().map(|agent| {
        let issued = agent.issued.map_or_else(none, |issued| issued.to_string());
        let connected = if agent.connected { "True" } else { "False" };
        let [name, expires] = [name(agent), expires(agent)];
        let [version, pod] = [or_none(&agent.version), or_none(&agent.pod)];
        let state = state(agent).to_owned();
        [name, expires, agent.serial.clone(), state, issued, connected.to_owned(), version, pod]
    }));
    columns(&rows)
}

/// An `AgentList` of these agents.
pub(super) fn objects(agents: &[EnrolledAgent]) -> Value {
    let items: Vec<Value> = agents.iter().map(object).collect();
    json!({ "apiVersion": "tombolo.dev/v1alpha1", "kind": "AgentList", "items": items })
}

fn object(agent: &EnrolledAgent) -> Value {
    let given = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
    json!({
        "apiVersion": "tombolo.dev/v1alpha1",
        "kind": "Agent",
        "metadata": { "name": agent.instance },
        "spec": { "cluster": agent.cluster },
        "status": {
            "state": state(agent),
            "connected": agent.connected,
            "serial": agent.serial,
            "issued": agent.issued.map(|issued| issued.to_string()),
            "expires": agent.expires.map(|expires| expires.to_string()),
            "version": given(&agent.version),
            "pod": given(&agent.pod),
        },
    })
}

/// The name by which an agent is revoked.
fn name(agent: &EnrolledAgent) -> String {
    format!("{}/{}", agent.cluster, agent.instance)
}

fn expires(agent: &EnrolledAgent) -> String {
    match agent.expires {
        Some(expires) => expires.to_string(),
        None if agent.by_hand => UNKNOWN.to_owned(),
        None => none(),
    }
}

/// Says how the agent got its certificate, unless that is revoked.
fn state(agent: &EnrolledAgent) -> &'static str {
    match (agent.revoked, agent.by_hand) {
        (true, _) => "Revoked",
        (false, true) => "ByHand",
        (false, false) => "Enrolled",
    }
}

#[cfg(test)]
mod tests {
    use prost_types::Timestamp;

    use super::*;

    fn agents() -> [EnrolledAgent; 3] {
        let enrolled = EnrolledAgent {
            cluster: "edge-a".to_owned(),
            instance: "one".to_owned(),
            serial: "4f".to_owned(),
            issued: Some(Timestamp::default()),
            expires: Some(Timestamp { seconds: 86_400, nanos: 0 }),
            ..EnrolledAgent::default()
        };
        let revoked = EnrolledAgent { revoked: true, pod: "agent-0".to_owned(), ..enrolled.clone() };
        let by_hand = EnrolledAgent {
            instance: "two".to_owned(),
            expires: None,
            by_hand: true,
            connected: true,
            version: "0.1.0".to_owned(),
            ..enrolled.clone()
        };
        [enrolled, revoked, by_hand]
    }

    /// Scripts read the third column, and the last.
    #[test]
    fn the_table_says_how_each_agent_got_its_certificate() {
        assert_eq!(
            usual(&agents()),
            [
                "AGENT        EXPIRES                SERIAL   STATE      VERSION   POD",
                "edge-a/one   1970-01-02T00:00:00Z   4f       Enrolled   <none>    <none>",
                "edge-a/one   1970-01-02T00:00:00Z   4f       Revoked    <none>    agent-0",
                "edge-a/two   <unknown>              4f       ByHand     0.1.0     <none>",
            ]
        );
        let wide = wide(&agents()).remove(3);
        let cells: Vec<&str> = wide.split_whitespace().collect();
        let expected =
            ["edge-a/two", "<unknown>", "4f", "ByHand", "1970-01-01T00:00:00Z", "True", "0.1.0", "<none>"];
        assert_eq!(cells, expected);
    }

    #[test]
    fn objects_have_null_for_what_the_server_does_not_know() {
        let list = objects(&agents());

        assert_eq!(list["kind"], "AgentList");
        let (enrolled, by_hand) = (&list["items"][0], &list["items"][2]);
        assert_eq!(enrolled["metadata"]["name"], "one");
        assert_eq!(enrolled["status"]["expires"], "1970-01-02T00:00:00Z");
        assert_eq!(
            (&enrolled["status"]["state"], &enrolled["status"]["pod"]),
            (&json!("Enrolled"), &Value::Null)
        );
        assert_eq!(
            (&by_hand["status"]["state"], &by_hand["status"]["expires"]),
            (&json!("ByHand"), &Value::Null)
        );
        assert_eq!(by_hand["status"]["connected"], true);
    }
}
