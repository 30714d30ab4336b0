//! The messages to a caller when there is no answer: each cause has its own message with a remedy.

use std::fs;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::Value;
use tests::caller::SOON;
use tests::fake_api::{Answer, Behaviour, FakeApi, ListenerMode, Moment};
use tests::kube::assets::Assets;
use tests::kube::kubectl::Kubectl;
use tests::rig::{AGENT_TOKEN, ApiServer, GROUP, Reply, Rig};
use tests::scratch::Scratch;

/// The limit for a process to end.
const END_MAX: Duration = Duration::from_secs(20);

/// This holds after a restart of the server, too.
#[tokio::test]
async fn an_unknown_and_an_unreachable_cluster_have_different_messages() {
    let rig = Rig::start_with("parking: { limitSeconds: 1 }").await;
    let (mut rig, api) = (rig, FakeApi::start().await.expect("a fake starts"));
    let never = ["ClusterNeverSeen", "cluster edge-a was never seen", "check the name", "install an agent"];
    assert_refused_with(&rig, 503, &never).await;

    let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    assert_eq!(agent.process.stop(END_MAX).await.expect("the agent ends").code(), Some(0));
    rig.disconnected("edge-a").await;
    let away = ["ClusterNotConnected", "cluster edge-a is not connected", "check that one is running", "UDP"];
    assert_refused_with(&rig, 503, &away).await;

    // Without a clean shutdown: the server stores its knowledge of clusters at once.
    rig.kill_server();
    rig.start_server().await;
    assert_refused_with(&rig, 503, &away).await;
    let signal = Rig::ends_with(rig.server(), Signal::TERM).await;
    assert_eq!(signal, Some(0));
    rig.start_server().await;
    assert_refused_with(&rig, 503, &away).await;
}

#[tokio::test]
async fn an_api_server_that_refuses_connections_is_named_as_the_cause() {
    let (rig, mut api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    api.refuse().await;
    api.drop_connections();

    let words = ["APIServerUnreachable", "cluster edge-a is connected", "check that the API server runs"];
    assert_refused_with(&rig, 503, &words).await;
}

#[tokio::test]
async fn an_api_server_that_is_silent_before_tls_is_named_as_the_cause() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    api.set_listener_mode(ListenerMode::SilentBeforeTls);
    api.drop_connections();

    // The agent gives a connection 5 s.
    let words =
        ["APIServerSilent", "cluster edge-a is connected", "did not answer in time", "check that API server"];
    assert_refused_with(&rig, 504, &words).await;
}

#[tokio::test]
#[ignore = "soak: the agent waits 75 s for an answer's head"]
async fn an_api_server_that_takes_a_request_and_is_silent_is_named_as_the_cause() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    api.otherwise(Behaviour::NeverAnswer);

    let reply = rig.ask_with_token("GET", "/clusters/edge-a/api", &[]).await;
    assert_message(
        &reply,
        504,
        &["APIServerSilent", "did not answer in time", "outcome of this request is not known"],
    );
}

/// The limit travels with the request, so that the agent waits as long as the server.
#[tokio::test]
#[ignore = "soak: the agent waits 75 s for an answer's head"]
async fn a_request_with_a_longer_timeout_is_waited_for_that_long() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;
    api.otherwise(Behaviour::json("{}"));
    let slow = api.hold("/apis/slow", Moment::BeforeHead);
    api.on("/apis/silent", Behaviour::NeverAnswer);

    let patient = rig.ask_with_token("GET", "/clusters/edge-a/apis/slow?timeout=2m", &[]);
    let impatient = async {
        slow.reached(SOON).await.expect("the patient one is there first");
        let silent = rig.ask_with_token("GET", "/clusters/edge-a/apis/silent?timeout=5s", &[]).await;
        let words = ["APIServerSilent", "a limit of 75 s", "requestTimeoutSeconds in clusters[]"];
        assert_message(&silent, 504, &words);
        slow.open();
    };

    let (patient, ()) = tokio::join!(patient, impatient);
    assert_eq!(patient.status, 200, "{patient:?}");
}

#[tokio::test]
async fn an_api_server_of_another_authority_is_refused_with_the_reason() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let other = FakeApi::start().await.expect("a fake starts");
    let path = rig.path().join("wrong-ca.kubeconfig");
    api.write_kubeconfig(&path, AGENT_TOKEN).expect("a kubeconfig can be written");
    let text = fs::read_to_string(&path).expect("it was written");
    let text = text.replace(&api.url(), &other.url());
    fs::write(&path, text).expect("it can be changed");
    let _agent = rig.agent("edge-a", &ApiServer::Kubeconfig(path)).await;

    let words = [
        "APIServerUntrusted",
        "does not trust its API server's certificate",
        "not signed by",
        "check the CA",
    ];
    assert_refused_with(&rig, 503, &words).await;
    assert_eq!(other.requests().len(), 0, "no token goes to another server");
}

