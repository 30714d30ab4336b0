//! One exchange has one audit ID in every log, and belongs to the trace of its caller.

use std::collections::BTreeSet;
use std::time::Duration;

use tests::caller::Http2Caller;
use tests::fake_api::{Answer, Behaviour, HttpVersion, RecordedRequest};
use tests::fake_edge::FakeEdge;
use tests::kube::EdgeCluster;
use tests::rig::{ApiServer, Reply, Rig};

const PATH: &str = "/clusters/edge-a/api/v1/namespaces";
const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// The limit for an API server to write its audit log.
const AUDITED_MAX: Duration = Duration::from_secs(60);

/// Without one, each exchange gets an ID of its own.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_callers_audit_id_reaches_the_cluster_and_comes_back() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = setup(version).await;
        let longest = "x".repeat(64);
        for id in ["0198f1de-58c5-7000-8000-000000000000", "x", "~mine/1:2", &longest] {
            let reply = edge.rig.ask_with_token("GET", PATH, &[("Audit-ID", id)]).await;
            assert_eq!(audit_id(&reply), id);
            assert_eq!(last(&edge).header("audit-id"), [id]);
        }
        let mut http2 = Http2Caller::dial(&edge.rig).await;
        let answer = http2.ask("GET", PATH, &[("audit-id", "over-http2")]).await.unwrap();
        assert_eq!(answer.headers()["audit-id"], "over-http2");
        assert_eq!(last(&edge).header("audit-id"), ["over-http2"]);

        let mut given = BTreeSet::new();
        let beyond = "x".repeat(65);
        for ids in [&[][..], &[], &["", "a b", &beyond], &["a", "b"], &["a b"], &[&beyond], &["\u{e4}"]] {
            let headers: Vec<_> = ids.iter().map(|id| ("Audit-ID", *id)).collect();
            let reply = edge.rig.ask_with_token("GET", PATH, &headers).await;
            let id = audit_id(&reply);
            assert_eq!(id.len(), 36, "a UUID for {ids:?}: {id}");
            assert_eq!(last(&edge).header("audit-id"), [id.as_str()], "{ids:?}");
            assert!(given.insert(id), "each its own");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn refusals_and_the_list_of_clusters_have_an_audit_id_too() {
    let edge = setup(HttpVersion::Http1).await;
    for (path, status) in [
        ("/clusters", 200),
        ("/nowhere", 404),
        ("/clusters/edge-a/..", 400),
        ("/clusters/no-such-cluster/api", 503),
    ] {
        let reply = edge.rig.ask_with_token("GET", path, &[("Audit-ID", "mine")]).await;
        assert_eq!((reply.status, audit_id(&reply).as_str()), (status, "mine"), "{path}");
        let reply = edge.rig.ask_with_token("GET", path, &[]).await;
        assert_eq!(audit_id(&reply).len(), 36, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_audit_id_that_the_api_server_sets_stays() {
    let edge = setup(HttpVersion::Http1).await;
    let headers = vec![("Audit-Id".to_owned(), "the-api-servers".to_owned())];
    edge.fake.otherwise(Behaviour::Answer(Answer { status: 200, headers, body: "{}".into() }));

    let reply = edge.rig.ask_with_token("GET", PATH, &[("Audit-ID", "mine")]).await;

    assert_eq!(audit_id(&reply), "the-api-servers");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_valid_trace_context_arrives_unchanged_and_a_malformed_one_is_dropped() {
    for version in [HttpVersion::Http1, HttpVersion::Http2] {
        let edge = setup(version).await;
        let later = format!("cc{}-more", &PARENT[2..]);
        for (sent, parents, states) in [
            (&[("traceparent", PARENT)][..], &[PARENT][..], &[][..]),
            (
                &[("Traceparent", PARENT), ("TraceState", "a=b"), ("tracestate", "c=d")],
                &[PARENT],
                &["a=b", "c=d"],
            ),
            (&[("traceparent", &later)], &[&later], &[]),
            (&[("traceparent", PARENT), ("tracestate", "A=b")], &[PARENT], &[]),
            (&[], &[], &[]),
            (&[("tracestate", "a=b")], &[], &[]),
            (&[("traceparent", PARENT), ("traceparent", PARENT)], &[], &[]),
            (&[("traceparent", &PARENT.to_uppercase()), ("tracestate", "a=b")], &[], &[]),
            (&[("traceparent", &PARENT[..54])], &[], &[]),
            (&[("traceparent", &format!("{PARENT}-more"))], &[], &[]),
        ] {
            let reply = edge.rig.ask_with_token("GET", PATH, sent).await;

            assert_eq!(reply.status, 200, "{sent:?}");
            let request = last(&edge);
            assert_eq!(request.header("traceparent"), parents, "{sent:?}");
            assert_eq!(request.header("tracestate"), states, "{sent:?}");
        }
        // The caller's `Connection` takes neither away.
        for name in ["traceparent", "tracestate", "audit-id"] {
            let headers = [("Connection", name), ("traceparent", PARENT)];
            assert_eq!(edge.rig.ask_with_token("GET", PATH, &headers).await.status, 400, "{name}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_real_api_server_writes_the_callers_audit_id_into_its_log() {
    let cluster = EdgeCluster::start().await.expect("a cluster starts");
    let account = cluster.create_agent_account().await.expect("an account for the agent");
    let rig = Rig::start().await;
    let _agent = rig.agent("edge-a", &ApiServer::of(&cluster, &account)).await;

    let headers = [("Audit-ID", "the-callers-own"), ("traceparent", PARENT)];
    let named = rig.ask_with_token("GET", "/clusters/edge-a/version?named", &headers).await;
    let unnamed = rig.ask_with_token("GET", "/clusters/edge-a/version?unnamed", &[]).await;

    for (reply, uri) in [(&named, "/version?named="), (&unnamed, "/version?unnamed=")] {
        let event = cluster.wait_for_audit(AUDITED_MAX, |event| event.request_uri == uri).await;
        assert_eq!(event.expect("it is audited").audit_id, audit_id(reply), "{uri}");
    }
    assert_eq!(audit_id(&named), "the-callers-own");
}

async fn setup(version: HttpVersion) -> FakeEdge {
    let edge = FakeEdge::start(version).await;
    edge.fake.otherwise(Behaviour::json("{}"));
    edge
}

fn last(edge: &FakeEdge) -> RecordedRequest {
    edge.fake.requests().pop().expect("a request has arrived")
}

/// The one `Audit-ID` of an answer.
fn audit_id(reply: &Reply) -> String {
    let ids: Vec<&str> =
        reply.head.lines().filter(|line| line.to_lowercase().starts_with("audit-id:")).collect();
    assert_eq!(ids.len(), 1, "{reply:?}");
    ids[0]["audit-id:".len()..].trim().to_owned()
}
