//! Tests of `tombolo rbac`: the rules for an agent, and the configurations that it refuses.

use std::path::Path;

use crate::workdir::{WorkDir, assert_says};

#[test]
fn the_shipped_profiles_are_generated_from_the_examples() {
    let deploy = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy");
    for (example, profile, file) in [
        ("agent.yaml", "named", "rbac/named.yaml"),
        ("agent.yaml", "open", "rbac/open.yaml"),
        ("agent.yaml", "constrained", "rbac/constrained.yaml"),
        ("edge-a/agent.yaml", "named", "examples/edge-a/rbac.yaml"),
    ] {
        let example = deploy.join("examples").join(example);
        let made = WorkDir::new()
            .succeeds(&format!("rbac --agent-config {} --profile {profile}", example.display()));
        let shipped = std::fs::read_to_string(deploy.join(file)).unwrap();
        assert_eq!(made, shipped, "{file}; make it again: tombolo rbac --profile {profile}");
    }
}

#[test]
fn a_pattern_is_an_error_unless_the_profile_is_open() {
    let workdir = WorkDir::new();
    for list in ["users: ['*']", "groups: ['team:*', ops]", "systemNames: []"] {
        workdir.write("agent.yaml", agent(list));
        for profile in ["", "--profile named", "--profile constrained"] {
            let refused = workdir.fails(&format!("rbac --agent-config agent.yaml {profile}"));
            assert_says(&refused, "RBAC knows no patterns");
            assert_says(&refused, "--profile open");
        }
        workdir.succeeds("rbac --agent-config agent.yaml --profile open");
    }
}

#[test]
fn a_list_without_names_makes_no_rule_at_all() {
    let workdir = WorkDir::new();
    workdir.write("agent.yaml", agent("users: [], groups: []"));
    for profile in ["named", "constrained"] {
        let made = workdir.succeeds(&format!("rbac --agent-config agent.yaml --profile {profile}"));
        assert!(!made.contains("[\"impersonate\"]") && !made.contains("\"impersonate:user-info\""), "{made}");
        assert!(!made.contains("resourceNames: []"), "{made}");
    }
}

#[test]
fn pods_and_services_of_tenants_are_read_and_their_secrets_are_not() {
    let workdir = WorkDir::new();
    let tenants = "tenants: [{ kind: Service, namespace: tenant-a, port: 6443 }, { kind: Pod, namespace: tenant-a, port: 1 }, \
                   { kind: Pod, labelSelector: app, port: 1 }]\n";
    workdir.write("agent.yaml", agent("users: [ann], groups: [ops]") + tenants);

    let made = workdir.succeeds("rbac --agent-config agent.yaml");

    let verbs = "verbs: [\"list\", \"watch\"]\n";
    let rule = |kinds: &str| format!("- apiGroups: [\"\"]\n  resources: [{kinds}]\n  {verbs}---\n");
    assert_eq!(made.matches(&rule("pods, services")).count(), 1, "{made}");
    assert_eq!(made.matches(&rule("pods")).count(), 1, "{made}");
    assert_eq!(made.matches("namespace: \"tenant-a\"").count(), 2, "{made}");
    assert_eq!(made.matches("name: tunnel-agent-tenants").count(), 6, "{made}");
    assert_eq!(made.matches("resources: [secrets]").count(), 1, "{made}");
}

#[test]
fn services_are_read_by_name_where_the_agent_dials_them_and_nowhere_else() {
    let workdir = WorkDir::new();
    let dialed = "advertise: ['kubernetes.default.svc:443', 'api.site.example:6443']\n\
                  targets: ['hook.shop.svc:443', 'hook.shop.svc:80', 'api.shop.svc:443', '10.96.0.0/12:443', 'db.example:5432']\n";
    workdir.write("agent.yaml", agent("users: [ann], groups: [ops]") + dialed);

    let made = workdir.succeeds("rbac --agent-config agent.yaml");

    let verbs = "verbs: [\"list\", \"watch\"]\n";
    for names in ["\"api\", \"hook\"", "\"kubernetes\""] {
        let rule =
            format!("- apiGroups: [\"\"]\n  resources: [services]\n  {verbs}  resourceNames: [{names}]\n");
        assert_eq!(made.matches(&rule).count(), 1, "{names}: {made}");
    }
    let slices = format!("- apiGroups: [discovery.k8s.io]\n  resources: [endpointslices]\n  {verbs}---\n");
    assert_eq!(made.matches(&slices).count(), 2, "{made}");
    assert_eq!(made.matches("  name: tunnel-agent-services\n  namespace: \"shop\"").count(), 2, "{made}");
    assert_eq!(made.matches("name: tunnel-agent-services\n").count(), 6, "{made}");
    assert!(!made.contains("kind: ClusterRole\nmetadata:\n  name: tunnel-agent-services"), "{made}");

    workdir.write(
        "agent.yaml",
        agent("users: [ann], groups: [ops]") + "targets: ['10.96.0.0/12:443', 'db.example:1']\n",
    );
    let made = workdir.succeeds("rbac --agent-config agent.yaml");
    assert!(!made.contains("services"), "{made}");
}

#[test]
fn system_names_get_rules_for_their_kind() {
    let workdir = WorkDir::new();
    let names = "users: [ann], groups: [ops], systemNames: ['system:serviceaccount:ci:deployer', 'system:monitoring']";
    workdir.write("agent.yaml", agent(names));

    let made = workdir.succeeds("rbac --agent-config agent.yaml");

    assert!(made.contains("resources: [users]\n  verbs: [\"impersonate\"]\n  resourceNames: [\"ann\", \"system:monitoring\"]"), "{made}");
    assert!(made.contains("resources: [groups]\n  verbs: [\"impersonate\"]\n  resourceNames: [\"ops\", \"system:monitoring\"]"), "{made}");
    assert!(made.contains("namespace: \"ci\"\nrules:"), "{made}");
    assert!(
        made.contains(
            "resources: [serviceaccounts]\n  verbs: [\"impersonate\"]\n  resourceNames: [\"deployer\"]"
        ),
        "{made}"
    );
}

#[test]
fn errors_in_the_agents_file_are_named() {
    let workdir = WorkDir::new();
    for (list, words) in [
        ("users: ['system:admin']", "impersonation.users: system:admin"),
        ("systemNames: ['system:masters']", "above every rule"),
        ("user: [ann]", "user"),
    ] {
        workdir.write("agent.yaml", agent(list));
        assert_says(&workdir.fails("rbac --agent-config agent.yaml"), words);
    }
    workdir.write("agent.yaml", agent("users: [a], groups: [b], systemNames: ['system:node:edge-1']"));
    assert_says(
        &workdir.fails("rbac --agent-config agent.yaml --profile constrained"),
        "the node system:node:edge-1",
    );
    workdir.fails("rbac --agent-config none.yaml");
}

fn agent(impersonation: &str) -> String {
    format!("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\nimpersonation: {{ {impersonation} }}\n")
}
