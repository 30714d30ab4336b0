//! The server's view of its tunnels, shared by several trials.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::caller::Http2Caller;
use crate::rig::Rig;

/// The interval of requests to the server.
const ASK_EVERY: Duration = Duration::from_millis(50);

/// Asks the server what it thinks, once for all.
#[derive(Debug)]
#[must_use = "nobody asks any more when this is dropped"]
pub struct Tunnels {
    health: watch::Receiver<HashMap<String, String>>,
    asking: JoinHandle<()>,
}

impl Tunnels {
    /// Begins to ask a rig's server.
    pub async fn of(rig: &Rig) -> Self {
        let mut caller = Http2Caller::dial(rig).await;
        let (reports, health) = watch::channel(HashMap::new());
        let asking = tokio::spawn(async move {
            while let Ok(answer) = caller.ask("GET", "/clusters", &[]).await {
                reports.send_replace(read(answer.body()));
                sleep(ASK_EVERY).await;
            }
        });
        Self { health, asking }
    }

    /// The time from an instant until these two clusters' tunnels were found suspect or worse; `None` if not
    /// within the limit.
    pub async fn suspect(&self, a: &str, b: &str, from: Instant, limit: Duration) -> [Option<Duration>; 2] {
        let suspect = async |cluster: &str| {
            let mut health = self.health.clone();
            let is_suspect = |all: &HashMap<String, String>| all.get(cluster).is_none_or(|it| it != "Live");
            let found = async { health.wait_for(is_suspect).await.is_ok() };
            timeout(limit, found).await.is_ok_and(|found| found).then(|| from.elapsed())
        };
        tokio::join!(suspect(a), suspect(b)).into()
    }
}

impl Drop for Tunnels {
    fn drop(&mut self) {
        self.asking.abort();
    }
}

// A cluster's best tunnel counts.
fn read(list: &[u8]) -> HashMap<String, String> {
    let list: Value = serde_json::from_slice(list).unwrap_or_default();
    let items = list["items"].as_array().cloned().unwrap_or_default();
    let best = |item: &Value| {
        let tunnels = item["status"]["tunnels"].as_array().cloned().unwrap_or_default();
        let health = tunnels.iter().filter_map(|tunnel| tunnel["health"].as_str().map(str::to_owned));
        health.min_by_key(|health| health != "Live").unwrap_or_else(|| "None".to_owned())
    };
    let name = |item: &Value| item["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    items.iter().map(|item| (name(item), best(item))).collect()
}
