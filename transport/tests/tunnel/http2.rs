//! Tests that apply to HTTP/2 alone.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use proto::session::Health;
use tokio::io::{AsyncReadExt, AsyncWriteExt, copy_bidirectional};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use transport::{
    Carrier, DialError, DialPath, DialTls, Dialed, HANDSHAKE_MAX, Proxy, ProxyError, TunnelEnded,
    TunnelEvent, dial_tcp,
};

use crate::pair::{Authority, Pair, Server, Tokio, expected_servers, hello, open, soon};

#[tokio::test]
async fn a_crowd_that_hangs_up_at_once_leaves_the_tunnel_alive() {
    let pair = Pair::greeted(Carrier::Http2).await;
    let mut crowd = JoinSet::new();
    for _ in 0..1000 {
        let server = pair.server.clone();
        crowd.spawn(async move { server.open(&open()).await.map(drop) });
    }
    soon(crowd.join_all()).await.into_iter().for_each(|opened| opened.unwrap());

    let mut there = pair.server.open(&open()).await.unwrap();
    there.write_all(b"still here").await.unwrap();
    there.shutdown().await.unwrap();
    let mut answered = Vec::new();
    soon(async {
        while answered != b"still here" {
            answered.clear();
            let mut here = pair.accepted().await;
            // Aborted streams carry nothing.
            if here.read_open().await.is_ok() {
                let _ = here.read_to_end(&mut answered).await;
            }
        }
    })
    .await;
}

#[tokio::test]
async fn ten_thousand_small_events_that_nobody_reads_leave_the_tunnel_alive() {
    let event = b"{\"type\":\"ADDED\"}\n";
    let pair = Pair::greeted(Carrier::Http2).await;
    let mut unread = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    for _ in 0..10_000 {
        here.write_all(event).await.unwrap();
    }
    here.shutdown().await.unwrap();

    let mut other = pair.server.open(&open()).await.unwrap();
    let mut answering = pair.accepted().await;
    answering.read_open().await.unwrap();
    answering.write_all(b"answer").await.unwrap();
    soon(other.read_exact(&mut [0; 6])).await.unwrap();

    let mut events = Vec::new();
    soon(unread.read_to_end(&mut events)).await.unwrap();
    assert!(events == event.repeat(10_000));
}

#[tokio::test]
async fn a_link_counts_the_bytes_of_streams_and_measures_its_round_trip() {
    let pair = Pair::greeted(Carrier::Http2).await;
    let before = (pair.server.link_stats(), pair.agent.link_stats());
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();
    there.write_all(&[7; 300_000]).await.unwrap();
    soon(here.read_exact(&mut vec![0; 300_000])).await.unwrap();

    let (server, agent) = (pair.server.link_stats(), pair.agent.link_stats());
    assert!(server.stream_bytes_sent - before.0.stream_bytes_sent > 300_000);
    assert!(agent.stream_bytes_received - before.1.stream_bytes_received > 300_000);
    assert!(agent.wire_bytes_received - before.1.wire_bytes_received > 300_000);
    assert_eq!((server.packets_sent, server.packets_lost), (0, 0), "its packets are the kernel's");
    // Before the first measurement a third of a second is assumed.
    let measured = async {
        while pair.server.round_trip() > Duration::from_millis(332) {
            tokio::task::yield_now().await;
        }
    };
    soon(measured).await;
}

#[tokio::test]
async fn an_end_without_a_close_frame_is_noticed_at_once() {
    let (pair, relay) = greet_by_relay().await;

    relay.cut();

    for ended in [soon(pair.agent_ended).await.unwrap(), soon(pair.server_ended).await.unwrap()] {
        assert!(matches!(ended, TunnelEnded::Carrier(_)), "{ended}");
    }
}

