//! The charts' templates: every documented combination of values, and what a change of values changes.

use std::collections::BTreeSet;
use std::fs;

use serde_json::{Value, json};
use tests::helm::combinations::{COMBINATIONS, TENANT_LEAST};
use tests::helm::{CHARTS, folder, object, objects};
use tests::sources::workspace;

const TENANT: &str = "tenant-control-plane";

/// The beginning of every combination of an agent's values.
const EDGE_A: &str = "config: { cluster: edge-a, servers: ['gateway.example:8443'] }\n";

#[tokio::test]
async fn the_charts_pass_helms_strict_lint_with_every_combination() {
    let helm = helm!("the_charts_pass_helms_strict_lint_with_every_combination");

    for (chart, _) in CHARTS {
        let folder = folder(chart);
        let folder = folder.to_str().unwrap();
        for values in COMBINATIONS.iter().filter(|combination| combination.chart == chart) {
            let linted = helm.run(&["lint", "--strict", folder], values.values).await;
            assert!(linted.is_ok(), "{}: {linted:?}", values.name);
        }
        let linted = helm.run(&["lint", "--strict", folder], "").await;
        assert!(linted.is_ok(), "{linted:?}");
    }
}

#[tokio::test]
async fn every_documented_combination_of_values_makes_complete_objects() {
    let helm = helm!("every_documented_combination_of_values_makes_complete_objects");

    for combination in COMBINATIONS {
        let name = combination.name;
        let made = helm.template(combination.chart, combination.values).await;
        let made = objects(&made.unwrap_or_else(|message| panic!("{name}: {message}")));

        let mut seen = BTreeSet::new();
        for object in &made {
            let id = format!(
                "{} {} {}",
                object["kind"], object["metadata"]["namespace"], object["metadata"]["name"]
            );
            assert!(seen.insert(id.clone()), "{name}: twice {id}");
            assert!(object["apiVersion"].is_string(), "{name}: {id}");
            assert_eq!(object["metadata"]["labels"]["app.kubernetes.io/part-of"], "tombolo", "{name}: {id}");
            // Server-side validation finds unknown fields, but an empty list or text may still have a meaning.
            assert!(!object.to_string().contains(":null"), "{name}: {object}");
        }
    }
}

#[tokio::test]
async fn a_changed_policy_changes_one_configmap_and_no_pod() {
    let helm = helm!("a_changed_policy_changes_one_configmap_and_no_pod");
    let made = async |values: &str| objects(&helm.template("tombolo-server", values).await.unwrap());
    let before = made("host: gateway.example\n").await;

    let after = made(
        "host: gateway.example\npolicy: { rules: [{ name: all, effect: Deny, subjects: [{ method: '*', user: '*' }], \
         clusters: { names: ['*'] }, mode: dial, targets: [{ hosts: ['*'], ports: ['*'] }] }] }\n",
    )
    .await;

    let changed: Vec<&Value> =
        before.iter().zip(&after).filter(|(before, after)| before != after).map(|(_, after)| after).collect();
    assert_eq!(before.len(), after.len());
    assert_eq!(changed, [object(&after, "ConfigMap", "tunnel-server-policy")]);
}

#[tokio::test]
async fn a_changed_configuration_replaces_the_pods() {
    let helm = helm!("a_changed_configuration_replaces_the_pods");
    for (chart, workload, before, after) in [
        ("tombolo-server", "tunnel-server", "host: gateway.example\n", "host: other.example\n"),
        (
            "tombolo-agent",
            "tunnel-agent",
            EDGE_A,
            "config: { cluster: edge-a, servers: ['other.example:8443'] }\n",
        ),
    ] {
        let template = async |values: &str| {
            let made = objects(&helm.template(chart, values).await.unwrap());
            object(&made, "Deployment", workload)["spec"]["template"].clone()
        };

        assert_ne!(template(before).await, template(after).await, "{chart}");
        assert_eq!(template(before).await, template(before).await, "{chart}");
    }
}

