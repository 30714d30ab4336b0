//! The RBAC profiles that ship, each tried with an agent's token directly at a real API server.

use std::collections::BTreeSet;
use std::time::Instant;

use bytes::Bytes;
use http::Request;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tests::caller::SOON;
use tests::dial::dial;
use tests::kube::EdgeCluster;
use tests::kube::kubectl::Kubectl;

const NAMED: &str = include_str!("../../../deploy/rbac/named.yaml");
const OPEN: &str = include_str!("../../../deploy/rbac/open.yaml");
const CONSTRAINED: &str = include_str!("../../../deploy/rbac/constrained.yaml");

/// Every verb that RBAC knows.
const VERBS: [&str; 13] = [
    "get",
    "list",
    "watch",
    "create",
    "update",
    "patch",
    "delete",
    "deletecollection",
    "impersonate",
    "bind",
    "escalate",
    "approve",
    "use",
];

/// Kinds that are asked about beside those that the API server lists.
const NOT_LISTED: [&str; 9] = [
    "users",
    "groups",
    "uids.authentication.k8s.io",
    "users.authentication.k8s.io",
    "groups.authentication.k8s.io",
    "userextras.authentication.k8s.io",
    "pods/exec",
    "nodes/proxy",
    "serviceaccounts/token",
];

/// Rights of every authenticated user: reviews about itself.
const ANYBODYS: [&str; 3] = [
    "create selfsubjectaccessreviews.authorization.k8s.io",
    "create selfsubjectreviews.authentication.k8s.io",
    "create selfsubjectrulesreviews.authorization.k8s.io",
];

const SLICE: &str = "get endpointslices -n default --field-selector=metadata.name=kubernetes";
const WATCH: &str = "get --raw /apis/discovery.k8s.io/v1/namespaces/default/endpointslices\
                     ?fieldSelector=metadata.name%3Dkubernetes&watch=true&timeoutSeconds=1";
const ALICE: &str = "get ns --as=alice --as-group=tombolo:admins";
const MASTERS: &str = "get ns --as=alice --as-group=system:masters";

/// Requests that work with every profile.
const WORKS: [&str; 7] = [
    ALICE,
    SLICE,
    WATCH,
    "get endpointslice kubernetes -n default",
    "get configmap cluster-info -n kube-public",
    "get configmap kubeadm-config -n kube-system",
    "get secret tunnel-agent -n tombolo",
];

/// Requests that work with none of them.
const FAILS: [&str; 18] = [
    "get --raw /apis/discovery.k8s.io/v1/namespaces/default/endpointslices?watch=true&timeoutSeconds=1",
    "get configmaps -n kube-system",
    "get configmap other -n kube-system",
    "get configmap cluster-info -n kube-system",
    "get ns",
    "get pods -A",
    "get endpointslices -n default",
    "get endpointslices -n kube-system",
    "get secrets -n tombolo",
    "get secret other -n tombolo",
    "get secret tunnel-agent -n default",
    "delete secret tunnel-agent -n tombolo",
    "create token tunnel-agent -n tombolo",
    "create configmap mine -n tombolo",
    "get ns --as=alice --as-group=tombolo:admins --as-uid=7",
    "get ns --as=alice --as-group=tombolo:admins --as-user-extra=scopes=all",
    "get ns --as=system:serviceaccount:kube-system:default",
    "get --raw /metrics",
];

/// Requests that work only with the profile open: they impersonate a user whom the agent's file does not
/// list.
const ANYBODY: [&str; 4] = [
    MASTERS,
    "get ns --as=bob --as-group=tombolo:admins",
    "get ns --as=kubernetes-admin --as-group=kubeadm:cluster-admins --as-group=tombolo:admins",
    "get ns --as=system:admin --as-group=system:masters",
];

/// The identities are those of the profile's file.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profile_named_lets_the_agents_token_assert_only_the_listed_identities() {
    let agent = Thief::with(NAMED).await;

    agent.can(&WORKS).await;
    agent.cannot(&FAILS).await;
    agent.cannot(&ANYBODY).await;
    assert_eq!(agent.rights().await, BTreeSet::from(ANYBODYS.map(str::to_owned)));
}

/// The token may impersonate anybody and has no right in its own name.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profile_open_lets_the_agents_token_only_impersonate() {
    let agent = Thief::with(OPEN).await;

    agent.can(&WORKS).await;
    agent.can(&ANYBODY).await;
    agent.cannot(&FAILS).await;
    let impersonate = ["impersonate groups", "impersonate users"];
    let rights = ANYBODYS.into_iter().chain(impersonate).map(str::to_owned);
    assert_eq!(agent.rights().await, rights.collect());
}

