//! Tests of `tombolo policy check` and `tombolo policy explain`.

use std::path::Path;

use serde_json::{Value, json};

use crate::workdir::{WorkDir, assert_says};

const POLICY: &str = "apiVersion: tombolo.dev/v1alpha1
kind: Policy
rules:
- name: readers
  effect: Allow
  subjects: [{ method: client-certificate, group: ops }, { method: token, user: \"token:bob\" }]
  clusters: { labelSelector: { matchLabels: { stage: live } } }
  mode: kube-api
  actions: [{ verbs: [get, list, watch], apiGroups: [\"*\"], resources: [\"*\"], namespaces: [\"*\"], nonResourceURLs: [/version] }]
- name: no-secrets
  effect: Deny
  subjects: [{ method: \"*\", user: \"*\" }]
  clusters: { names: [\"*\"] }
  mode: kube-api
  actions: [{ verbs: [\"*\"], apiGroups: [\"\"], resources: [secrets], namespaces: [shop] }]
- name: database
  effect: Allow
  subjects: [{ method: token, user: \"token:bob\" }]
  clusters: { names: [edge-1] }
  mode: dial
  targets: [{ hosts: [10.0.0.0/8], ports: [5432] }]
- name: deputies
  effect: Allow
  subjects: [{ method: token, user: \"token:bob\" }]
  clusters: { names: [edge-1] }
  mode: impersonate
  identities: [{ users: [\"ci:*\"], groups: [dev] }]
";

const ALICE: &str =
    "--method client-certificate --user alice --group dev --group ops --cluster edge-1 --labels stage=live";
const BOB: &str = "--method token --user token:bob --cluster edge-1 --labels a=b,stage=live";

#[test]
fn an_explanation_names_the_rule_and_the_exit_code_is_the_verdict() {
    let workdir = workdir();
    for (asked, code, said) in [
        (
            format!("{ALICE} --verb list --resource pods --namespace shop"),
            0,
            "\"alice\" may list pods in the namespace shop of the cluster edge-1: the rule readers allows it",
        ),
        (
            format!("{BOB} --verb watch --resource deployments --api-group apps"),
            0,
            "\"token:bob\" may watch deployments.apps of the cluster edge-1: the rule readers allows it",
        ),
        (
            format!("{ALICE} --verb list --resource secrets --namespace shop"),
            1,
            "the rule no-secrets denies it",
        ),
        (
            format!("{ALICE} --verb list --resource secrets"),
            1,
            "the rule no-secrets denies it in some namespaces, and the request spans all of them",
        ),
        (format!("{ALICE} --verb get --resource secrets --namespace bank"), 0, "the rule readers allows it"),
        (format!("{ALICE} --verb connect --resource pods/exec"), 1, "\"alice\" may not connect pods/exec"),
        (ALICE.replace("live", "test") + " --verb list --resource pods", 1, "no rule allows it"),
        (ALICE.replace("--group ops ", "") + " --verb list --resource pods", 1, "no rule allows it"),
        (
            ALICE.replace("client-certificate", "token") + " --verb list --resource pods",
            1,
            "no rule allows it",
        ),
        (
            format!("{BOB} --path /api/v1/namespaces/shop/pods?watch=1"),
            0,
            "may watch pods in the namespace shop of",
        ),
        (
            format!("{BOB} --path /api/v1/namespaces/shop/pods/x/exec"),
            1,
            "may not connect pods/exec in the namespace",
        ),
        (format!("{BOB} --path /api/v1/namespaces/shop/pods --http-method POST"), 1, "may not create pods"),
        (format!("{BOB} --path /version"), 0, "may get /version of the cluster edge-1"),
        (
            format!("{BOB} --target 10.2.3.4:5432"),
            0,
            "may dial 10.2.3.4:5432 of the cluster edge-1: the rule database",
        ),
        (format!("{BOB} --target 11.2.3.4:5432"), 1, "no rule allows it"),
        (
            format!("{BOB} --as ci:deployer --as-group dev"),
            0,
            "may act as the user \"ci:deployer\" with the groups [\"dev\"] at the cluster edge-1: the rule deputies",
        ),
        (format!("{BOB} --as ci:deployer --as-group dev --as-group ops"), 1, "no rule allows it"),
        (format!("{ALICE} --as ci:deployer"), 1, "no rule allows it"),
    ] {
        let assert = workdir.run(&format!("policy explain --policy policy.yaml {asked}")).code(code);
        let explained = crate::workdir::stdout(assert);
        assert_says(&explained, said);
        let may_be_refused =
            explained.contains("policy.delegation") && explained.contains("may still refuse");
        assert_eq!(may_be_refused, code == 0, "{explained}");
    }
}

#[test]
fn what_cannot_be_decided_ends_with_2_and_says_why() {
    let workdir = workdir();
    for (asked, said) in [
        (format!("{ALICE} --verb get --resource pods/exec"), "reaches into a workload"),
        (format!("{ALICE} --verb connect --resource pods"), "connect is for exec"),
        (format!("{ALICE} --verb gett --resource pods"), "use one of get, list"),
        (format!("{ALICE} --path /api/../x"), "a segment '.' or '..'"),
        (format!("{ALICE} --path /api --http-method TRACE"), "TRACE is not served"),
        (format!("{ALICE} --target 127.1:80"), "use HOST:PORT"),
        (format!("{ALICE} --resource pods"), "--verb"),
        (format!("{ALICE} --verb get"), "--resource"),
        (ALICE.to_owned(), "--path"),
        (format!("{ALICE} --path /api --target a:1"), "cannot be used with"),
        (format!("{ALICE} --path /api --as bob"), "cannot be used with"),
        (format!("{ALICE} --as-group dev"), "--as"),
        (ALICE.replace("client-certificate", "cert") + " --path /api", "client-certificate, token"),
        (ALICE.replace("stage=live", "stage") + " --path /api", "KEY=VALUE"),
    ] {
        let assert = workdir.run(&format!("policy explain --policy policy.yaml {asked}")).code(2);
        assert_says(&crate::workdir::stderr(assert), said);
    }
    workdir.write("policy.yaml", POLICY.replace("effect: Deny", "effect: Denyy"));
    let assert = workdir.run(&format!("policy explain --policy policy.yaml {ALICE} --path /version")).code(2);
    assert_says(&crate::workdir::stderr(assert), "policy.yaml:11:11: rules[1].effect: \"Denyy\"");
    let assert = workdir.run(&format!("policy explain --policy none.yaml {ALICE} --path /version")).code(2);
    assert_says(&crate::workdir::stderr(assert), "none.yaml");
}

#[test]
fn json_has_the_request_and_the_decision() {
    let workdir = workdir();
    let asked = format!("{ALICE} --path /apis/apps/v1/namespaces/shop/deployments/d/scale -o json");

    let said: Value =
        serde_json::from_str(&workdir.succeeds(&format!("policy explain --policy policy.yaml {asked}")))
            .unwrap();

    assert_eq!(
        said,
        json!({
            "allowed": true, "rule": "readers", "reason": "the rule readers allows it", "cluster": "edge-1",
            "asked": { "verb": "get", "apiGroup": "apps", "resource": "deployments", "subresource": "scale",
                "namespace": "shop", "name": "d" },
            "delegationMayRefuse": true,
        })
    );
}

#[test]
fn a_check_finds_what_a_server_would_and_the_examples_are_good() {
    let workdir = workdir();
    assert_says(
        &workdir.succeeds("policy check policy.yaml"),
        "policy.yaml: 4 rules, and nothing wrong in them",
    );
    assert_says(
        &workdir.succeeds("policy check policy.yaml"),
        "policy.yaml: note: the rule no-secrets denies some namespaces, and therefore also list and watch and \
         deletecollection of all namespaces together",
    );
    for example in ["policy.yaml", "cloud/policy.yaml"] {
        let example = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/examples").join(example);
        workdir.write("example.yaml", std::fs::read(example).unwrap());
        workdir.succeeds("policy check example.yaml");
    }
    for (from, to, said) in [
        ("kind: Policy", "kind: Polcy", "broken.yaml:2:7: kind: Polcy"),
        ("10.0.0.0/8", "10.0.0.0/80", "rules[2].targets[0].hosts[0]"),
        ("name: readers", "name: readers\n  name: x", "broken.yaml:5"),
    ] {
        workdir.write("broken.yaml", POLICY.replacen(from, to, 1));
        assert_says(&workdir.fails("policy check broken.yaml"), said);
    }
}

fn workdir() -> WorkDir {
    let workdir = WorkDir::new();
    workdir.write("policy.yaml", POLICY);
    workdir
}
