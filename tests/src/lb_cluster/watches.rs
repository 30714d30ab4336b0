//! Watches through node-lb that must not miss an event, and must not end.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{LB, LbCluster, until};
use crate::dial::{config, secured};

/// The object whose changes are watched, and the key of its number.
const OBJECT: &str = "beat";

/// Longest time for an event to reach all watches.
const EVENT_MAX: Duration = Duration::from_secs(60);

/// Watches of one ConfigMap, each on a connection of its own.
#[derive(Debug)]
#[must_use = "nobody sees whether they end"]
pub struct Watches {
    watches: Vec<Arc<Watch>>,
    beats: usize,
}

/// One watch: the number of events without a gap, and the reason of its end.
#[derive(Debug, Default)]
struct Watch {
    beats: AtomicUsize,
    ended: std::sync::Mutex<Option<String>>,
}

impl Watches {
    /// Makes the ConfigMap and starts so many watches on the worker.
    ///
    /// # Panics
    /// If a watch does not begin.
    pub async fn start(cluster: &LbCluster, count: usize) -> Self {
        let admin = cluster.edge.admin();
        admin.stdout(&["create", "configmap", OBJECT, "--from-literal=number=0"]).await;
        let mut tls = config(cluster.edge.ca_pem(), Some(&cluster.administrator())).expect("an identity");
        tls.alpn_protocols = vec![b"http/1.1".to_vec()];
        let tls = Arc::new(tls);
        let mut watches = Vec::new();
        for _ in 0..count {
            let watch = Arc::new(Watch::default());
            let (following, tls) = (Arc::clone(&watch), Arc::clone(&tls));
            let started = async move {
                tokio::spawn(async move {
                    let Err(error) = follow(&following, &tls).await;
                    *following.ended.lock().expect("nobody panics") = Some(error.to_string());
                });
            };
            cluster.on_worker.run(started).await;
            watches.push(watch);
        }
        let watches = Self { watches, beats: 0 };
        watches.until_all_have(0).await;
        watches
    }

    /// Changes the ConfigMap, and waits until every watch has seen that.
    ///
    /// # Panics
    /// If a watch has ended, or has missed an event.
    pub async fn beat(&mut self, cluster: &LbCluster) {
        self.beats += 1;
        let patch = format!("{{\"data\":{{\"number\":\"{}\"}}}}", self.beats);
        cluster.edge.admin().stdout(&["patch", "configmap", OBJECT, "--patch", &patch]).await;
        self.until_all_have(self.beats).await;
    }

    async fn until_all_have(&self, beats: usize) {
        // A watch counts its first event, too.
        let has = |watch: &Arc<Watch>| watch.beats.load(Ordering::Relaxed) == beats + 1;
        until(&format!("every watch has event {beats}"), EVENT_MAX, async || {
            for watch in &self.watches {
                let ended = watch.ended.lock().expect("nobody panics").clone();
                assert_eq!(ended, None, "a watch has ended after {:?} events", watch.beats);
            }
            self.watches.iter().all(has).then_some(())
        })
        .await;
    }
}

/// Counts events as long as their numbers follow one another.
async fn follow(
    watch: &Watch,
    tls: &Arc<rustls::ClientConfig>,
) -> Result<std::convert::Infallible, io::Error> {
    let address: SocketAddr = LB.parse().expect("an address");
    let mut stream = secured(TcpStream::connect(address).await?, "127.0.0.1", tls).await?;
    let request = format!(
        "GET /api/v1/namespaces/default/configmaps?watch=1&fieldSelector=metadata.name%3D{OBJECT}&timeoutSeconds=3600 \
         HTTP/1.1\r\nhost: lb\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await?;
    let mut text = String::new();
    let mut buffer = vec![0; 64 * 1024];
    loop {
        let read = stream.read(&mut buffer).await?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        text.push_str(&String::from_utf8_lossy(&buffer[..read]));
        let next = watch.beats.load(Ordering::Relaxed);
        while let Some((event, rest)) = text.split_once("}\n") {
            let Some((_, number)) = event.split_once("\"data\":{\"number\":\"") else {
                return Err(io::Error::other(format!("no event: {event}")));
            };
            let number = number.split('"').next().and_then(|number| number.parse::<usize>().ok());
            let expected = watch.beats.fetch_add(1, Ordering::Relaxed);
            if number != Some(expected) {
                return Err(io::Error::other(format!("{number:?} after {next} events: {event}")));
            }
            text = rest.to_owned();
        }
    }
}
