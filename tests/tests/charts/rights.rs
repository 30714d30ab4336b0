//! The rights that the chart of the agent makes, beside those that `tombolo rbac` prints for the same agent.yaml.

use std::collections::BTreeSet;
use std::fs;
use std::process::Output;
use std::time::Duration;

use serde_json::Value;
use tests::binaries::binary;
use tests::helm::{folder, objects};
use tests::process::{Invocation, run};
use tests::scratch::Scratch;

const RUN_MAX: Duration = Duration::from_secs(60);

const PROFILES: [&str; 3] = ["named", "constrained", "open"];

/// Configurations of agents, without the cluster and the servers.
const CONFIGURATIONS: [&str; 8] = [
    "impersonation: { users: [alice], groups: ['tombolo:admins'] }",
    "impersonation: { users: [alice, bob], groups: [] }",
    "impersonation: { users: [], groups: [] }",
    "impersonation: { users: [], groups: [], systemNames: ['system:serviceaccount:ci:deployer', 'system:monitoring', 'system:serviceaccount:ci:tester', 'system:serviceaccount:ops:b'] }",
    "impersonation: { users: [a], groups: [b] }\ntenants: [{ kind: Service, namespace: t, port: 1 }, { kind: Pod, namespace: t, port: 2 }, { kind: Pod, labelSelector: app, port: 3 }]",
    "impersonation: { users: [a], groups: [b] }\nadvertise: ['kubernetes.default.svc:443', 'api.site.example:6443']\ntargets: ['Hook.shop.svc:443', 'hook.shop.svc:80', 'api.shop.svc:443', '10.96.0.0/12:443', 'db.example:5432', 'a.b.svc.example:1']",
    "impersonation: { users: ['quoted \"name\"', 'a: b', '#x'], groups: ['- c'] }",
    "impersonation: { users: [a], groups: [b] }\npassThrough: true\nlog: { level: debug }",
];

/// Lists of names that the agent refuses in every profile, with the words by which the chart refuses them.
const REFUSED: [(&str, &str); 13] = [
    ("groups: ['system:masters']", "groups has \"system:masters\", a name of Kubernetes itself"),
    ("groups: [a, 'system:nodes']", "groups has \"system:nodes\""),
    ("groups: ['kubeadm:cluster-admins']", "groups has \"kubeadm:cluster-admins\""),
    ("groups: ['system:*']", "groups has \"system:*\""),
    ("groups: ['']", "groups has an empty name"),
    ("users: ['system:admin']", "users has \"system:admin\""),
    ("users: ['system:serviceaccount:ci:deployer']", "users has \"system:serviceaccount:ci:deployer\""),
    ("users: ['kubeadm:x']", "users has \"kubeadm:x\""),
    ("systemNames: ['system:masters']", "systemNames has system:masters, which is above every rule"),
    ("systemNames: ['system:nodes']", "systemNames has system:nodes, which is above every rule"),
    (
        "systemNames: ['system:serviceaccount:ci:*']",
        "names that begin with system: or kubeadm:, each in full",
    ),
    ("systemNames: [alice]", "systemNames has \"alice\""),
    ("systemNames: ['']", "systemNames has an empty name"),
];

/// The namespaces in which the agent reads what the cluster publishes.
const PUBLISHING: [&str; 3] = ["default", "kube-public", "kube-system"];

#[tokio::test]
async fn the_chart_gives_agents_the_rights_that_tombolo_rbac_prints() {
    let helm = helm!("the_chart_gives_agents_the_rights_that_tombolo_rbac_prints");
    for configuration in CONFIGURATIONS {
        for profile in PROFILES {
            let indented: String = configuration.lines().map(|line| format!("  {line}\n")).collect();
            let values = format!(
                "config:\n  cluster: a\n  servers: ['g:1']\n{indented}rbac: {{ profile: {profile} }}\n"
            );

            let chart = helm.template("tombolo-agent", &values).await.unwrap();

            assert_eq!(
                rights(&chart),
                rights(&printed(configuration, profile).await),
                "{profile}: {configuration}"
            );
        }
    }
}