/// A listener that the configuration opens is a port of the container, of the Service and of the NetworkPolicy. That for other servers
/// is at no Service.
#[tokio::test]
async fn each_listener_of_the_configuration_becomes_a_port() {
    let helm = helm!("each_listener_of_the_configuration_becomes_a_port");
    let combination = COMBINATIONS.iter().find(|combination| combination.name == "every listener").unwrap();

    let made = objects(&helm.template("tombolo-server", combination.values).await.unwrap());

    let expected = [
        ("gateway", 8443, "TCP", 443),
        ("tunnel", 9443, "UDP", 8443),
        ("tunnel-tcp", 9443, "TCP", 8443),
        ("peering", 8446, "UDP", 0),
        ("peering-tcp", 8446, "TCP", 0),
        ("enrollment", 8444, "TCP", 8445),
        ("proxy", 8445, "TCP", 444),
        ("socks", 1080, "TCP", 1081),
        ("passthrough", 6443, "TCP", 6444),
        ("admin", 9444, "TCP", 9445),
        ("egress-0", 8131, "TCP", 8131),
    ];
    let pod = &object(&made, "StatefulSet", "tunnel-server")["spec"]["template"]["spec"];
    let ports = pod["containers"][0]["ports"].as_array().unwrap();
    let container = expected.map(
        |(name, port, protocol, _)| json!({ "name": name, "containerPort": port, "protocol": protocol }),
    );
    assert_eq!(ports[..ports.len() - 1], container);
    let offered = expected.into_iter().filter(|(name, ..)| !name.starts_with("peering"));
    let service: Vec<Value> = offered
        .map(|(name, _, protocol, port)| json!({ "name": name, "port": port, "targetPort": name, "protocol": protocol }))
        .collect();
    assert_eq!(object(&made, "Service", "tunnel-server")["spec"]["ports"], json!(service));
    let ingress = object(&made, "NetworkPolicy", "tunnel-server")["spec"]["ingress"].as_array().unwrap();
    let allowed: Vec<&Value> = ingress.iter().map(|rule| &rule["ports"][0]["port"]).collect();
    assert_eq!(allowed, expected.map(|(name, ..)| name).iter().chain(&["probes"]).collect::<Vec<_>>());
}

/// The rule names the label that all servers' pods have and no other pod.
#[tokio::test]
async fn only_the_servers_own_pods_reach_the_port_for_peers() {
    let helm = helm!("only_the_servers_own_pods_reach_the_port_for_peers");
    let values = |listen: &str| {
        format!(
            "host: g\nconfig: {{ peering: {{ {listen}address: 'west:8446', certificateFile: peer.crt, keyFile: peer.key, \
             peerCAFile: peer-ca.crt }} }}\n"
        )
    };

    let made = objects(&helm.template("tombolo-server", &values("listen: '[::]:7', ")).await.unwrap());
    let local = helm.template("tombolo-server", &values("listen: '127.0.0.1:8446', ")).await.unwrap();

    let ingress = object(&made, "NetworkPolicy", "tunnel-server")["spec"]["ingress"].as_array().unwrap();
    let labels = &object(&made, "Deployment", "tunnel-server")["spec"]["selector"];
    let expected = [("peering", "UDP"), ("peering-tcp", "TCP")].map(|(port, protocol)| {
        json!({ "ports": [{ "port": port, "protocol": protocol }], "from": [{ "podSelector": labels }] })
    });
    let is_for_peers = |rule: &&Value| rule["ports"].to_string().contains("peering");
    assert_eq!(ingress.iter().filter(is_for_peers).collect::<Vec<_>>(), expected.iter().collect::<Vec<_>>());
    assert!(!object(&made, "Service", "tunnel-server")["spec"].to_string().contains("peering"));
    assert!(!object(&objects(&local), "NetworkPolicy", "tunnel-server").to_string().contains("peering"));
}

