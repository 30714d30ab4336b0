//! Tests the TCP listener when the process has no file descriptor left. The test lowers its process's limit,
//! so it runs alone.

#![expect(
    clippy::unwrap_used,
    reason = "tests may unwrap; the configured exemption reaches no helper outside of a test function"
)]

use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use daemon::Scope;
use rcgen::{CertificateParams, KeyPair};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustls_pki_types::PrivateKeyDer;
use tokio::sync::watch;
use tunnel_server::listener::{Listener, ListenerLimits, ListenerTls, tls};

/// A timeout that is longer than any step here takes.
const SOON: Duration = Duration::from_secs(20);

/// The file descriptors that the test leaves free.
const LEFT: u64 = 24;

/// It counts the failures, and accepts again once descriptors are free.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_listener_survives_a_lack_of_file_descriptors() {
    let any = "127.0.0.1:0".parse().unwrap();
    let (_, tls) = watch::channel(Arc::new(server_config()));
    let tls = ListenerTls { callers: Some(tls), agents: None };
    let listener = Listener::bind("gateway.listen", any, tls, ListenerLimits::default()).unwrap();
    let (scope, address, counters) = (Scope::here(), listener.address(), listener.counters());
    scope.spawn(listener.run(scope.clone(), |_| async {}));
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + LEFT), ..getrlimit(Resource::Nofile) })
        .unwrap();

    // Each takes two descriptors, one at either end, so that callers and listener run out together.
    let mut callers = Vec::new();
    until(|| {
        callers.extend(TcpStream::connect(address).ok());
        counters.values().accept_failed > 0
    });
    callers.clear();

    // A client that sends nothing and hangs up counters as a failed handshake, which proves that it was accepted.
    // The first ones had waited until now, and are fewer than the descriptors were.
    let failed = counters.values().handshake_failed;
    until(|| {
        drop(TcpStream::connect(address));
        counters.values().handshake_failed > failed + LEFT
    });
    scope.abort();
}

fn until(mut reached: impl FnMut() -> bool) {
    let began = Instant::now();
    while !reached() {
        assert!(began.elapsed() < SOON, "not reached");
        std::thread::yield_now();
    }
}

fn server_config() -> rustls::ServerConfig {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["gateway.example".to_owned()]).unwrap();
    let certificate = params.self_signed(&key).unwrap().der().clone();
    tls::server_config(vec![certificate], PrivateKeyDer::try_from(key.serialize_der()).unwrap(), None)
        .unwrap()
}