/// The agent's token may assert only the identities that the profile's file lists.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn profile_constrained_limits_assertions_without_the_old_verb() {
    let agent = Thief::with(CONSTRAINED).await;

    agent.can(&WORKS).await;
    agent.cannot(&FAILS).await;
    agent.cannot(&ANYBODY).await;
    assert_eq!(agent.rights().await, BTreeSet::from(ANYBODYS.map(str::to_owned)));
    assert!(!CONSTRAINED.contains("\"impersonate\""));
}

/// A client with a stolen token of an agent.
struct Thief {
    cluster: EdgeCluster,
    token: String,
    kubectl: Kubectl,
}

impl Thief {
    /// From an agent with these rights, in a cluster where a group may do everything.
    async fn with(manifest: &str) -> Self {
        let cluster = EdgeCluster::start().await.unwrap();
        cluster.make_admins("tombolo:admins").await;
        let account = cluster.create_agent_account_with(manifest).await.unwrap();
        for configmap in
            ["cluster-info -n kube-public", "kubeadm-config -n kube-system", "other -n kube-system"]
        {
            let words = format!("create configmap {configmap}");
            cluster.admin().stdout(&words.split(' ').collect::<Vec<_>>()).await;
        }
        for secret in ["tunnel-agent -n tombolo", "other -n tombolo", "tunnel-agent -n default"] {
            let words = format!("create secret generic {secret}");
            cluster.admin().stdout(&words.split(' ').collect::<Vec<_>>()).await;
        }
        let kubeconfig = cluster.write_kubeconfig("agent.conf", account.credential()).unwrap();
        let kubectl = cluster.kubectl_with(kubeconfig).limit(SOON);
        let token = account.token().to_owned();
        let thief = Self { cluster, token, kubectl };
        // The API server's authorizer sees applied objects a moment later.
        let deadline = Instant::now() + SOON;
        for words in WORKS {
            while !thief.may(words).await {
                assert!(Instant::now() < deadline, "{words}");
            }
        }
        thief
    }

    async fn can(&self, commands: &[&str]) {
        for words in commands {
            assert!(self.may(words).await, "{words}");
        }
    }

    async fn cannot(&self, commands: &[&str]) {
        for words in commands {
            assert!(!self.may(words).await, "{words}");
        }
    }

    async fn may(&self, words: &str) -> bool {
        let output = self.kubectl.run(&words.split(' ').collect::<Vec<_>>()).await.unwrap();
        let message = String::from_utf8_lossy(&output.stderr).to_lowercase();
        let is_forbidden = message.contains("forbidden") || message.contains("is not allowed");
        assert!(output.status.success() || is_forbidden, "{words}: {message}");
        output.status.success()
    }

    /// Every verb with every kind, of any name, that the token may: in all namespaces or in one, of which no
    /// rule may speak without names.
    async fn rights(&self) -> BTreeSet<String> {
        let listed = self.cluster.admin().stdout(&["api-resources", "--no-headers", "-o", "name"]).await;
        let kinds: Vec<&str> = listed.lines().chain(NOT_LISTED).collect();
        assert!(kinds.len() > 50, "{kinds:?}");
        let stream = dial(self.cluster.address(), self.cluster.ca_pem(), &["http/1.1"], None).await.unwrap();
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        let mut rights = BTreeSet::new();
        for kind in kinds {
            for verb in VERBS {
                for namespace in ["", "default", "tombolo"] {
                    if self.is_allowed(&mut sender, verb, kind, namespace).await {
                        rights.insert(format!("{verb} {kind}"));
                    }
                }
            }
        }
        rights
    }

    async fn is_allowed(
        &self,
        sender: &mut SendRequest<Full<Bytes>>,
        verb: &str,
        kind: &str,
        namespace: &str,
    ) -> bool {
        let (kind, group) = kind.split_once('.').unwrap_or((kind, ""));
        let (resource, subresource) = kind.split_once('/').unwrap_or((kind, ""));
        let review = json!({
            "apiVersion": "authorization.k8s.io/v1",
            "kind": "SelfSubjectAccessReview",
            "spec": { "resourceAttributes": {
                "verb": verb, "group": group, "resource": resource, "subresource": subresource, "namespace": namespace
            } },
        });
        let request = Request::post("/apis/authorization.k8s.io/v1/selfsubjectaccessreviews")
            .header(HOST, "edge")
            .header(AUTHORIZATION, format!("Bearer {}", self.token))
            .header(CONTENT_TYPE, "application/json")
            .body(Full::from(review.to_string()))
            .unwrap();
        sender.ready().await.unwrap();
        let response = sender.send_request(request).await.unwrap();
        assert_eq!(response.status(), 201);
        let answer: Value =
            serde_json::from_slice(&response.into_body().collect().await.unwrap().to_bytes()).unwrap();
        answer["status"]["allowed"].as_bool().unwrap()
    }
}