/// The streams resume when the path is back.
#[tokio::test]
async fn a_dark_path_makes_a_tunnel_suspect_and_its_streams_resume() {
    let (mut pair, relay) = greet_by_relay().await;
    let mut there = pair.server.open(&open()).await.unwrap();
    let mut here = pair.accepted().await;
    here.read_open().await.unwrap();

    relay.darken(true);
    let sent = vec![5; 3_000_000];
    let writing = tokio::spawn(async move {
        here.write_all(&sent).await?;
        here.shutdown().await?;
        here.read_to_end(&mut Vec::new()).await?;
        io::Result::Ok(sent)
    });
    assert_eq!(soon(pair.server_events.recv()).await, Some(TunnelEvent::Health(Health::Suspect)));
    relay.darken(false);
    assert_eq!(soon(pair.server_events.recv()).await, Some(TunnelEvent::Health(Health::Live)));

    let mut received = Vec::new();
    soon(there.read_to_end(&mut received)).await.unwrap();
    there.shutdown().await.unwrap();
    assert!(received == soon(writing).await.unwrap().unwrap());
}

#[tokio::test]
async fn a_dial_that_is_given_up_leaves_nothing_behind() {
    let authority = Authority::new();
    let server = authority.server(Carrier::Http2).await;
    let tls = DialTls::new(authority.agent_material(), expected_servers()).unwrap();
    let way = DialPath::Direct(server.address());
    let accepted = {
        let dialing = dial_tcp(&way, "gateway.test", &tls, hello(), HANDSHAKE_MAX, &Tokio);
        tokio::pin!(dialing);
        // The greeting waits for a server that does not answer it; here the dial is dropped.
        soon(async {
            tokio::select! {
                _ = &mut dialing => panic!("nobody greeted"),
                accepted = server.accept_connection() => accepted.unwrap(),
            }
        })
        .await
    };

    let greeted = soon(Server::greet(accepted)).await;

    assert!(greeted.map(drop).is_err(), "nobody is left to be greeted");
}

#[tokio::test]
async fn a_tunnel_goes_through_a_proxy_with_a_password() {
    let authority = Authority::new();
    let server = authority.server(Carrier::Http2).await;
    let proxy = HttpProxy::open(server.address()).await;

    let (dialed, greeted) = soon(async {
        tokio::join!(proxy.dial(&authority, "http://agent:s%40me%20secret@"), server.accept())
    })
    .await;

    let (dialed, (tunnel, driver, _)) = (dialed.unwrap(), greeted.unwrap());
    assert_eq!(*proxy.asked.borrow(), "CONNECT gateway.test:8443 HTTP/1.1");
    let driving = [tokio::spawn(driver.run(|_| {})), tokio::spawn(dialed.driver.run(|_| {}))];
    let mut there = tunnel.open(&open()).await.unwrap();
    let mut here = soon(dialed.tunnel.accept()).await.unwrap();
    here.read_open().await.unwrap();
    here.write_all(b"through").await.unwrap();
    soon(there.read_exact(&mut [0; 7])).await.unwrap();
    drop(driving);
}

#[tokio::test]
async fn a_proxys_refusal_is_reported_with_advice() {
    let authority = Authority::new();
    let server = authority.server(Carrier::Http2).await;
    let proxy = HttpProxy::open(server.address()).await;

    let without = soon(proxy.dial(&authority, "http://")).await.map(drop).unwrap_err();
    assert!(matches!(without, DialError::Proxy(ProxyError::Credentials(_))), "{without}");
    assert!(without.to_string().contains("http://USER:PASSWORD@HOST:PORT"), "{without}");

    let refusing = HttpProxy::answering("HTTP/1.1 403 Forbidden\r\nContent-Length: 4\r\n\r\nno.\n").await;
    let error = soon(refusing.dial(&authority, "http://")).await.map(drop).unwrap_err();
    assert!(error.to_string().contains("403 to CONNECT gateway.test:8443"), "{error}");

    let other = HttpProxy::answering("SSH-2.0-OpenSSH_10.0\r\n").await;
    let error = soon(other.dial(&authority, "http://")).await.map(drop).unwrap_err();
    assert!(matches!(error, DialError::Proxy(ProxyError::NotHttp(_))), "{error}");

    let speaking = HttpProxy::answering("HTTP/1.1 200 OK\r\n\r\nand more").await;
    let error = soon(speaking.dial(&authority, "http://")).await.map(drop).unwrap_err();
    assert!(matches!(error, DialError::Proxy(ProxyError::NotHttp(_))), "{error}");
}