/// The default lists of an agent are patterns, which need the profile open.
#[tokio::test]
async fn lists_that_are_null_have_the_agents_defaults() {
    let helm = helm!("lists_that_are_null_have_the_agents_defaults");
    let values = "config: { cluster: a, servers: ['g:1'], impersonation: null }\n";

    let named = helm.template("tombolo-agent", values).await;
    let open = helm.template("tombolo-agent", &format!("{values}rbac: {{ profile: open }}\n")).await.unwrap();

    assert!(named.unwrap_err().contains("RBAC knows no patterns"));
    assert_eq!(rights(&open), rights(&printed("", "open").await));
}

#[tokio::test]
async fn the_chart_refuses_the_names_that_tombolo_rbac_refuses() {
    let helm = helm!("the_chart_refuses_the_names_that_tombolo_rbac_refuses");
    for (names, words) in REFUSED {
        for profile in PROFILES {
            let impersonation = format!("impersonation: {{ {names} }}");
            let values = format!(
                "config:\n  cluster: a\n  servers: ['g:1']\n  {impersonation}\nrbac: {{ profile: {profile} }}\n"
            );

            let chart = helm.template("tombolo-agent", &values).await.expect_err(&values);
            let program = rbac(&impersonation, profile).await;

            assert!(chart.contains(words), "{values}: {chart}");
            let message = String::from_utf8_lossy(&program.stderr);
            let list = names.split_once(':').unwrap().0;
            let key = format!(": impersonation.{list}: ");
            assert!(!program.status.success() && message.contains(&key), "{profile}, {names}: {message}");
        }
    }
}

/// The role for the Secret is beside a role for what the cluster publishes in the same namespace.
#[tokio::test]
async fn no_two_rights_have_one_name_in_a_namespace_of_the_cluster() {
    let helm = helm!("no_two_rights_have_one_name_in_a_namespace_of_the_cluster");
    let chart = folder("tombolo-agent");
    for namespace in PUBLISHING {
        let words = ["template", "trial", chart.to_str().unwrap(), "--namespace", namespace];
        let made = helm.run(&words, "config: { cluster: a, servers: ['g:1'] }\n").await.unwrap();

        let rights = rights(&made);

        let names: BTreeSet<String> = rights.iter().map(place).collect();
        assert_eq!(names.len(), rights.len(), "{namespace}: {names:?}");
        let reads_the_secret = |right: &&Value| right["rules"][0]["resources"][0] == "secrets";
        let role = rights.iter().find(reads_the_secret).unwrap();
        let bound = rights.iter().filter(|right| {
            right["roleRef"]["name"] == role["metadata"]["name"]
                && right["metadata"]["namespace"] == namespace
        });
        assert_eq!(bound.count(), 1, "{namespace}: {role}");
    }
}

/// The ServiceAccount, the roles and their bindings, without the chart's labels, in a fixed order.
fn rights(manifests: &str) -> Vec<Value> {
    let kinds = ["ServiceAccount", "Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"];
    let mut rights: Vec<Value> = objects(manifests)
        .into_iter()
        .filter(|object| kinds.contains(&object["kind"].as_str().unwrap_or_default()))
        .collect();
    for right in &mut rights {
        right["metadata"].as_object_mut().unwrap().remove("labels");
    }
    rights.sort_by_key(place);
    assert!(rights.len() > 8, "{manifests}");
    rights
}

/// The kind, the namespace and the name, which no other object has.
fn place(right: &Value) -> String {
    format!("{} {} {}", right["kind"], right["metadata"]["namespace"], right["metadata"]["name"])
}

/// The manifests that `tombolo rbac` prints for this configuration.
async fn printed(configuration: &str, profile: &str) -> String {
    let output = rbac(configuration, profile).await;
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

/// Runs `tombolo rbac` with this configuration, which it may refuse.
async fn rbac(configuration: &str, profile: &str) -> Output {
    let scratch = Scratch::new("tombolo-rights-").unwrap();
    let file = scratch.path().join("agent.yaml");
    let head = "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n";
    fs::write(&file, format!("{head}{configuration}\n")).unwrap();
    let words = ["rbac", "--agent-config", file.to_str().unwrap(), "--profile", profile];
    run(&Invocation::of(binary("tombolo")).arguments(words), RUN_MAX).await.unwrap()
}