/// Nobody may reach the administrators' listener unless its clients are listed, and nobody one on loopback.
#[tokio::test]
async fn no_port_leads_to_a_loopback_listener_nor_unasked_to_admin() {
    let helm = helm!("no_port_leads_to_a_loopback_listener_nor_unasked_to_admin");
    let values = "host: g\nconfig:\n  socks: { listen: '127.0.0.1:1080' }\n  proxy: { listen: '[::1]:8445' }\n  \
                  admin: { tcp: { listen: '0.0.0.0:9444' } }\n";

    let made = helm.template("tombolo-server", values).await.unwrap();

    let made = objects(&made);
    let pod = object(&made, "Deployment", "tunnel-server")["spec"]["template"]["spec"].to_string();
    assert!(!pod.contains("1080") && !pod.contains("8445"), "{pod}");
    assert!(pod.contains("9444"), "{pod}");
    for (kind, name) in [("Service", "tunnel-server"), ("NetworkPolicy", "tunnel-server")] {
        let found = object(&made, kind, name)["spec"].to_string();
        assert!(!found.contains("admin") && !found.contains("9444"), "{kind}: {found}");
    }
}

/// The sealing key is in no pod that enrolls nobody, and never in the Secret of the intermediate.
#[tokio::test]
async fn a_pod_has_the_sealing_key_only_for_enrollment() {
    let helm = helm!("a_pod_has_the_sealing_key_only_for_enrollment");
    for (values, expected) in [("host: g\n", true), ("config: { enrollment: null }\n", false)] {
        let made = helm.template("tombolo-server", values).await.unwrap();

        assert_eq!(made.contains("name: tunnel-server-sealing-key"), expected, "{values}");
    }
}

#[tokio::test]
async fn agents_are_two_apart_with_a_disruption_budget_or_one_for_each_node() {
    let helm = helm!("agents_are_two_apart_with_a_disruption_budget_or_one_for_each_node");

    let made = objects(&helm.template("tombolo-agent", EDGE_A).await.unwrap());
    let nodes =
        objects(&helm.template("tombolo-agent", &format!("{EDGE_A}kind: DaemonSet\n")).await.unwrap());

    let spec = &object(&made, "Deployment", "tunnel-agent")["spec"];
    let spread = &spec["template"]["spec"]["topologySpreadConstraints"];
    assert_eq!((&spec["replicas"], spread.as_array().unwrap().len()), (&json!(2), 2), "{spec}");
    assert_eq!(object(&made, "PodDisruptionBudget", "tunnel-agent")["spec"]["maxUnavailable"], 1);
    let daemons = &object(&nodes, "DaemonSet", "tunnel-agent")["spec"];
    assert!(daemons.get("replicas").is_none() && daemons.get("strategy").is_none(), "{daemons}");
    assert!(!nodes.iter().any(|object| object["kind"] == "PodDisruptionBudget"));
}

/// Some clusters refuse system-cluster-critical outside of kube-system.
#[tokio::test]
async fn no_pod_asks_for_a_priority_class_by_default() {
    let helm = helm!("no_pod_asks_for_a_priority_class_by_default");
    for (chart, values) in [("tombolo-server", "host: g\n"), ("tombolo-agent", EDGE_A)] {
        let made = helm.template(chart, values).await.unwrap();
        assert!(!made.contains("priorityClassName"), "{chart}");
    }
}

/// The copies of the alerts are those that the project tests, and an agent's are about agents.
#[tokio::test]
async fn the_rules_for_prometheus_are_the_projects_alerts() {
    let helm = helm!("the_rules_for_prometheus_are_the_projects_alerts");
    let alerts = fs::read_to_string(workspace().join("deploy/prometheus/alerts.yaml")).unwrap();
    let alerts = objects(&alerts)[0]["groups"].clone();
    let enabled = "monitoring: { rules: { enabled: true } }\n";

    let server = objects(&helm.template("tombolo-server", &format!("host: g\n{enabled}")).await.unwrap());
    let agent = objects(&helm.template("tombolo-agent", &format!("{EDGE_A}{enabled}")).await.unwrap());

    assert_eq!(object(&server, "PrometheusRule", "tunnel-server")["spec"]["groups"], alerts);
    let of_agents = object(&agent, "PrometheusRule", "tunnel-agent")["spec"]["groups"][0]["rules"].clone();
    let expected: Vec<&Value> = alerts[0]["rules"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|rule| rule["expr"].as_str().unwrap().contains("tombolo_agent_"))
        .collect();
    assert!(!expected.is_empty());
    assert_eq!(of_agents, json!(expected));
}

