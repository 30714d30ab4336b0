//! Secrets in wrong files, and in the wrong fields of files and variables: no error quotes one.

use std::fs;

use tests::enroll::private;
use tests::rig::{Rig, free_port};

use super::planted::Planted;
use super::{LEVEL, written};

/// Wrong users of a kubeconfig. `$` is the secret, in or beside the mistake.
const USERS: [&str; 10] = [
    "token: [$",
    "token: { $: $ }",
    "token: \"$",
    "token: \"$\" $",
    "token: $: $",
    "token: *$",
    "token: \"\\$\"",
    "token: $\n\tx: $",
    "{ token: $",
    "client-key-data: $!",
];

/// Wrong lines of a configuration. `$` is a secret and `TOKEN` is one of ours.
const LINES: [&str; 13] = [
    "drainGraceSeconds: $",
    "drainGraceSeconds: [$]",
    "runtime: { layout: $ }",
    "log: { format: $ }",
    "probes: $",
    "token: $",
    "TOKEN: x",
    "log: { level:$ }",
    "log: \"$",
    "log: $: x",
    "log: *$",
    "log: { level: \"\\$\" }",
    "---\ntoken: $",
];

/// The same of an agent's alone.
const LINES_OF_AGENTS: [&str; 14] = [
    "passThrough: $",
    "serverName: { token: $ }",
    "proxy: \"http://me:$@proxy.test:3128\"",
    "proxy: { url:http://me:$@proxy.test:3128 }",
    "proxy: { url: [\"http://me:$@proxy.test:3128\"] }",
    "proxy: { url: \"http://me:$@proxy.test:3128 }",
    "proxy: { url: http://me:$@proxy.test: 3128 }",
    "proxy: { url: \"https://me:$@proxy.test:3128\" }",
    "proxy: { url: \"http://me:$@proxy.test:port\" }",
    "proxy: { url: \"http://me:$/x@proxy.test:3128\" }",
    "proxy: { noProxy: \"http://me:$@proxy.test\" }",
    "serverIds: [\"http://me:$@gateway.test\"]",
    "targets: [\"http://me:$@10.0.0.1:80\"]",
    "advertise: [\"https://me:$@10.0.0.1:6443\"]",
];

/// The same of a server's: what is put in place of what.
const CHANGES_OF_SERVERS: [(&str, &str); 12] = [
    ("  hostSuffix:", "  browserOrigins: [\"https://me:$@console.test\"]\n  hostSuffix:"),
    ("  hostSuffix:", "  hosts: [\"me:$@gateway.test\"]\n  hostSuffix:"),
    (
        "    clientCertificate:",
        "    tokenReview: { name: a, server: \"https://me:$@a.test\", audiences: [a] }\n    clientCertificate:",
    ),
    (
        "    clientCertificate:",
        "    oidc: [{ name: a, issuer: \"https://me:$@a.test\" }]\n    clientCertificate:",
    ),
    (
        "    clientCertificate:",
        "    oidc: [{ name: a, issuer: \"https://$@a.test\" }]\n    clientCertificate:",
    ),
    ("policy: { file: policy.yaml }", "policy: { file: p, delegation: { server: \"https://me:$@a.test\" } }"),
    ("path: tokens.csv", "path: TOKEN"),
    ("path: tokens.csv", "path: \"$\\n$\""),
    ("path: tokens.csv", "path: { token: $ }"),
    ("pki/server.key", "TOKEN"),
    ("stateDir:", "vip: $\nstateDir:"),
    ("stateDir:", "enrollment: { address: \"http://me:$@a.test\", listen: \"127.0.0.1:1\" }\nstateDir:"),
];

