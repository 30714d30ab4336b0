//! A UDP socket that can be replaced by another while an endpoint uses it.
//!
//! quinn's own `Endpoint::rebind` notifies every connection of the change, and a connection that a stateless
//! reset has ended in the meantime then panics the endpoint (`quinn_proto::Endpoint::handle_event` takes a
//! reset token for a connection that is gone). Here quinn does not learn of the change: the next packet
//! leaves by the new socket, and the peer takes that for the rebinding of a NAT (RFC 9000, section 9.3). The
//! connection ID stays the same, so an observer of both paths can tell that they are one tunnel; behind the
//! NATs for which this is done that is no secret.

use std::fmt;
use std::io::{self, IoSliceMut};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use quinn::udp::{RecvMeta, Transmit};
use quinn::{AsyncUdpSocket, UdpPoller};

/// The length field of UDP has 16 bits (RFC 768).
const UDP_BYTES: usize = 65_535;

/// The sockets of one endpoint: the current one, and the previous one until something has arrived on the
/// current one.
pub(crate) struct SwappableSocket {
    sockets: Mutex<Sockets>,
    /// Largest packet that arrives, in bytes.
    packet_bytes: u16,
}

struct Sockets {
    current: Arc<dyn AsyncUdpSocket>,
    previous: Option<Arc<dyn AsyncUdpSocket>>,
    swaps: u64,
    /// The waker of the task that waits for datagrams: it has to poll the new socket.
    receiver: Option<Waker>,
}

/// Waits until the current socket accepts datagrams.
struct SwappablePoller {
    socket: Arc<SwappableSocket>,
    swaps: u64,
    inner: Pin<Box<dyn UdpPoller>>,
}

impl SwappableSocket {
    pub(crate) fn new(socket: Arc<dyn AsyncUdpSocket>, packet_bytes: u16) -> Self {
        let sockets = Sockets { current: socket, previous: None, swaps: 0, receiver: None };
        Self { sockets: Mutex::new(sockets), packet_bytes }
    }

    /// Replaces the current socket. The previous one is still read until something arrives on the new one.
    pub(crate) fn swap(&self, socket: Arc<dyn AsyncUdpSocket>) {
        let receiver = {
            let mut sockets = self.sockets();
            let last = std::mem::replace(&mut sockets.current, socket);
            sockets.previous = Some(last);
            sockets.swaps += 1;
            sockets.receiver.take()
        };
        if let Some(receiver) = receiver {
            receiver.wake();
        }
    }

    fn current(&self) -> Arc<dyn AsyncUdpSocket> {
        Arc::clone(&self.sockets().current)
    }

    fn sockets(&self) -> MutexGuard<'_, Sockets> {
        // A panic under the lock leaves valid state behind: it changes by single assignments.
        self.sockets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl AsyncUdpSocket for SwappableSocket {
    fn create_io_poller(self: Arc<Self>) -> Pin<Box<dyn UdpPoller>> {
        let (socket, swaps) = {
            let sockets = self.sockets();
            (Arc::clone(&sockets.current), sockets.swaps)
        };
        Box::pin(SwappablePoller { socket: self, swaps, inner: socket.create_io_poller() })
    }

    fn try_send(&self, transmit: &Transmit<'_>) -> io::Result<()> {
        self.current().try_send(transmit)
    }

    fn poll_recv(
        &self,
        cx: &mut Context<'_>,
        bufs: &mut [IoSliceMut<'_>],
        meta: &mut [RecvMeta],
    ) -> Poll<io::Result<usize>> {
        let (current, previous) = {
            let mut sockets = self.sockets();
            match &mut sockets.receiver {
                Some(waker) => waker.clone_from(cx.waker()),
                none => *none = Some(cx.waker().clone()),
            }
            (Arc::clone(&sockets.current), sockets.previous.clone())
        };
        let received = current.poll_recv(cx, bufs, meta);
        let Some(previous) = previous else {
            return received;
        };
        if received.is_pending() {
            match previous.poll_recv(cx, bufs, meta) {
                Poll::Ready(Err(_)) => {}
                still @ (Poll::Ready(Ok(_)) | Poll::Pending) => return still,
            }
        }
        let mut sockets = self.sockets();
        // Unless another swap has replaced it in the meantime.
        if sockets.previous.as_ref().is_some_and(|last| Arc::ptr_eq(last, &previous)) {
            sockets.previous = None;
        }
        received
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.current().local_addr()
    }

    fn max_transmit_segments(&self) -> usize {
        self.current().max_transmit_segments()
    }

    /// As many packets as fit one UDP datagram: the kernel joins no more of those that have arrived, and
    /// quinn keeps room for so many.
    fn max_receive_segments(&self) -> usize {
        self.current().max_receive_segments().min(UDP_BYTES.div_ceil(usize::from(self.packet_bytes)))
    }

    fn may_fragment(&self) -> bool {
        self.current().may_fragment()
    }
}

impl UdpPoller for SwappablePoller {
    fn poll_writable(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (socket, swaps) = {
            let sockets = self.socket.sockets();
            (Arc::clone(&sockets.current), sockets.swaps)
        };
        if swaps != self.swaps {
            self.swaps = swaps;
            self.inner = socket.create_io_poller();
        }
        self.inner.as_mut().poll_writable(cx)
    }
}

impl fmt::Debug for SwappableSocket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwappableSocket").field("current", &self.current()).finish_non_exhaustive()
    }
}

