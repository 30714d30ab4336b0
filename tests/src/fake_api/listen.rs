//! The fake's listener and the connections that it has accepted.

use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

use super::behaviour::ListenerMode;
use super::record::HttpVersion;
use super::recorded_stream::RecordedStream;
use super::{Shared, http1, http2};

/// An open or closed listener, and all connections it has accepted.
pub(super) struct Listening {
    acceptor: TlsAcceptor,
    shared: Arc<Shared>,
    accepting: Option<JoinHandle<()>>,
    connections: Arc<Mutex<JoinSet<()>>>,
}

impl std::fmt::Debug for Listening {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Listening").field("open", &self.accepting.is_some()).finish_non_exhaustive()
    }
}

impl Listening {
    pub(super) async fn open(
        address: SocketAddr,
        acceptor: TlsAcceptor,
        shared: Arc<Shared>,
    ) -> io::Result<(Self, SocketAddr)> {
        let listener = TcpListener::bind(address).await?;
        let address = listener.local_addr()?;
        let mut listening = Self { acceptor, shared, accepting: None, connections: Arc::default() };
        listening.accept_from(listener);
        Ok((listening, address))
    }

    pub(super) async fn close(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
            let _ = accepting.await; // Aborted, which is what was asked; the listener is closed now.
        }
    }

    pub(super) async fn reopen(&mut self, address: SocketAddr) -> io::Result<()> {
        self.close().await;
        self.accept_from(TcpListener::bind(address).await?);
        Ok(())
    }

    pub(super) fn drop_connections(&self) {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner).abort_all();
    }

    fn accept_from(&mut self, listener: TcpListener) {
        let (acceptor, shared) = (self.acceptor.clone(), Arc::clone(&self.shared));
        let connections = Arc::clone(&self.connections);
        self.accepting = Some(tokio::spawn(async move {
            while let Ok((socket, from)) = listener.accept().await {
                let serve = serve(socket, from, acceptor.clone(), Arc::clone(&shared));
                connections.lock().unwrap_or_else(PoisonError::into_inner).spawn(serve);
            }
        }));
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        if let Some(accepting) = self.accepting.take() {
            accepting.abort();
        }
        self.drop_connections();
    }
}

/// Notes the end of a connection also where its task is aborted.
struct Ends<'a>(&'a Shared, u64);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.records.ended(self.1);
    }
}

async fn serve(socket: TcpStream, from: SocketAddr, acceptor: TlsAcceptor, shared: Arc<Shared>) {
    let id = shared.records.accepted(from);
    let _ends = Ends(&shared, id);
    match shared.script.mode() {
        ListenerMode::Open => {}
        ListenerMode::Close => return,
        ListenerMode::SilentBeforeTls => {
            // Holds the socket without reading it until the fake drops the connection.
            std::future::pending::<()>().await;
        }
    }
    let Ok(stream) = acceptor.accept(socket).await else { return };
    let shows_certificate = stream.get_ref().1.peer_certificates().is_some();
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(HttpVersion::Http2.alpn());
    let stream = RecordedStream::new(stream, id, Arc::clone(&shared));
    if is_http2 {
        shared.records.agreed(id, HttpVersion::Http2, shows_certificate);
        http2::serve(stream, id, Arc::clone(&shared)).await;
    } else {
        shared.records.agreed(id, HttpVersion::Http1, shows_certificate);
        http1::serve(stream, id, &shared).await;
    }
}