/// The text of the alerts stays the project's, but for the page's address.
#[tokio::test]
async fn the_alerts_lead_to_the_page_that_the_values_name() {
    let helm = helm!("the_alerts_lead_to_the_page_that_the_values_name");
    let page = "https://docs.example/operate/monitoring.html";
    let values = format!("monitoring: {{ rules: {{ enabled: true, runbookURL: '{page}' }} }}\n");

    for (chart, name, rest) in
        [("tombolo-server", "tunnel-server", "host: g\n"), ("tombolo-agent", "tunnel-agent", EDGE_A)]
    {
        let made = objects(&helm.template(chart, &format!("{rest}{values}")).await.unwrap());
        let groups = &object(&made, "PrometheusRule", name)["spec"]["groups"];
        let rules = groups[0]["rules"].as_array().unwrap();
        for rule in rules.iter().filter(|rule| rule["record"].is_null()) {
            let anchor = rule["alert"].as_str().unwrap().to_lowercase();
            assert_eq!(rule["annotations"]["runbook_url"], format!("{page}#{anchor}"));
        }
    }
}

/// With the type NodePort, agents reach the nodes' ports and not those of the listeners.
#[tokio::test]
async fn agents_are_told_the_node_ports_that_the_values_fix() {
    let helm = helm!("agents_are_told_the_node_ports_that_the_values_fix");
    let ports = "nodePorts: { gateway: 30443, tunnel: 30443, enrollment: 30444 }";
    for (service, tunnel, enrollment) in [
        (format!("{{ type: NodePort, {ports} }}"), "g:30443", "g:30444"),
        (format!("{{ type: LoadBalancer, {ports} }}"), "g:8443", "g:8444"),
        ("{ type: NodePort }".to_owned(), "g:8443", "g:8444"),
        ("{ type: LoadBalancer, ports: { tunnel: 443 } }".to_owned(), "g:443", "g:8444"),
    ] {
        let values = format!("host: g\nservice: {service}\n");
        let made = objects(&helm.template("tombolo-server", &values).await.unwrap());
        let text = object(&made, "ConfigMap", "tunnel-server")["data"]["server.yaml"].as_str().unwrap();
        let config = &objects(text)[0];
        assert_eq!(config["tunnel"]["addresses"], json!([tunnel]), "{service}");
        assert_eq!(config["enrollment"]["address"], enrollment, "{service}");
    }
}