impl fmt::Debug for SwappablePoller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SwappablePoller").field("inner", &self.inner).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::net::{Ipv4Addr, UdpSocket};
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::Wake;
    use std::time::Duration;

    use quinn::{Runtime, TokioRuntime};
    use tokio::time::timeout;

    use super::*;
    use crate::path_mtu::PACKET_BYTES_DEFAULT;

    #[tokio::test]
    async fn datagrams_leave_by_the_new_socket_and_come_by_both() {
        let (swapped, peer) = (
            Arc::new(SwappableSocket::new(bound(), PACKET_BYTES_DEFAULT)),
            UdpSocket::bind(localhost()).unwrap(),
        );
        let first = swapped.local_addr().unwrap();

        swapped.swap(bound());

        let second = swapped.local_addr().unwrap();
        assert_ne!(first, second);
        send(&swapped, peer.local_addr().unwrap()).await;
        assert_eq!(peer.recv_from(&mut [0; 8]).unwrap().1, second);
        for address in [first, second] {
            peer.send_to(b"x", address).unwrap();
            assert_eq!(receive(&swapped).await, 1, "by {address}");
        }
    }

    #[tokio::test]
    async fn the_last_socket_is_closed_once_something_came_by_the_new_one() {
        let (swapped, peer) =
            (SwappableSocket::new(bound(), PACKET_BYTES_DEFAULT), UdpSocket::bind(localhost()).unwrap());
        let first = swapped.local_addr().unwrap();
        swapped.swap(bound());

        peer.send_to(b"x", swapped.local_addr().unwrap()).unwrap();
        receive(&swapped).await;

        assert!(UdpSocket::bind(first).is_ok(), "the port is free again");
    }

    #[tokio::test]
    async fn a_swap_wakes_the_task_that_waits_for_datagrams() {
        let (swapped, woken) =
            (SwappableSocket::new(bound(), PACKET_BYTES_DEFAULT), Arc::new(Woken(AtomicBool::new(false))));
        let waker = Waker::from(Arc::clone(&woken));
        let (mut bytes, mut meta) = ([0; 64], [RecvMeta::default()]);
        let polled = swapped.poll_recv(
            &mut Context::from_waker(&waker),
            &mut [IoSliceMut::new(&mut bytes)],
            &mut meta,
        );
        assert!(polled.is_pending() && !woken.0.load(Ordering::Relaxed));

        swapped.swap(bound());

        assert!(woken.0.load(Ordering::Relaxed));
    }

    #[tokio::test]
    async fn a_poller_from_before_a_swap_waits_for_the_new_socket() {
        let swapped = Arc::new(SwappableSocket::new(bound(), PACKET_BYTES_DEFAULT));
        let mut poller = Arc::clone(&swapped).create_io_poller();
        swapped.swap(bound());

        let writable = poll_fn(|cx| poller.as_mut().poll_writable(cx));

        timeout(SOON, writable).await.unwrap().unwrap();
    }

    struct Woken(AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, Ordering::Relaxed);
        }
    }

    const SOON: Duration = Duration::from_secs(30);

    fn localhost() -> SocketAddr {
        (Ipv4Addr::LOCALHOST, 0).into()
    }

    fn bound() -> Arc<dyn AsyncUdpSocket> {
        let socket = UdpSocket::bind(localhost()).unwrap();
        TokioRuntime.wrap_udp_socket(socket).unwrap()
    }

    async fn send(swapped: &Arc<SwappableSocket>, destination: SocketAddr) {
        let mut poller = Arc::clone(swapped).create_io_poller();
        poll_fn(|cx| poller.as_mut().poll_writable(cx)).await.unwrap();
        let contents = b"x".as_slice();
        let transmit = Transmit { destination, ecn: None, contents, segment_size: None, src_ip: None };
        swapped.try_send(&transmit).unwrap();
    }

    async fn receive(swapped: &SwappableSocket) -> usize {
        let mut bytes = [0; 64];
        let received = poll_fn(|cx| {
            let mut meta = [RecvMeta::default()];
            swapped.poll_recv(cx, &mut [IoSliceMut::new(&mut bytes)], &mut meta)
        });
        timeout(SOON, received).await.unwrap().unwrap()
    }
}
