//! The guard of a real socket: several loopback addresses are its sources.

use std::net::{IpAddr, Ipv4Addr};

use rustix::net::sockopt;
use tokio::io::AsyncReadExt as _;
use tokio::time::timeout;

use super::super::source_limits::PerSourceLimits;
use super::*;
use crate::rate::Rate;

/// Longer than anything here takes; its end is a failure.
const SOON: Duration = Duration::from_secs(20);

const LIMITS: ListenerLimits = ListenerLimits {
    connections_max: 8,
    handshakes_max: 8,
    source: PerSourceLimits { connections: 2, rate: Rate { per_second: 1_000, burst: 1_000 }, proving: 2 },
    ..ListenerLimits::DEFAULT
};

fn listener(limits: ListenerLimits) -> GuardedListener {
    GuardedListener::bind("listen", "127.0.0.1:0".parse().unwrap(), limits).unwrap()
}

/// A connection to the listener from this loopback address.
async fn connected_from(listener: &GuardedListener, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind((IpAddr::from(Ipv4Addr::new(127, 0, 0, last)), 0).into()).unwrap();
    socket.connect(listener.address()).await.unwrap()
}

/// A connection from this address, with what the listener has of it.
async fn admitted_from(listener: &GuardedListener, last: u8) -> (TcpStream, GuardedConnection) {
    let client = connected_from(listener, last).await;
    let admitted = timeout(SOON, listener.next()).await.expect("it is admitted");
    assert_eq!(admitted.peer, client.local_addr().unwrap());
    (client, admitted)
}

/// The kernel's default is two hours without traffic, and a quarter of an hour with unacknowledged bytes.
#[tokio::test]
async fn the_kernel_looks_for_clients_that_have_vanished() {
    let listener = listener(LIMITS);
    let (_client, GuardedConnection { stream, .. }) = admitted_from(&listener, 1).await;

    assert!(sockopt::socket_keepalive(&stream).unwrap());
    assert_eq!(sockopt::tcp_keepidle(&stream).unwrap(), keep_alive::IDLE);
    assert_eq!(sockopt::tcp_keepintvl(&stream).unwrap(), keep_alive::PROBE_EVERY);
    assert_eq!(sockopt::tcp_keepcnt(&stream).unwrap(), keep_alive::PROBES_MAX);
    if let Ok(interval) = sys::tcp_rto_max(&stream) {
        assert_eq!(interval, keep_alive::RETRANSMIT_EVERY_MAX);
    }
}

#[tokio::test(start_paused = true)]
async fn beyond_its_limits_a_source_is_expelled_unless_it_proves_itself() {
    let listener = listener(LIMITS);
    let mut open = Vec::new();
    for _ in 0..LIMITS.source.connections {
        open.push(admitted_from(&listener, 1).await);
    }
    let (_silent, mut silent) = admitted_from(&listener, 1).await;
    let (_proved, mut proved) = admitted_from(&listener, 1).await;
    assert!(silent.expulsion.must_prove() && proved.expulsion.must_prove());
    assert!(open.iter().all(|(_, open)| !open.expulsion.must_prove()));

    proved.permit.proved();

    timeout(SOON, silent.expulsion.expelled()).await.expect("it had its time");
    assert!(timeout(SOON, proved.expulsion.expelled()).await.is_err(), "it stays");
    for (_, open) in &mut open {
        assert!(timeout(SOON, open.expulsion.expelled()).await.is_err(), "it is within the limits");
    }
}

/// It is closed at once, and another address gets in.
#[tokio::test]
async fn a_source_that_fills_its_lane_closes_nobody_else_out() {
    let listener = listener(LIMITS);
    let mut held = Vec::new();
    for _ in 0..LIMITS.source.connections + LIMITS.source.proving {
        held.push(admitted_from(&listener, 1).await);
    }
    let mut beyond = connected_from(&listener, 1).await;
    let (_other, other) = admitted_from(&listener, 2).await;

    assert!(!other.expulsion.must_prove());
    let end = timeout(SOON, beyond.read(&mut [0])).await.expect("it is closed");
    assert!(matches!(end, Ok(0) | Err(_)), "{end:?}");
    assert_eq!(listener.counters().values().source_limited, 1);
}

#[tokio::test]
async fn a_full_listener_has_slots_for_clients_that_prove_themselves() {
    let listener = listener(ListenerLimits { connections_max: 1, reserved: 1, ..LIMITS });
    let (_first, first) = admitted_from(&listener, 1).await;

    let (_second, second) = admitted_from(&listener, 2).await;

    assert!(!first.expulsion.must_prove() && second.expulsion.must_prove());
    assert_eq!(listener.counters().values().connections_open, 2);
    let (mut third, mut byte) = (connected_from(&listener, 3).await, [0]);
    // Both arms are cancel-safe: the test ends with either.
    tokio::select! {
        _ = listener.next() => panic!("the listener is full"),
        end = timeout(SOON, third.read(&mut byte)) => {
            assert!(matches!(end.expect("it is closed"), Ok(0) | Err(_)));
        }
    }
    drop(second);
    let (_again, again) = admitted_from(&listener, 3).await;
    assert!(again.expulsion.must_prove());
}

#[tokio::test]
async fn a_certificate_has_as_many_connections_as_it_may_and_no_more() {
    let listener = listener(ListenerLimits { of_certificate: 2, ..LIMITS });
    let mut held = Vec::new();
    for _ in 0..4 {
        held.push(admitted_from(&listener, 1).await.1.permit);
    }

    let taken: Vec<_> = held.iter().map(|permit| permit.certified(b"alice").is_ok()).collect();

    assert_eq!(taken, [true, true, false, false]);
    assert_eq!(listener.counters().values().certificate_limited, 2);
    assert!(held[2].certified(b"bob").is_ok(), "another certificate");
    drop(held.remove(0));
    assert!(held[2].certified(b"alice").is_ok(), "one has ended");
}