/// A tunnel over a relay that can be closed.
async fn greet_by_relay() -> (Pair, TcpRelay) {
    let authority = Authority::new();
    let server = authority.server(Carrier::Http2).await;
    let relay = TcpRelay::to(server.address()).await;
    (authority.greet_at(relay.address, server).await, relay)
}

/// A way for one connection, which may be dark for a while.
struct TcpRelay {
    address: SocketAddr,
    is_dark: watch::Sender<bool>,
    carrying: tokio::task::JoinHandle<()>,
}

impl TcpRelay {
    async fn to(target: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, is_dark) = (listener.local_addr().unwrap(), watch::Sender::new(false));
        let (there, back) = (is_dark.subscribe(), is_dark.subscribe());
        let carrying = tokio::spawn(async move {
            let (agent, server) =
                (listener.accept().await.unwrap().0, TcpStream::connect(target).await.unwrap());
            let ((from_agent, to_agent), (from_server, to_server)) =
                (agent.into_split(), server.into_split());
            tokio::join!(carry(from_agent, to_server, there), carry(from_server, to_agent, back));
        });
        Self { address, is_dark, carrying }
    }

    fn darken(&self, is_dark: bool) {
        self.is_dark.send_replace(is_dark);
    }

    /// Both ends lose the connection.
    fn cut(self) {
        self.carrying.abort();
    }
}

/// Carries bytes as long as it is light.
async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_dark: watch::Receiver<bool>) {
    let mut bytes = vec![0; 16 * 1024];
    while let Ok(read @ 1..) = from.read(&mut bytes).await {
        if is_dark.wait_for(|is_dark| !is_dark).await.is_err() || to.write_all(&bytes[..read]).await.is_err()
        {
            return;
        }
    }
}

/// An HTTP proxy that either requires a password, or answers every request in the same way.
struct HttpProxy {
    address: SocketAddr,
    /// The first line of the last request.
    asked: watch::Receiver<String>,
}

impl HttpProxy {
    /// A proxy that connects every request to `target`.
    async fn open(target: SocketAddr) -> Self {
        Self::serve(move |mut caller, head| async move {
            // agent:s@me secret
            if !head.contains("\r\nProxy-Authorization: Basic YWdlbnQ6c0BtZSBzZWNyZXQ=\r\n") {
                return caller.write_all(b"HTTP/1.1 407 Who are you\r\n\r\n").await;
            }
            let mut target = TcpStream::connect(target).await?;
            caller.write_all(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n").await?;
            copy_bidirectional(&mut caller, &mut target).await.map(drop)
        })
        .await
    }

    async fn answering(answer: &'static str) -> Self {
        Self::serve(move |mut caller, _| async move {
            caller.write_all(answer.as_bytes()).await?;
            caller.read_to_end(&mut Vec::new()).await.map(drop)
        })
        .await
    }

    async fn serve<F>(answer: impl Fn(TcpStream, String) -> F + Send + 'static) -> Self
    where
        F: Future<Output = io::Result<()>> + Send + 'static,
    {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, (tell, asked)) = (listener.local_addr().unwrap(), watch::channel(String::new()));
        tokio::spawn(async move {
            loop {
                let (mut caller, _) = listener.accept().await.unwrap();
                let mut head = Vec::new();
                while !head.ends_with(b"\r\n\r\n") {
                    head.push(caller.read_u8().await.unwrap());
                }
                let head = String::from_utf8(head).unwrap();
                tell.send_replace(head.lines().next().unwrap().to_owned());
                tokio::spawn(answer(caller, head));
            }
        });
        Self { address, asked }
    }

    async fn dial(&self, authority: &Authority, credentials: &str) -> Result<Dialed, DialError> {
        let proxy: Proxy = format!("{credentials}{}", self.address).parse().unwrap();
        let way = DialPath::Proxied { proxy, host: "gateway.test".to_owned(), port: 8443 };
        let tls = DialTls::new(authority.agent_material(), expected_servers()).unwrap();
        dial_tcp(&way, "gateway.test", &tls, hello(), HANDSHAKE_MAX, &Tokio).await
    }
}
