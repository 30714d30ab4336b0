//! Tests of the answers, over real sockets on the loopback.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

#[tokio::test]
async fn a_living_process_is_alive_even_when_not_ready() {
    let scene = TestProbes::set();
    let _guard = scene.readiness.handle("gateway");

    for path in ["/livez", "/healthz"] {
        assert_eq!(scene.get(path).await, (200, "ok\n".into()), "{path}");
    }
}

#[tokio::test]
async fn readiness_names_what_is_missing() {
    let scene = TestProbes::set();
    drop(scene.readiness.handle("gateway"));
    let tunnel = scene.readiness.handle("tunnel");

    let missing = "[+]gateway ok\n[-]tunnel not ready\nreadyz check failed\n";
    assert_eq!(scene.get("/readyz").await, (503, missing.into()));

    drop(tunnel);
    assert_eq!(scene.get("/readyz").await, (200, "ok\n".into()));
    let all = "[+]gateway ok\n[+]tunnel ok\nreadyz check passed\n";
    assert_eq!(scene.get("/readyz?verbose").await, (200, all.into()));
}

#[tokio::test]
async fn a_stopping_process_is_answering_and_not_ready() {
    let scene = TestProbes::set();
    let _held = scene.scope.hold_drain();

    scene.scope.stop();

    assert_eq!(scene.get("/readyz").await, (503, "[-]draining not ready\nreadyz check failed\n".into()));
    for path in ["/livez", "/healthz"] {
        assert_eq!(scene.get(path).await.0, 200, "{path}");
    }
}

#[tokio::test]
async fn probes_do_not_hold_a_drain_up() {
    let scene = TestProbes::set();
    let _idle = TcpStream::connect(scene.address).await.unwrap();
    scene.get("/livez").await;

    let closed = scene.scope.close(Duration::ZERO).await;

    assert_eq!(closed, Ok(()));
    assert!(TcpStream::connect(scene.address).await.is_err(), "nobody listens any more");
}

#[tokio::test]
async fn metrics_are_prometheus_text() {
    let scene = TestProbes::set();

    let (status, text) = scene.get("/metrics").await;

    assert_eq!(status, 200);
    assert!(
        text.contains("# HELP tombolo_test_tunnels How many.\n# TYPE tombolo_test_tunnels gauge\n"),
        "{text}"
    );
    assert!(text.contains("tombolo_test_tunnels 3\n"), "{text}");
}

#[tokio::test]
async fn other_paths_and_methods_are_refused() {
    let scene = TestProbes::set();

    assert_eq!(scene.get("/debug").await.0, 404);
    assert_eq!(scene.get("/livez/").await.0, 404);
    assert_eq!(scene.get("/healthz?verbose").await.0, 200);
    assert_eq!(scene.ask("POST", "/livez").await.0, 405);
    assert_eq!(scene.ask("HEAD", "/livez").await, (200, String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_head_that_does_not_arrive_ends_its_connection() {
    let scene = TestProbes::set();
    let mut slow = TcpStream::connect(scene.address).await.unwrap();
    slow.write_all(b"GET /livez HT").await.unwrap();

    let mut rest = Vec::new();
    let ended = timeout(HEAD_MAX * 2, slow.read_to_end(&mut rest)).await;

    assert!(ended.is_ok(), "closed by the deadline");
}

/// They hold all that their address can have. A kubelet at the same address is served, too.
#[tokio::test]
async fn silent_connections_of_one_address_cannot_shut_probes_out() {
    let scene = TestProbes::set();
    let mut silent = Vec::new();
    for _ in 0..2 * CONNECTIONS_OF_SOURCE_MAX {
        silent.push(TcpStream::connect(scene.address).await.unwrap());
    }

    assert_eq!(scene.get("/livez").await.0, 200);
}

#[tokio::test]
async fn beyond_the_limit_of_probe_connections_the_newest_is_closed() {
    let limits = ListenerLimits { connections_max: 1, ..LIMITS };
    let listener = GuardedListener::bind(KEY, ([127, 0, 0, 1], 0).into(), limits).unwrap();
    let scene = TestProbes::over(listener);
    let held = TcpStream::connect(scene.address).await.unwrap();

    let mut beyond = TcpStream::connect(scene.address).await.unwrap();
    let end = timeout(HEAD_MAX / 2, beyond.read(&mut [0])).await.expect("it is closed");

    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    drop(held);
}

#[tokio::test]
async fn a_port_in_use_names_the_key_and_the_flag() {
    let scene = TestProbes::set();

    let error = Probes::bind(scene.address, Readiness::new(), quiet_metrics()).unwrap_err();

    let text = error.to_string();
    assert!(text.starts_with("probes.listen (--probes-listen): 127.0.0.1:"), "{text}");
}

/// Probes that run in a test.
struct TestProbes {
    scope: Scope,
    readiness: Readiness,
    address: SocketAddr,
}

impl TestProbes {
    fn set() -> Self {
        let loopback = SocketAddr::from(([127, 0, 0, 1], 0));
        Self::over(GuardedListener::bind(KEY, loopback, LIMITS).unwrap())
    }

    fn over(listener: GuardedListener) -> Self {
        let (scope, readiness, metrics) = (Scope::here(), Readiness::new(), quiet_metrics());
        let state = Arc::new(ProbeState { readiness: readiness.clone(), metrics });
        let bound = BoundProbes { listener, state };
        let address = bound.address();
        bound.run(&scope);
        Self { scope, readiness, address }
    }

    async fn get(&self, target: &str) -> (u16, String) {
        self.ask("GET", target).await
    }

    async fn ask(&self, method: &str, target: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).await.unwrap();
        let request = format!("{method} {target} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), body.to_owned())
    }
}

/// Metrics with a recorder of their own, so that tests do not share the process-wide one.
fn quiet_metrics() -> Metrics {
    let recorder = crate::metrics::builder().unwrap().build_recorder();
    metrics::with_local_recorder(&recorder, || {
        metrics::describe_gauge!("tombolo_test_tunnels", "How many.");
        metrics::gauge!("tombolo_test_tunnels").set(3.0);
    });
    Metrics::with_recorder("tombolo_test", recorder.handle())
}