/// Values that the schema allows and that make no working release.
#[tokio::test]
async fn values_that_cannot_work_are_refused_with_what_to_do() {
    let helm = helm!("values_that_cannot_work_are_refused_with_what_to_do");
    let named = "config: { cluster: edge-a, servers: ['g:1'], impersonation:";
    for (chart, values, words) in [
        ("tombolo-server", String::new(), "host is empty: set it to the DNS name"),
        (
            "tombolo-server",
            "host: g\nconfig: { tunnel: { listen: '0.0.0.0:9443' } }\nservice: { ports: { gateway: 443, tunnel: 443 } }".to_owned(),
            "gateway and tunnel-tcp would both have the Service's TCP port 443",
        ),
        ("tombolo-server", "host: g\nreplicas: 3".to_owned(), "so set config.directory.etcd too"),
        (
            "tombolo-server",
            "host: g\nstorage: { existingClaim: c }\nconfig: { directory: { etcd: { endpoints: ['https://e:2379'] } } }"
                .to_owned(),
            "storage.existingClaim is of one server",
        ),
        ("tombolo-agent", String::new(), "config.cluster is empty: set it to the name of this cluster"),
        ("tombolo-agent", "config: { cluster: edge-a }".to_owned(), "config.servers is empty: set it to"),
        ("tombolo-agent", format!("{EDGE_A}enrollment: {{ token: t }}"), "enrollment.token needs config.enrollment.server"),
        (
            "tombolo-agent",
            "config: { cluster: a, servers: ['g:1'], enrollment: { server: 'g:2' } }".to_owned(),
            "config.enrollment.pin is empty: set it to the pin",
        ),
        ("tombolo-agent", format!("{named} {{ users: ['a*'] }} }}"), "users has the pattern \"a*\", and RBAC knows no patterns"),
        (
            "tombolo-agent",
            format!("{named} {{ systemNames: ['system:node:n'] }} }}\nrbac: {{ profile: constrained }}"),
            "has the node system:node:n",
        ),
        (TENANT, "tenant: acme".to_owned(), "services.apiserver is empty: `tombolo tenant create` makes the Services first"),
        (TENANT, TENANT_LEAST.replace(", 10.96.0.13", ""), "services.etcdData has 2 addresses: use 1 or 3"),
        (TENANT, TENANT_LEAST.replace("10.96.0.21", "10.96.0.11"), "services has an address twice"),
        (TENANT, format!("{TENANT_LEAST}portBase: 16441"), "portBase is 16441: use a multiple of 10"),
        (TENANT, TENANT_LEAST.replace("tenant: acme", ""), "tenant is empty: `tombolo tenant create NAME` sets it"),
    ] {
        let refused = helm.template(chart, &values).await.unwrap_err();
        assert!(refused.contains(words), "{values}: {refused}");
    }
}

/// With the etcd of Events dead, its checks fail, and the API server serves everything else.
#[tokio::test]
async fn no_probe_of_a_tenants_api_server_asks_for_the_etcd_of_events() {
    let helm = helm!("no_probe_of_a_tenants_api_server_asks_for_the_etcd_of_events");

    let made = objects(&helm.template(TENANT, TENANT_LEAST).await.unwrap());

    let container = &object(&made, "DaemonSet", "apiserver")["spec"]["template"]["spec"]["containers"][0];
    for probe in ["startupProbe", "livenessProbe", "readinessProbe"] {
        let path = container[probe]["httpGet"]["path"].as_str().unwrap();
        for check in ["etcd-override-0", "etcd-override-readiness-0"] {
            assert!(path.contains(&format!("exclude={check}")), "{probe}: {path}");
        }
    }
    let words: Vec<&str> =
        container["command"].as_array().unwrap().iter().map(|word| word.as_str().unwrap()).collect();
    let events = "--etcd-servers-overrides=/events#https://10.96.0.21:16446;https://10.96.0.22:16446;https://10.96.0.23:16446";
    assert!(words.contains(&events), "{words:?}");
}

/// Tenants share nodes. The ports of a pod are ports of its node, so the scheduler refuses a second pod with one of them.
#[tokio::test]
async fn every_port_of_a_tenant_is_a_port_of_the_host_in_its_block() {
    let helm = helm!("every_port_of_a_tenant_is_a_port_of_the_host_in_its_block");
    let values = format!("{TENANT_LEAST}portBase: 16450\n");

    let made = objects(&helm.template(TENANT, &values).await.unwrap());

    let mut ports = BTreeSet::new();
    for pod in made.iter().map(|object| &object["spec"]["template"]["spec"]).filter(|pod| pod.is_object()) {
        assert_eq!(
            (&pod["hostNetwork"], &pod["automountServiceAccountToken"]),
            (&json!(true), &json!(false))
        );
        let security = &pod["securityContext"];
        assert_eq!((&security["runAsNonRoot"], &security["runAsUser"]), (&json!(true), &json!(65532)));
        for port in pod["containers"][0]["ports"].as_array().unwrap() {
            assert_eq!(port["containerPort"], port["hostPort"]);
            assert!(ports.insert(port["hostPort"].as_u64().unwrap()), "{port}");
        }
    }
    assert_eq!(ports.into_iter().collect::<Vec<_>>(), [16450, 16451, 16452, 16453, 16454, 16456, 16457]);
}