/// A server whose files are good, and secrets for files that are not.
struct ConfigurationSetup {
    planted: Planted,
    rig: Rig,
    /// The secret that replaces `$`.
    secret: String,
    /// The token that replaces `TOKEN`.
    token: String,
    /// A good configuration of a server and of an agent.
    good: [String; 2],
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_error_about_a_configuration_quotes_a_secret_in_it() {
    let setup = ConfigurationSetup::set().await;
    let [server, agent] = setup.good.clone();
    for line in LINES {
        setup.server(line, &format!("{server}\n{}\n", setup.with_secrets(line))).await;
        setup.agent(line, &format!("{agent}\n{}\n", setup.with_secrets(line)), None).await;
    }
    for line in LINES_OF_AGENTS {
        setup.agent(line, &format!("{agent}\n{}\n", setup.with_secrets(line)), None).await;
    }
    for (place, change) in CHANGES_OF_SERVERS {
        assert!(server.contains(place), "{place}");
        setup.server(change, &server.replacen(place, &setup.with_secrets(change), 1)).await;
    }
    let pin = "enrollment: { server: \"a.test:1\", pin: TOKEN, tokenFile: token }";
    let without_tls: String =
        agent.lines().filter(|line| !line.starts_with("tls:")).map(|line| format!("{line}\n")).collect();
    setup.agent(pin, &format!("{without_tls}{}\n", setup.with_secrets(pin)), None).await;
    for url in [
        "https://me:$@proxy.test:3128",
        "http://me:$@proxy.test:port",
        "socks5://me:$@proxy.test",
        "http://me:$@",
    ] {
        setup.agent(url, &agent, Some(("HTTPS_PROXY", &setup.with_secrets(url)))).await;
    }
    setup.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_error_about_a_kubeconfig_quotes_a_secret_in_it() {
    let setup = ConfigurationSetup::set().await;
    let agent = setup.good[1].replace("good.conf", "wrong.conf");
    let key = fs::read_to_string(setup.rig.path().join("pki/admin-ca.key")).expect("a key");
    let pair = |key: &str| format!("client-certificate: pki/server.crt\n    client-key: {key}");
    let files = [("joined.key", key.replace('\n', " ")), ("cut.key", key.replace("-----END", "---"))];
    for (name, text) in &files {
        setup.rig.write(name, text);
    }
    let users = USERS.into_iter().map(|user| setup.with_secrets(user));
    let pairs = [pair("joined.key"), pair("cut.key"), pair("pki/admin-ca.key"), pair(&setup.token)];
    for user in users.chain(pairs) {
        setup.rig.write("wrong.conf", &kubeconfig("https://127.0.0.1:1", &user));
        setup.agent(&user, &agent, None).await;
        setup.people_read("wrong.conf").await;
    }
    for server in ["https://me:$@127.0.0.1:1", "http://me:$@127.0.0.1:1", "https://me:$@127.0.0.1:port"] {
        setup.rig.write("wrong.conf", &kubeconfig(&setup.with_secrets(server), "token: a"));
        setup.agent(server, &agent, None).await;
        setup.people_read("wrong.conf").await;
    }
    setup.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_error_about_a_key_or_a_token_quotes_it() {
    let mut setup = ConfigurationSetup::set().await;
    let [server, agent] = setup.good.clone();
    let key = fs::read_to_string(setup.rig.path().join("pki/admin-ca.key")).expect("a key");
    for (what, text) in [
        ("joined", key.replace('\n', " ")),
        ("joined, without an end", key.replace('\n', " ").trim_end_matches([' ', '-']).to_owned()),
        ("cut", key.split("-----END").next().expect("a key").to_owned()),
        ("not base64", key.replacen("\nM", "\n!M", 1)),
        ("bare", key.lines().filter(|line| !line.starts_with('-')).collect()),
        ("somebody else's", key.clone()),
    ] {
        let _path = private(&setup.rig, "wrong.key", &text);
        setup.server(what, &server.replacen("pki/server.key", "wrong.key", 1)).await;
        setup.server(what, &server.replacen("pki/server.crt", "wrong.key", 1)).await;
        setup.agent(what, &agent.replacen("pki/edge-a-agent.key", "wrong.key", 1), None).await;
        let issued = "--gateway https://a.test --ca pki/server-ca.crt --cert pki/server.crt --key wrong.key";
        for words in [
            "ca show wrong.key",
            &format!("kubeconfig {issued} --cluster a"),
            "doctor server --config server.wrong",
        ] {
            setup.runs_without_leak(words, &[]).await;
        }
    }
    for line in ["$,tess,1", "$ tess", "sha256:$,tess,1", "\"$,tess,1", "\"$\"x,tess,1"] {
        setup.rig.write("wrong.csv", &setup.with_secrets(line));
        setup.server(line, &server.replacen("tokens.csv", "wrong.csv", 1)).await;
    }
    setup.runs_without_leak("user token hash wrong.csv", &[]).await;
    let listener = "trust: { bundleFile: pki/trust.bundle }\nenrollment: { listen: \"127.0.0.1:1\", address: \"a.test:1\", ";
    for (signer, sealing) in [("pki/agent-intermediate.sealed", "wrong"), ("wrong", "pki/sealing.key")] {
        for text in ["$", "{ \"version\": 1, \"sealedKey\": \"$\" }", "{ \"$"] {
            let _path = private(&setup.rig, "wrong", &setup.with_secrets(text));
            let more = format!("{server}\n{listener}signerFile: {signer}, sealingKeyFile: {sealing} }}\n");
            setup.server(text, &more).await;
        }
    }
    setup.planted.know("another-sealing-key", "c2VhbGVkIHdpdGggYSBrZXkgb2YgMzIgYnl0ZXMhISE=");
    let _path = private(&setup.rig, "wrong", "c2VhbGVkIHdpdGggYSBrZXkgb2YgMzIgYnl0ZXMhISE=\n");
    let signer = "signerFile: pki/agent-intermediate.sealed, sealingKeyFile: wrong }\n";
    setup.server("another sealing key", &format!("{server}\n{listener}{signer}")).await;
    setup.runs_without_leak("audit verify server.state/audit --key wrong", &[]).await;
    setup.end().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_error_about_a_persons_own_files_quotes_a_secret_in_them() {
    let setup = ConfigurationSetup::set().await;
    let words = "kubeconfig --ca pki/server-ca.crt --cert pki/server.crt --key pki/server.key --cluster a --output person.conf --force";
    for text in [
        "token: $",
        "gateway: \"https://me:$@a.test\"",
        "gateway: https://me:$@a.test/path",
        "gateway: [\"$",
        "gateway: \"$",
        "gateway: { token: $ }",
        "tokenFile:TOKEN",
        "TOKEN",
        "hostSuffix: me:$@a.test",
        "gateway: https://a.test\ntokenFile: TOKEN",
    ] {
        setup.rig.write("person.yaml", &setup.with_secrets(text));
        let variables = [("TOMBOLO_CONFIG", "person.yaml")];
        setup.runs_without_leak(words, &variables).await;
        setup.runs_without_leak("kubeconfig --cluster a --ca pki/server-ca.crt", &variables).await;
    }
    for (name, value) in [
        ("TOMBOLO_GATEWAY", "https://me:$@a.test"),
        ("TOMBOLO_GATEWAY", "http://$@a.test"),
        ("TOMBOLO_HOST_SUFFIX", "me:$@a.test"),
        ("TOMBOLO_TOKEN_FILE", "TOKEN"),
    ] {
        let value = setup.with_secrets(value);
        setup
            .runs_without_leak(
                "kubeconfig --cluster a --gateway https://a.test --ca pki/server-ca.crt",
                &[(name, &value)],
            )
            .await;
        setup.runs_without_leak("kubeconfig --cluster a --ca pki/server-ca.crt", &[(name, &value)]).await;
    }
    let folder = setup.rig.path().join("broken");
    fs::create_dir(&folder).expect("a folder");
    for text in ["token: $", "trustDomain: [$", "trustDomain: \"$", "trustDomain: me:$@a.test"] {
        setup.rig.write("broken/ca.yaml", &setup.with_secrets(text));
        setup.runs_without_leak("ca issue caller --dir broken --user ann", &[]).await;
    }
    let jwks = "{ \"keys\": [{ \"kty\": \"EC\", \"crv\": \"P-256\", \"kid\": \"a\", \"x\": \"a\", \"y\": \"a\", \"d\": \"$\" }] }";
    setup.rig.write("jwks.json", &setup.with_secrets(jwks));
    setup.runs_without_leak("cluster create edge-a --socket admin/admin.sock", &[]).await;
    setup
        .runs_without_leak(
            "cluster attestation set-keys edge-a --keys jwks.json --socket admin/admin.sock",
            &[],
        )
        .await;
    setup.end().await;
}

impl ConfigurationSetup {
    async fn set() -> Self {
        let mut planted = Planted::default();
        let rig = Rig::start_logging(LEVEL, "").await;
        rig.tombolo(&["ca", "issue", "agent", "--dir", "pki", "--cluster", "edge-a"]).await;
        let secret = planted.canary("configuration");
        let token = planted.know("token", format!("tombolo-user-{}", "5ecre7Canary".repeat(4)));
        for key in ["admin-ca", "server", "edge-a-agent"] {
            let pem = fs::read_to_string(rig.path().join(format!("pki/{key}.key"))).expect("a key");
            planted.know_key(key, &pem);
        }
        rig.write("good.conf", &kubeconfig("https://127.0.0.1:1", "token: a"));
        let server = fs::read_to_string(rig.path().join("server.yaml")).expect("a configuration");
        // Beside the one that runs.
        let server =
            server.replace("server.state", "wrong.state").replace("admin/admin.sock", "wrong/admin.sock");
        let agent = format!(
            "apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\ncluster: edge-a\nservers: [\"{}\"]\n\
             tls: {{ certificateFile: pki/edge-a-agent.crt, keyFile: pki/edge-a-agent.key, serverCAFile: pki/server-ca.crt }}\n\
             apiServer: {{ kubeconfig: good.conf }}\nstateDir: agent.state\n",
            rig.dialed()
        );
        Self { planted, rig, secret, token, good: [server, agent] }
    }

    fn with_secrets(&self, text: &str) -> String {
        text.replace('$', &self.secret).replace("TOKEN", &self.token)
    }

    /// A server refuses a configuration without quoting what must not be, and so does what people examine it
    /// with.
    async fn server(&self, what: &str, text: &str) {
        self.rig.write("server.wrong", text);
        // Those of the file are the running server's.
        let [listener, probes] = [free_port(), free_port()].map(|address| address.to_string());
        let words = ["--config", "server.wrong", "--log-level", "trace", "--probes-listen", &probes];
        let words =
            [words.as_slice(), &["--gateway-listen", &listener, "--tunnel-listen", &listener]].concat();
        let output = self.planted.output_of(self.rig.path(), "tunnel-server", &words, &[]).await;
        assert_eq!(output.code, Some(2), "{what}: {}", output.text);
        self.runs_without_leak("doctor server --config server.wrong", &[]).await;
    }

    /// The same of an agent, perhaps with a variable.
    async fn agent(&self, what: &str, text: &str, variable: Option<(&str, &str)>) {
        self.rig.write("agent.wrong", text);
        let words = ["--config", "agent.wrong", "--log-level", "trace", "--probes-listen", "127.0.0.1:0"];
        let variables: Vec<(String, String)> =
            variable.into_iter().map(|(name, value)| (name.to_owned(), value.to_owned())).collect();
        let output = self.planted.output_of(self.rig.path(), "tunnel-agent", &words, &variables).await;
        assert_eq!(output.code, Some(2), "{what}: {}", output.text);
        if variables.is_empty() {
            self.runs_without_leak("doctor agent --config agent.wrong", &[]).await;
            self.runs_without_leak("rbac --agent-config agent.wrong", &[]).await;
        }
    }

    /// Every command that reads a kubeconfig.
    async fn people_read(&self, kubeconfig: &str) {
        for words in [
            format!("doctor --kubeconfig {kubeconfig}"),
            format!("doctor --kubeconfig {kubeconfig} -o json"),
            format!("vip --server https://a.test --kubeconfig {kubeconfig} --output copy.conf --force"),
            format!(
                "passthrough --server https://127.0.0.1:1 --kubeconfig {kubeconfig} --output copy.conf --force"
            ),
            format!("cluster check edge-a --kubeconfig {kubeconfig} --socket admin/admin.sock"),
        ] {
            self.runs_without_leak(&words, &[]).await;
        }
    }

    /// Runs `tombolo`, successfully or not. Its output must not contain a secret.
    async fn runs_without_leak(&self, words: &str, variables: &[(&str, &str)]) {
        let words: Vec<&str> = words.split(' ').collect();
        let variables: Vec<(String, String)> =
            variables.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())).collect();
        let output = self.planted.output_of(self.rig.path(), "tombolo", &words, &variables).await;
        let usage = output.text.contains("Usage:");
        assert!(!usage, "{words:?} is not understood: {}", output.text);
    }

    /// Nor has the server that ran beside written one down.
    async fn end(self) {
        self.planted.has_none("the server's metrics", &self.rig.metrics(self.rig.probes()).await);
        let logs = written(self.rig.path());
        assert!(!logs.is_empty(), "nothing was logged");
        logs.iter().for_each(|(path, text)| self.planted.has_none(path, text));
    }
}

fn kubeconfig(server: &str, user: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: c\n\
         contexts: [{{ name: c, context: {{ cluster: c, user: u }} }}]\n\
         clusters: [{{ name: c, cluster: {{ server: \"{server}\", certificate-authority: pki/server-ca.crt }} }}]\n\
         users:\n- name: u\n  user:\n    {user}\n"
    )
}
