//! The TCP listener in a process without free file descriptors. The test is alone in its process, whose limit it lowers.

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
use transport::tls::SharedCertificate;
use tunnel_server::listener::{Listener, ListenerLimits, ListenerTls, PerSourceLimits, tls};

/// Longer than anything here takes; its end is a failure.
const SOON: Duration = Duration::from_secs(20);

/// Descriptors that are left to fill.
const LEFT: u64 = 24;

/// It accepts connections again when there are free descriptors.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_listener_without_file_descriptors_counts_it_and_recovers() {
    let any = "127.0.0.1:0".parse().unwrap();
    let (_, tls) = watch::channel(Arc::new(server_config()));
    let listeners = ListenerTls { callers: Some(tls), ..ListenerTls::default() };
    let limits = ListenerLimits { source: PerSourceLimits::UNLIMITED, ..ListenerLimits::DEFAULT };
    let listener = Listener::bind("gateway.listen", any, listeners, limits).unwrap();
    let (scope, address, counts) = (Scope::here(), listener.address(), listener.counters());
    scope.spawn(listener.run(scope.clone(), |_| async {}));
    let open = std::fs::read_dir("/proc/self/fd").unwrap().count() as u64;
    setrlimit(Resource::Nofile, Rlimit { current: Some(open + LEFT), ..getrlimit(Resource::Nofile) })
        .unwrap();

    // Each takes two descriptors, one at either end, so that callers and listener run out together.
    let mut callers = Vec::new();
    until(|| {
        callers.extend(TcpStream::connect(address).ok());
        counts.values().accept_failed > 0
    });
    callers.clear();

    // A caller who says nothing and hangs up is a handshake that failed: somebody accepted it. The first of them are
    // those that waited until now, which are fewer than the descriptors were.
    let failed = counts.values().handshake_failed;
    until(|| {
        drop(TcpStream::connect(address));
        counts.values().handshake_failed > failed + LEFT
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
    let key = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
    tls::server_config(SharedCertificate::new(vec![certificate], key).unwrap(), None).unwrap()
}
