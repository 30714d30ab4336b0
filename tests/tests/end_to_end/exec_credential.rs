//! An unmodified kubectl whose credential comes from `tombolo credential`: a certificate, a token file that is exchanged, and the token of a
//! ServiceAccount.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use tests::binaries::binary;
use tests::kube::EdgeCluster;
use tests::kube::kubectl::Kubectl;
use tests::rig::policy::allow_all;
use tests::rig::{ApiServer, GROUP, Rig, TOKEN};
use trust::user_token::TokenDigest;

/// The limit for one kubectl.
const KUBECTL_MAX: Duration = Duration::from_secs(60);

/// The audience of tokens for the gateway.
const AUDIENCE: &str = "tombolo";

/// The name under which a ServiceAccount arrives at the cluster.
const ACCOUNT: &str = "host:system:serviceaccount:default:ann";

#[tokio::test]
async fn kubectl_takes_each_credential_from_the_plugin() {
    let cluster = EdgeCluster::start().await.expect("a cluster starts");
    let account = cluster.create_agent_account().await.expect("an account for the agent");
    let rig = Rig::start_with(&review_by(&cluster).await).await;
    let _agent = rig.agent("edge-a", &ApiServer::of(&cluster, &account)).await;

    certificate_until_it_has_expired(&rig, &cluster).await;
    token_file_that_is_exchanged(&rig, &cluster).await;
    token_of_a_service_account(&rig, &cluster).await;
}

async fn certificate_until_it_has_expired(rig: &Rig, cluster: &EdgeCluster) {
    rig.caller("alice", &[GROUP]).await;
    let (crt, key) = ("pki/alice-caller.crt", "pki/alice-caller.key");
    let alice = kubectl(rig, cluster, "alice", &["--cert", crt, "--key", key]).await;
    assert_eq!(who(&alice).await, "alice");

    let end = SystemTime::now() - Duration::from_secs(3600);
    let old = rig.caller_until("alice", &[GROUP], end);
    rig.write(crt, &old.certificate_pem);
    rig.write(key, &old.key_pem);
    let refused = alice.refusal(&["get", "namespaces"]).await;
    assert!(refused.contains("alice-caller.crt has expired on"), "{refused}");
    assert!(refused.contains("have a new one issued"), "{refused}");
}

async fn token_file_that_is_exchanged(rig: &Rig, cluster: &EdgeCluster) {
    let other = "another-token-for-trials";
    let line = |token: &str, user: &str| {
        format!("{},{user},{user},\"{GROUP}\"\n", TokenDigest::of(token.as_bytes()))
    };
    rig.write("tokens.csv", &(line(TOKEN, "tess") + &line(other, "tom")));
    rig.write("token", TOKEN);
    let by_file = kubectl(rig, cluster, "file", &["--token-file", "token"]).await;
    assert_eq!(who(&by_file).await, "token:tess");
    rig.write("token", other);
    tests::lb_cluster::until("the server has read its tokens again", KUBECTL_MAX, async || {
        let asked = by_file.run(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await;
        let asked = asked.expect("kubectl");
        (asked.status.success() && asked.stdout == b"token:tom").then_some(())
    })
    .await;
    rig.write("token", "");
    let refused = by_file.refusal(&["get", "namespaces"]).await;
    assert!(refused.contains("token is empty; it must hold one token"), "{refused}");
}

async fn token_of_a_service_account(rig: &Rig, cluster: &EdgeCluster) {
    let of_account = allow_all("ann", ("token", "nobody"), &["*"]).replace(
        "method: token, group: \"nobody\"",
        &format!("method: \"token-review:host\", user: {ACCOUNT:?}"),
    );
    let usual = tests::rig::policy::usual();
    rig.put_policy(&[usual.as_slice(), &[of_account]].concat()).await;
    // The file of a projected volume has the same.
    let minted = ["create", "token", "ann", "-n=default", "--audience", AUDIENCE, "--duration=10m"];
    rig.write("projected", &cluster.admin().stdout(&minted).await);
    let ann = kubectl(rig, cluster, "ann", &["--token-file", "projected"]).await;
    assert_eq!(who(&ann).await, ACCOUNT);
}

/// A kubectl whose kubeconfig runs the plugin with this credential.
async fn kubectl(rig: &Rig, cluster: &EdgeCluster, name: &str, credential: &[&str]) -> Kubectl {
    let (gateway, program) = (format!("https://{}", rig.gateway()), binary("tombolo"));
    let exec = format!("--exec={}", program.display());
    let output = format!("{name}-exec.kubeconfig");
    let words =
        ["kubeconfig", "--gateway", &gateway, "--ca", "pki/server-ca.crt", "--cluster", "edge-a", &exec];
    rig.tombolo(&[words.as_slice(), credential, &["--output", &output]].concat()).await;
    let kubeconfig: PathBuf = rig.path().join(output);
    let text = std::fs::read_to_string(&kubeconfig).expect("a kubeconfig");
    assert!(!text.contains("client-key") && !text.contains(TOKEN), "no credential is in it: {text}");
    cluster.kubectl_with(kubeconfig).limit(KUBECTL_MAX)
}

/// The name by which the API server knows the user.
async fn who(kubectl: &Kubectl) -> String {
    kubectl.stdout(&["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"]).await
}

/// The part of a server's configuration that lets a cluster review tokens.
async fn review_by(cluster: &EdgeCluster) -> String {
    let admin = cluster.admin();
    for words in [
        ["create", "serviceaccount", "reviewer", "-n=default"].as_slice(),
        &["create", "serviceaccount", "ann", "-n=default"],
        &[
            "create",
            "clusterrolebinding",
            "reviewer",
            "--clusterrole=system:auth-delegator",
            "--serviceaccount=default:reviewer",
        ],
    ] {
        admin.stdout(words).await;
    }
    let (ca, token) = (cluster.directory().join("review-ca.crt"), cluster.directory().join("review-token"));
    let minted = admin.stdout(&["create", "token", "reviewer", "-n=default"]).await;
    let write = |path: &Path, text: &str| std::fs::write(path, text).expect("a file can be written");
    write(&ca, cluster.ca_pem());
    write(&token, minted.trim());
    format!(
        "    tokenReview:\n      name: host\n      server: {}\n      caFile: {ca:?}\n      tokenFile: {token:?}\n      \
         audiences: [{AUDIENCE}]\n      usernamePrefix: \"host:\"\n      groupsPrefix: \"host:\"\n",
        cluster.url()
    )
}
