//! Wrong flags and files, each with its exit code and with the words that its message must have. The tables of the daemons are
//! in the end-to-end test `bad_input`.

use crate::workdir::{WorkDir, assert_says, stderr};

/// The arguments, the exit code, and words of the message. Exit code 2 is wrong usage, 1 is any other failure.
type WrongInput = (&'static str, i32, &'static [&'static str]);

const LABELS: &[WrongInput] = &[
    ("cluster list -l stage>1", 2, &["\"stage>1\" is not the name of a label", "use a name such as stage"]),
    ("cluster list -l stage==a=b", 2, &["\"a=b\" is not the value of a label", "use letters, digits"]),
    ("cluster list -l stage=a,", 2, &["no condition on a label", "use stage=live"]),
    ("cluster list -l stage edge-1", 2, &["--selector", "cannot be used with"]),
    ("cluster list --sort-by size", 2, &["'size'", "possible values: name, health"]),
    ("cluster list --sort-by name --watch", 2, &["--sort-by", "cannot be used with", "--watch"]),
    ("cluster list -o xml", 2, &["'xml'", "possible values: wide, json, yaml, name"]),
    ("cluster list Edge_1", 2, &["Edge_1", "lower-case letters"]),
    ("cluster label edge-1", 2, &["NAME=VALUE|NAME-"]),
    ("cluster label edge-1 stage", 2, &["use NAME=VALUE to set a label, or NAME- to remove it"]),
    ("cluster label edge-1 a/b/c=1", 2, &["\"a/b/c\" is not the name of a label", "example.com/stage"]),
    ("cluster label edge-1 stage=a_", 2, &["\"a_\" is not the value of a label", "at most 63"]),
    ("cluster label edge-1 stage--", 2, &["\"stage-\" is not the name of a label"]),
    ("cluster label edge-1 stage=a stage-", 1, &["label stage", "to be set and to be removed", "leave one"]),
    ("cluster label edge-1 stage=a stage=b", 1, &["label stage", "set twice", "leave one"]),
    ("cluster create edge-1 --label =x", 2, &["\"\" is not the name of a label"]),
    ("cluster create edge-1 --label stage", 2, &["use NAME=VALUE"]),
];

const ADMIN: &[WrongInput] = &[
    ("frob", 2, &["unrecognized subcommand 'frob'"]),
    ("cluster delete edge-1 --socket none.sock", 1, &["no terminal on which to ask", "Give --yes"]),
    ("cluster undelete", 2, &["<CLUSTER>"]),
    (
        "cluster undelete edge-1 --socket none.sock",
        1,
        &["there is no socket none.sock", "start tunnel-server"],
    ),
    (
        "cluster update edge-1",
        1,
        &["nothing is to be changed", "--network or --advertise", "tombolo cluster label edge-1"],
    ),
    (
        "cluster create edge-1 --print helm --wait --timeout 10x",
        2,
        &["'10x'", "use whole numbers with s, m or h", "90s"],
    ),
    ("cluster create edge-1 --timeout 10s", 2, &["--wait"]),
    ("cluster create edge-1 --wait --timeout 10s --socket none.sock", 1, &["there is no socket none.sock"]),
    ("cluster create edge-1 --user alice", 2, &["--print <COMMAND>"]),
    ("agent revoke --cluster edge-1 --socket none.sock", 1, &["no terminal on which to ask", "Give --yes"]),
    ("agent revoke --cluster edge-1 --yes --socket none.sock", 1, &["there is no socket none.sock"]),
    ("agent revoke edge-1/one --yes", 2, &["cannot be used with", "--yes"]),
    ("agent list -o xml", 2, &["'xml'", "possible values: wide, json, yaml"]),
    ("agent revoke edge-1", 2, &["use CLUSTER/AGENT, as `tombolo cluster list --output wide` shows them"]),
    ("agent revoke", 2, &["<CLUSTER/AGENT|--cluster <CLUSTER>|--serial <SERIAL>>"]),
    ("agent restore", 2, &["<CLUSTER/AGENT|--serial <SERIAL>>"]),
    ("agent restore --cluster edge-1", 2, &["unexpected argument '--cluster'"]),
    ("token create --cluster edge-1 --ttl 15", 2, &["'15'", "use a whole number with m, h or d"]),
    ("token create --cluster edge-1 --dir d -o token", 2, &["--dir", "cannot be used with"]),
    ("token create --cluster edge-1 --force", 2, &["--dir <DIR>"]),
    (
        "token create --cluster edge-1 -o token --user a",
        1,
        &["--user has no effect on -o token", "leave it out"],
    ),
    (
        "token create --cluster edge-1 -o agent-config --cluster-role a",
        1,
        &["--cluster-role has no effect on -o agent-config"],
    ),
    ("token create --cluster edge-1 --set a=b", 1, &["--set has no effect on the printed commands"]),
    (
        "token create --cluster edge-1 -o helm --set a=b --socket none.sock",
        1,
        &["there is no socket none.sock"],
    ),
    ("token create --cluster edge-1 --servers gateway.example", 2, &["'gateway.example'", "use HOST:PORT"]),
    ("server export --out - --socket none.sock", 1, &["there is no socket none.sock"]),
    ("cluster list --server https://s:9443", 2, &["--ca <FILE>", "--cert <FILE>", "--key <FILE>"]),
    ("cluster list --server http://s --ca a --cert b --key c", 2, &["--server", "https"]),
    ("user revoke", 2, &["--name <NAME>|--serial <SERIAL>"]),
];

const FILES: &[WrongInput] = &[
    ("kubeconfig $ --token-file empty", 1, &["the token file empty is empty", "tombolo user token create"]),
    ("kubeconfig $ --token-file lines", 1, &["the token file lines has more than one line", "one token"]),
    ("kubeconfig $ --token-file none", 1, &["cannot read none"]),
    (
        "kubeconfig $ --cert pki/edge-1-agent.crt --key pki/edge-1-agent.key",
        1,
        &["pki/edge-1-agent.crt", "agent", "spiffe://tombolo/cluster/edge-1/", "tombolo ca issue caller"],
    ),
    (
        "kubeconfig $ --cert pki/alice-caller.crt --key pki/edge-1-agent.key",
        1,
        &["pki/edge-1-agent.key does not belong to the certificate pki/alice-caller.crt", "pass the pair"],
    ),
    ("rbac --agent-config none.yaml", 1, &["there is no configuration file none.yaml", "create it"]),
    ("rbac --agent-config syntax.yaml", 1, &["syntax.yaml:3:", "unclosed", "the line is `servers: [`"]),
    ("rbac --agent-config policy.yaml", 1, &["policy.yaml:2:7", "kind: Policy", "use AgentConfig"]),
    ("policy check syntax.yaml", 1, &["syntax.yaml:3:", "the line is `servers: [`"]),
    ("policy check policy.yaml", 1, &["policy.yaml:3:1", "unknown field `rule`", "the line is `rule: []`"]),
    ("user token hash weak.csv", 1, &["line 1", "fewer than 22 characters", "tombolo user token create"]),
    ("ca show empty", 1, &["empty"]),
];

#[test]
fn each_wrong_input_has_its_exit_code_and_says_what_to_do() {
    let workdir = WorkDir::with_caller();
    workdir.succeeds("ca issue agent --dir pki --cluster edge-1");
    let head = |kind: &str| format!("apiVersion: tombolo.dev/v1alpha1\nkind: {kind}\n");
    for (file, text) in [
        ("empty", String::new()),
        ("lines", "one\ntwo\n".to_owned()),
        ("weak.csv", "sesame,alice,1\n".to_owned()),
        ("syntax.yaml", "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\nservers: [\n".to_owned()),
        ("policy.yaml", format!("{}rule: []\n", head("Policy"))),
    ] {
        workdir.write(file, text);
    }
    let gateway = "--gateway https://g.example --ca pki/server-ca.crt --cluster c";
    for (line, code, words) in [LABELS, ADMIN, FILES].into_iter().flatten() {
        let said = stderr(workdir.run(&line.replace('$', gateway)).code(*code));

        for word in *words {
            assert_says(&said, word);
        }
        assert_eq!(said.matches("error: ").count(), 1, "{line}: {said}");
    }
}
