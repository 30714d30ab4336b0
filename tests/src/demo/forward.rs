//! Ports of the person's own loopback that lead into the cloud's network namespace.

use std::io;
use std::net::{SocketAddr, TcpListener as StdTcpListener};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::network::NetworkNamespace;

/// Pause after an accept that failed, for one because the process has no file descriptor left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listener of this network namespace, and where its connections go in the other.
pub(super) type ForwardRule = (StdTcpListener, SocketAddr);

/// Copies bytes between the namespaces on a thread of its own until dropped.
///
/// A socket belongs to the namespace that its thread was in when it was made. The listeners are made before,
/// here; the thread then moves into the other namespace, and so every connection that it dials is one of
/// that.
#[derive(Debug)]
#[must_use = "the ports are closed when this is dropped"]
pub(super) struct Forwarder {
    end: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Forwarder {
    /// Returns when the thread is in the namespace.
    pub(super) fn start(namespace: &NetworkNamespace, rules: Vec<ForwardRule>) -> io::Result<Self> {
        let namespace = namespace.try_clone()?;
        let (end, ended) = oneshot::channel();
        let (sender, started) = mpsc::channel();
        let thread = thread::Builder::new().name("forwarder".to_owned()).spawn(move || {
            let runtime = namespace
                .enter()
                .and_then(|()| tokio::runtime::Builder::new_current_thread().enable_all().build());
            match runtime {
                Ok(runtime) => runtime.block_on(async move {
                    let listening: io::Result<()> = rules.into_iter().try_for_each(listen);
                    if sender.send(listening).is_ok() {
                        let _ = ended.await; // A message and a dropped sender both end it.
                    }
                }),
                Err(error) => drop(sender.send(Err(error))),
            }
        })?;
        started.recv().map_err(|_| io::Error::other("the forwarder's thread has ended"))??;
        Ok(Self { end: Some(end), thread: Some(thread) })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // A panic there has been printed.
        }
    }
}

// Its tasks end with the thread's runtime.
fn listen((listener, target): ForwardRule) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let listener = TcpListener::from_std(listener)?;
    tokio::spawn(async move {
        loop {
            match listener.accept().await {
                Ok((near, _)) => drop(tokio::spawn(carry(near, target))),
                Err(_) => sleep(ACCEPT_PAUSE).await,
            }
        }
    });
    Ok(())
}

async fn carry(mut near: TcpStream, target: SocketAddr) {
    // The client sees the end of the connection and reports it better than we could.
    let Ok(mut far) = TcpStream::connect(target).await else { return };
    let _ = near.set_nodelay(true);
    let _ = far.set_nodelay(true);
    let _ = copy_bidirectional(&mut near, &mut far).await;
}
