//! A watch that goes on from its last event after each break, as a reflector of client-go does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tests::check::reflector::Reflector;
use tests::check::watch_report::WatchReport;
use tests::fake_api::Emitted;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::client::{KubeClient, whole};
use super::{HANGS_AFTER, Spread};

/// The pause after a break and after a refusal; client-go's first one.
const PAUSE: Duration = Duration::from_millis(800);

/// Several watchers of one collection.
pub(super) struct Watchers {
    running: JoinSet<Watcher>,
    /// The version of the last change, once it is known.
    last: watch::Sender<Option<u64>>,
    established: Arc<AtomicUsize>,
}

/// The findings of all watchers.
#[derive(Debug, Default)]
pub(super) struct WatchFigures {
    pub(super) watchers: usize,
    pub(super) lost: usize,
    pub(super) twice: usize,
    /// Watchers with any other finding, the first of them in words.
    pub(super) wrong: (usize, String),
    /// Lists after the first one, each of which could hide a lost event.
    pub(super) lists: usize,
    /// Watches that ended with an error, and those that ended cleanly.
    pub(super) ends: (usize, usize),
    pub(super) refusals: usize,
    /// Watchers that did not reach the last event.
    pub(super) hung: usize,
    /// The longest time between two events of each.
    pub(super) silences: Spread,
}

struct Watcher {
    client: Arc<KubeClient>,
    path: String,
    last: watch::Receiver<Option<u64>>,
    established: Arc<AtomicUsize>,
    reflector: Reflector,
    lists: usize,
    ends: (usize, usize),
    refusals: usize,
    heard: Option<Instant>,
    longest_silence: Duration,
}

/// A list or a watch ended, cleanly or not.
enum End {
    Clean,
    Broken,
}

impl Watchers {
    pub(super) fn new() -> Self {
        let (last, _) = watch::channel(None);
        Self { running: JoinSet::new(), last, established: Arc::default() }
    }

    /// Begins one more watcher of this path.
    pub(super) fn begin(&mut self, client: &Arc<KubeClient>, path: String) {
        let watcher = Watcher {
            client: Arc::clone(client),
            path,
            last: self.last.subscribe(),
            established: Arc::clone(&self.established),
            reflector: Reflector::default(),
            lists: 0,
            ends: (0, 0),
            refusals: 0,
            heard: None,
            longest_silence: Duration::ZERO,
        };
        self.running.spawn(watcher.run());
    }

    /// Returns true once every watcher has a watch.
    pub(super) fn are_established(&self) -> bool {
        self.established.load(Ordering::Relaxed) >= self.running.len()
    }

    /// Waits until each has seen the last of these changes, and compares.
    pub(super) async fn end(mut self, emitted: &[Emitted]) -> WatchFigures {
        self.last.send_replace(Some(emitted.last().map_or(0, |last| last.revision)));
        let mut figures = WatchFigures { watchers: self.running.len(), ..WatchFigures::default() };
        let mut silences = Vec::new();
        while let Ok(Some(watcher)) = timeout(HANGS_AFTER, self.running.join_next()).await {
            let watcher = watcher.expect("no watcher panics");
            let report = WatchReport::of(&watcher.reflector, emitted);
            figures.lost += report.lost.len();
            figures.twice += report.twice.len();
            let others = WatchReport { lost: Vec::new(), twice: Vec::new(), ..report };
            if !others.is_right() {
                figures.wrong.0 += 1;
                figures.wrong.1 = format!("{others:?}");
            }
            figures.lists += watcher.lists - 1;
            figures.ends.0 += watcher.ends.0;
            figures.ends.1 += watcher.ends.1;
            figures.refusals += watcher.refusals;
            silences.push(watcher.longest_silence);
        }
        figures.hung = self.running.len();
        figures.silences = Spread::of(silences);
        figures
    }
}

impl WatchFigures {
    /// Panics unless no event was lost, came twice, or was hidden by a list.
    pub(super) fn check(&self) {
        assert_eq!((self.lost, self.twice, self.wrong.0, self.hung, self.lists), (0, 0, 0, 0, 0), "{self:?}");
    }
}

impl Watcher {
    async fn run(mut self) -> Self {
        while !self.is_done() {
            let ended = match self.reflector.resumes_at() {
                None => self.list().await,
                Some(revision) => self.follow(revision).await,
            };
            if matches!(ended, End::Broken) && !self.is_done() {
                sleep(PAUSE).await;
            }
        }
        self
    }

    fn is_done(&self) -> bool {
        let last = *self.last.borrow();
        last.is_some_and(|last| self.reflector.resumes_at().is_some_and(|seen| seen >= last))
    }

    async fn list(&mut self) -> End {
        let Ok(answer) = self.client.send("GET", &self.path, &Bytes::new()).await else { return End::Broken };
        let Ok(body) = whole(answer).await else { return End::Broken };
        self.lists += 1;
        match self.reflector.list(&body) {
            Ok(()) => End::Clean,
            Err(_) => End::Broken,
        }
    }

    /// One watch, to its end or to the last event.
    async fn follow(&mut self, revision: u64) -> End {
        let path = format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}", self.path);
        let Ok(answer) = self.client.send("GET", &path, &Bytes::new()).await else { return End::Broken };
        if answer.status() != 200 {
            self.refusals += 1;
            return End::Broken;
        }
        if self.heard.is_none() {
            self.heard = Some(Instant::now());
            self.established.fetch_add(1, Ordering::Relaxed);
        }
        let (mut body, mut last) = (answer.into_body(), self.last.clone());
        while !self.is_done() {
            // Both arms are cancel-safe: a frame that was not returned is returned next time.
            let frame = tokio::select! {
                frame = body.frame() => frame,
                _ = last.changed() => continue,
            };
            match frame {
                Some(Ok(frame)) => self.take(&frame.into_data().unwrap_or_default()),
                None => {
                    self.reflector.ended(true);
                    self.ends.1 += 1;
                    return End::Clean;
                }
                Some(Err(_)) => {
                    self.reflector.ended(false);
                    self.ends.0 += 1;
                    return End::Broken;
                }
            }
        }
        End::Clean
    }

    fn take(&mut self, bytes: &[u8]) {
        let before = self.reflector.seen().len();
        self.reflector.take(bytes);
        if self.reflector.seen().len() > before {
            let heard = self.heard.replace(Instant::now());
            self.longest_silence = self.longest_silence.max(heard.map_or(Duration::ZERO, |at| at.elapsed()));
        }
    }
}