/// The API server refuses the agent's token.
#[tokio::test]
async fn a_refused_agent_token_is_not_reported_as_a_refused_caller() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let unauthorized =
        r#"{"kind":"Status","apiVersion":"v1","status":"Failure","reason":"Unauthorized","code":401}"#;
    api.otherwise(Behaviour::Answer(Answer::json(401, unauthorized)));
    let _agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;

    let words = ["AgentWithoutCredential", "cluster edge-a is connected", "ServiceAccount token"];
    assert_refused_with(&rig, 503, &words).await;
}

/// A pod, a kubelet or an aggregated API server behind the API server answers 401, and the API server accepts
/// the agent.
#[tokio::test]
async fn a_401_from_behind_the_api_server_reaches_the_caller_as_it_is() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let headers = vec![("Www-Authenticate".to_owned(), "Basic realm=\"of the pod\"".to_owned())];
    let answer = Answer { status: 401, headers, body: "who are you?".into() };
    api.on("/api/v1/namespaces/n/services/", Behaviour::Answer(answer));
    api.otherwise(Behaviour::Answer(Answer::json(200, "{}")));
    let agent = rig.agent("edge-a", &ApiServer::of_fake(&rig, &api)).await;

    let of_a_pod = "/clusters/edge-a/api/v1/namespaces/n/services/web/proxy/";
    for method in ["GET", "POST"] {
        let reply = rig.ask_with_token(method, of_a_pod, &[]).await;
        assert_eq!((reply.status, reply.body.contains("who are you?")), (401, true), "{reply:?}");
        let head = reply.head.to_lowercase();
        assert!(head.contains("www-authenticate: basic realm=\"of the pod\""), "{head}");
    }

    let refused = "tombolo_agent_requests_refused_total{reason=\"no_credential\"}";
    assert!(rig.metric(agent.probes, refused).await.abs() < 0.5, "nobody is alerted");
}

#[tokio::test]
async fn an_agent_with_an_empty_token_file_does_not_start_and_names_the_file() {
    let (rig, api) = (Rig::start().await, FakeApi::start().await.expect("a fake starts"));
    let files = Scratch::new("tombolo-empty-token-").expect("a folder");
    fs::write(files.path().join("token"), "").expect("a file");
    fs::write(files.path().join("ca.crt"), api.ca_pem()).expect("a file");
    let api_server = ApiServer::InCluster {
        directory: files.path().to_owned(),
        address: api.address(),
        endpoints: Vec::new(),
    };

    let mut agent = rig.agent_with("edge-a", &api_server, "").await;

    let ended = agent.process.wait(END_MAX).await.expect("it ends by itself");
    assert_eq!(ended.code(), Some(2));
    let token = files.path().join("token").display().to_string();
    let log = rig.agent_log("edge-a");
    assert!(log.contains(&token) && log.contains("is empty"), "{log}");
}

/// Both the `Status` and what kubectl makes of it have these words; the first is the cause, for programs.
async fn assert_refused_with(rig: &Rig, status: u16, words: &[&str]) {
    let reply = rig.ask_with_token("GET", "/clusters/edge-a/api", &[]).await;
    assert_message(&reply, status, words);

    let mut kubeconfig = rig.path().join("alice-edge-a.kubeconfig");
    if !kubeconfig.exists() {
        kubeconfig = rig.kubeconfig("alice", &[GROUP], "edge-a").await;
    }
    let kubectl = Kubectl::new(Assets::find().expect("kubectl").kubectl, kubeconfig);
    let stderr = kubectl.refusal(&["get", "--raw", "/api"]).await;
    for word in &words[1..] {
        assert!(stderr.contains(word), "kubectl does not say {word:?}: {stderr}");
    }
}

fn assert_message(reply: &Reply, status: u16, words: &[&str]) {
    let object: Value = serde_json::from_str(&reply.body).unwrap_or_else(|_| panic!("no JSON: {reply:?}"));
    assert_eq!((reply.status, &object["kind"]), (status, &Value::from("Status")), "{reply:?}");
    assert_eq!(object["details"]["causes"][0]["reason"], words[0], "{reply:?}");
    let message = object["message"].as_str().expect("a message");
    for word in &words[1..] {
        assert!(message.contains(word), "the message does not say {word:?}: {message}");
    }
}
