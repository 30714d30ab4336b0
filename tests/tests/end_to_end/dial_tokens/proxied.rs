//! kubectl with a dial token in its proxy-url, and the CAs that it trusts for that.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use tests::dial::{acceptor, dial_name};
use tests::enroll::at;
use tests::kube::EdgeCluster;
use tests::pki::{Authority, Issued};
use tests::rig::policy::user_may_dial;
use tests::rig::{ApiServer, Rig};
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;

use super::{CA, CLUSTER, NAME, ProxyListeners, USER, rig_with_listeners};

/// The kubeconfig that `tombolo user dial-token kubeconfig` writes.
const KUBECONFIG: &str = "proxied.kubeconfig";

/// It does until the token is revoked.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_with_a_dial_token_acts_as_the_clusters_own_user() {
    let cluster = EdgeCluster::start().await.unwrap();
    let account = cluster.create_agent_account().await.unwrap();
    let (rig, ProxyListeners { proxy, socks, .. }) = rig_with_listeners(100_000).await;
    let target = cluster.address().to_string();
    let more = format!("targets: [{target:?}]\n");
    let _agent = rig.agent_with(CLUSTER, &ApiServer::of(&cluster, &account), &more).await;
    rig.connected(CLUSTER).await;
    rig.put_policy(&[user_may_dial("ci", ("dial-token", USER), &[CLUSTER])]).await;
    at(&rig, &["cluster", "update", CLUSTER, "--advertise", &target]).await;
    let words = ["user", "dial-token", "create", "--user", USER, "--cluster", CLUSTER, "--out", "ci.token"];
    at(&rig, &words).await;
    write_kubeconfig(&rig, proxy, &cluster.admin_kubeconfig()).await;
    let kubectl = cluster.kubectl_with(rig.path().join(KUBECONFIG)).with_home(rig.path().join("home"));

    let whoami = ["auth", "whoami", "-o", "jsonpath={.status.userInfo.username}"];
    assert_eq!(kubectl.stdout(&whoami).await, cluster.admin().stdout(&whoami).await);
    kubectl.stdout(&["create", "namespace", "proxied"]).await;
    // By a watch.
    let active = ["wait", "--for=jsonpath={.status.phase}=Active", "namespace/proxied", "--timeout=60s"];
    kubectl.stdout(&active).await;
    assert!(cluster.admin().stdout(&["get", "namespaces"]).await.contains("proxied"));

    let by_socks = cluster.kubectl_with(with_socks(&rig, socks, &cluster.admin_kubeconfig()));
    assert_eq!(by_socks.stdout(&whoami).await, cluster.admin().stdout(&whoami).await);
    by_socks.stdout(&active).await;

    let shown = at(&rig, &["user", "dial-token", "list"]).await;
    let id = shown.lines().nth(1).unwrap().split_whitespace().next().unwrap().to_owned();
    at(&rig, &["user", "dial-token", "revoke", &id]).await;
    let output = kubectl.refusal(&["get", "namespaces"]).await;
    assert!(output.contains("dial token"), "{output}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_proxys_ca_is_not_trusted_for_an_api_server() {
    let cluster = EdgeCluster::start().await.unwrap();
    let (rig, ProxyListeners { proxy, ca, .. }) = rig_with_listeners(100_000).await;
    rig.write(
        "ci.token",
        "tombolo-dial-0000000000000000.0000000000000000000000000000000000000000000000000000000000000000",
    );
    write_kubeconfig(&rig, proxy, &cluster.admin_kubeconfig()).await;
    let bundle = bundle(&rig);
    assert!(bundle.contains(cluster.ca_pem().trim()) && bundle.contains(ca.trim()));
    let bundle_file = rig.write("bundle.crt", &bundle);
    // An attacker with the CA's key.
    let key = std::fs::read_to_string(rig.path().join("pki/proxy-ca.key")).unwrap();
    let thief = Authority::of(&ca, &key);

    for (names, addresses, asked, is_taken) in [
        (&[][..], &["127.0.0.1"][..], "127.0.0.1", false),
        (&["kubernetes"], &[], "kubernetes", false),
        (&["kubernetes.default.svc"], &["192.168.1.10"], "kubernetes.default.svc", false),
        (&[NAME], &["127.0.0.1"], NAME, false),
        (&["alocalhost"], &[], "alocalhost", false),
        (&[NAME], &[], NAME, true),
    ] {
        let addresses: Vec<_> = addresses.iter().map(|address| address.parse().unwrap()).collect();
        let server = present(&thief.issue_server(names, &addresses)).await;
        let by_rustls = dial_name(server, asked, &bundle, &[], None).await.map(drop);
        let kubeconfig = rig.write(
            "thief.conf",
            &format!(
                "apiVersion: v1\nkind: Config\ncurrent-context: t\nclusters: [{{ name: t, cluster: {{ server: \"https://{server}\", \
                 certificate-authority: {bundle_file:?}, tls-server-name: {asked:?} }} }}]\ncontexts: [{{ name: t, context: {{ \
                 cluster: t, user: t }} }}]\nusers: [{{ name: t, user: {{ token: t }} }}]\n"
            ),
        );
        let output = cluster.kubectl_with(kubeconfig).refusal(&["get", "--raw", "/version"]).await;

        assert_eq!(by_rustls.is_ok(), is_taken, "{names:?} {addresses:?}: {by_rustls:?}");
        if let Err(error) = by_rustls {
            assert!(error.to_string().contains("NameConstraint"), "{names:?} {addresses:?}: {error}");
        }
        // Whom it takes for its API server hangs up.
        assert_eq!(!output.contains("x509"), is_taken, "{names:?} {addresses:?}: {output}");
        assert!(is_taken || output.contains("not authorized to sign"), "{names:?} {addresses:?}: {output}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_kubeconfig_trusts_more_for_its_proxy_than_the_proxy() {
    let (rig, ProxyListeners { proxy, .. }) = rig_with_listeners(100_000).await;
    rig.write("ci.token", "tombolo-dial-0.0");
    let own = STANDARD.encode(std::fs::read_to_string(rig.path().join("pki/agent-ca.crt")).unwrap());
    let good = rig.write("good.conf", &kubeconfig("https://10.0.0.1:443", &own));
    let named = rig.write("named.conf", &kubeconfig("https://api.localhost:443", &own));
    let (by_name, by_other) =
        (format!("https://{NAME}:{}", proxy.port()), "https://gateway.test:8445".to_owned());

    for (proxy, ca, kubeconfig, token, expected) in [
        (&by_name, "pki/server-ca.crt", &good, "ci.token", "may sign for more than a proxy"),
        (&by_other, CA, &good, "ci.token", "not for the proxy"),
        (&by_name, CA, &named, "ci.token", "below a name"),
        (&by_name, CA, &good, "tokens.csv", "one dial token"),
    ] {
        let kubeconfig = kubeconfig.display().to_string();
        let output = rig.tombolo_fails(&words(proxy, ca, &kubeconfig, token)).await;
        assert!(output.contains(expected), "{output}");
        assert!(!rig.path().join(KUBECONFIG).exists());
    }
    let address = rig
        .tombolo_fails(&["ca", "issue", "proxy", "--dir", "pki", "--name", "192.168.1.10", "--force"])
        .await;
    assert!(address.contains("use a DNS name"), "{address}");
}

/// The kubeconfig at `admin` with only its proxy changed.
fn with_socks(rig: &Rig, socks: SocketAddr, admin: &Path) -> PathBuf {
    let (admin, token) = (
        std::fs::read_to_string(admin).unwrap(),
        std::fs::read_to_string(rig.path().join("ci.token")).unwrap(),
    );
    let user = USER.replace(':', "%3A");
    let proxy = format!("    proxy-url: \"socks5://{user}:{}@{socks}\"\n    server: ", token.trim());
    let with_proxy = admin.replacen("    server: ", &proxy, 1);
    assert_ne!(with_proxy, admin);
    rig.write("socks.kubeconfig", &with_proxy)
}

async fn write_kubeconfig(rig: &Rig, proxy: SocketAddr, admin: &Path) {
    let (proxy, admin) = (format!("https://{NAME}:{}", proxy.port()), admin.display().to_string());
    rig.tombolo(&words(&proxy, CA, &admin, "ci.token")).await;
}

fn words<'a>(proxy: &'a str, ca: &'a str, kubeconfig: &'a str, token: &'a str) -> Vec<&'a str> {
    let words = ["user", "dial-token", "kubeconfig", "--user", USER, "--dial-token-file", token];
    let more = ["--proxy", proxy, "--ca", ca, "--kubeconfig", kubeconfig, "--output", KUBECONFIG];
    [words.as_slice(), &more].concat()
}

/// The certificates that the kubeconfig that was written trusts.
fn bundle(rig: &Rig) -> String {
    let text = std::fs::read_to_string(rig.path().join(KUBECONFIG)).unwrap();
    let data =
        text.lines().find_map(|line| line.trim().strip_prefix("certificate-authority-data: ")).unwrap();
    String::from_utf8(STANDARD.decode(data.trim_matches('"')).unwrap()).unwrap()
}

fn kubeconfig(server: &str, authority: &str) -> String {
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: admin\nclusters: [{{ name: edge, cluster: {{ server: {server:?}, \
         certificate-authority-data: {authority} }} }}]\ncontexts: [{{ name: admin, context: {{ cluster: edge, user: admin }} }}]\n\
         users: [{{ name: admin, user: {{}} }}]\n"
    )
}

/// Makes a handshake with this certificate, and disconnects.
async fn present(issued: &Issued) -> SocketAddr {
    let acceptor = acceptor(issued, &[]);
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            if let Ok(mut stream) = acceptor.accept(stream).await {
                let _ = stream.read(&mut [0; 1024]).await;
            }
        }
    });
    address
}
