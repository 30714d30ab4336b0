//! The callers' part in an outage: everything that may flow through a tunnel, all at once.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use bytes::Bytes;
use h2::{RecvStream, SendStream};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::echo_api::{Seeds, TICK_BYTES, TICK_EVERY, drain};
use super::meter::{Meter, StreamEnd};
use crate::caller::{Http2Caller, SOON, UpgradedWriter, send_all, upgrade};
use crate::check::stream::Generator;
use crate::rig::Rig;

/// The size of an upload's write in bytes.
const BULK_BYTES: usize = 16 * 1024;

/// The callers' side of the streams of one trial.
#[derive(Debug)]
pub(super) struct CallerStreams {
    /// The bytes of the download that have arrived.
    pub(super) download: Meter,
    /// The bytes that the API server sends bit by bit.
    pub(super) trickle: Meter,
    /// The bytes that the API server has echoed.
    pub(super) exec: Meter,
    /// Of the idle watch: events, with their times.
    pub(super) watch: Text,
    /// The events of the busy watch.
    pub(super) busy_watch: Text,
    /// The answer to the upload's request.
    pub(super) upload_answer: Text,
    /// The bytes that were sent.
    pub(super) sent: Arc<Mutex<CallerSent>>,
    stop: watch::Sender<bool>,
    tasks: JoinSet<()>,
}

/// The bytes that callers have sent.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct CallerSent {
    pub(super) upload: u64,
    pub(super) trickle: u64,
    pub(super) exec: u64,
}

/// Text that arrives, in no stream that a seed makes.
#[derive(Debug, Clone, Default)]
pub(super) struct Text(Arc<Mutex<TextInner>>);

#[derive(Debug, Default)]
struct TextInner {
    text: String,
    marks: Vec<(Instant, u64)>,
    end: Option<(Instant, StreamEnd)>,
}

impl CallerStreams {
    /// Number of streams of a trial.
    pub(super) const COUNT: u32 = 6;

    /// Opens all of them to a trial's namespace of a cluster.
    pub(super) async fn open(rig: &Rig, cluster: &str, trial: &str, seeds: Seeds) -> Self {
        let path = |rest: &str| format!("/clusters/{cluster}/api/v1/namespaces/{trial}/{rest}");
        let mut streams = Self {
            download: Meter::new(seeds.download),
            trickle: Meter::new(seeds.trickle_to_caller),
            exec: Meter::new(seeds.exec),
            watch: Text::default(),
            busy_watch: Text::default(),
            upload_answer: Text::default(),
            sent: Arc::default(),
            stop: watch::Sender::new(false),
            tasks: JoinSet::new(),
        };
        let query = "?watch=1&resourceVersion=1&allowWatchBookmarks=true";
        let watched = streams.watch.clone();
        streams.read(rig, &path(&format!("configmaps{query}")), move |end| watched.take(end)).await;
        let watched = streams.busy_watch.clone();
        streams.read(rig, &path(&format!("secrets{query}")), move |end| watched.take(end)).await;
        let meter = streams.download.clone();
        let take = move |data: Result<&[u8], StreamEnd>| match data {
            Ok(bytes) => meter.take(bytes),
            Err(end) => meter.ended(end),
        };
        streams.read(rig, &path("pods/p/log?follow=true"), take).await;
        streams.upload(rig, &path("services/s/proxy/upload"), seeds).await;

        let (reader, writer, first) = upgrade(rig, &path("pods/p/attach?stdin=true")).await;
        streams.trickle.take(&first);
        let meter = streams.trickle.clone();
        streams.tasks.spawn(async move { drain(reader, &meter).await });
        streams.tick(writer, seeds.trickle_to_cluster, |sent| &mut sent.trickle);
        let (reader, writer, first) = upgrade(rig, &path("pods/p/exec?command=cat&stdin=true")).await;
        streams.exec.take(&first);
        let meter = streams.exec.clone();
        streams.tasks.spawn(async move { drain(reader, &meter).await });
        streams.tick(writer, seeds.exec, |sent| &mut sent.exec);
        streams
    }

    /// Ends the callers' streams cleanly.
    pub(super) fn stop(&self) {
        self.stop.send_replace(true);
    }

    pub(super) fn sent(&self) -> CallerSent {
        *self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn read(
        &mut self,
        rig: &Rig,
        path: &str,
        take: impl Fn(Result<&[u8], StreamEnd>) + Send + Sync + 'static,
    ) {
        let mut caller = Http2Caller::dial(rig).await;
        let (answer, _) = caller.send("GET", path, &[], true);
        let answer = timeout(SOON, answer).await.expect("a head in time").expect("a head");
        assert_eq!(answer.status(), 200, "{path}");
        let mut body = answer.into_body();
        self.tasks.spawn(async move {
            let _caller = caller; // The connection lives as long as its stream.
            take(Err(read_body(&mut body, |data| take(Ok(data))).await));
        });
    }

    async fn upload(&mut self, rig: &Rig, path: &str, seeds: Seeds) {
        let mut caller = Http2Caller::dial(rig).await;
        let (answer, mut stream) = caller.send("POST", path, &[], false);
        let (sent, stop, ended) = (Arc::clone(&self.sent), self.stop.subscribe(), self.upload_answer.clone());
        self.tasks.spawn(async move {
            let _caller = caller;
            let mut source = Generator::new(seeds.upload);
            let sending = async {
                while !*stop.borrow() {
                    if !send(&mut stream, Bytes::from(source.take(BULK_BYTES))).await? {
                        // The answer says why.
                        return std::future::pending().await;
                    }
                    sent.lock().unwrap_or_else(PoisonError::into_inner).upload = source.position();
                }
                send_all(&mut stream, Bytes::new(), true).await
            };
            // Whichever ends first says how it ended: nothing is sent any more after an answer.
            let end = tokio::select! {
                answer = answer => answer.map(|answer| answer.status().as_u16()),
                Err(error) = sending => Err(error),
            };
            match end {
                Ok(200) => ended.take(Err(StreamEnd::Clean)),
                Ok(status) => ended.take(Err(StreamEnd::Broken(format!("answered {status}")))),
                Err(error) => ended.take(Err(StreamEnd::Broken(error.to_string()))),
            }
        });
    }

    fn tick(
        &mut self,
        mut writer: UpgradedWriter,
        seed: u64,
        count: impl Fn(&mut CallerSent) -> &mut u64 + Send + 'static,
    ) {
        let (sent, stop) = (Arc::clone(&self.sent), self.stop.subscribe());
        self.tasks.spawn(async move {
            let mut source = Generator::new(seed);
            while !*stop.borrow() && writer.write_all(&source.take(TICK_BYTES)).await.is_ok() {
                *count(&mut sent.lock().unwrap_or_else(PoisonError::into_inner)) = source.position();
                let _ = writer.flush().await; // The next write says what is wrong.
                sleep(TICK_EVERY).await;
            }
            let _ = writer.shutdown().await; // The other end says what is wrong.
            // Half of a TLS connection that is dropped takes the other along.
            std::future::pending::<()>().await;
        });
    }
}

impl Text {
    pub(super) fn text(&self) -> String {
        self.inner().text.clone()
    }

    pub(super) fn end(&self) -> Option<(Instant, StreamEnd)> {
        self.inner().end.clone()
    }

    pub(super) fn first_after(&self, instant: Instant) -> Option<Instant> {
        self.inner().marks.iter().map(|(at, _)| *at).find(|at| *at > instant)
    }

    pub(super) fn since(&self, instant: Instant) -> Vec<(f64, f64)> {
        let seconds = |at: Instant| {
            let (after, before) = (at.duration_since(instant), instant.duration_since(at));
            after.as_secs_f64() - before.as_secs_f64()
        };
        self.inner().marks.iter().map(|(at, total)| (seconds(*at), *total as f64)).collect()
    }

    pub(super) fn take(&self, data: Result<&[u8], StreamEnd>) {
        let mut inner = self.inner();
        match data {
            Ok(bytes) => {
                inner.text.push_str(&String::from_utf8_lossy(bytes));
                let total = inner.text.len() as u64;
                inner.marks.push((Instant::now(), total));
            }
            Err(end) => {
                inner.end.get_or_insert((Instant::now(), end));
            }
        }
    }

    fn inner(&self) -> std::sync::MutexGuard<'_, TextInner> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

async fn read_body(body: &mut RecvStream, take: impl Fn(&[u8])) -> StreamEnd {
    while let Some(data) = body.data().await {
        match data {
            Ok(data) => {
                let _ = body.flow_control().release_capacity(data.len()); // Fails only on a stream that is gone.
                take(&data);
            }
            Err(error) => return StreamEnd::Broken(error.to_string()),
        }
    }
    StreamEnd::Clean
}

/// Sends a piece as the windows allow, and returns whether the stream accepts more.
async fn send(stream: &mut SendStream<Bytes>, mut piece: Bytes) -> Result<bool, h2::Error> {
    while !piece.is_empty() {
        stream.reserve_capacity(piece.len());
        let Some(room) = std::future::poll_fn(|cx| stream.poll_capacity(cx)).await.transpose()? else {
            return Ok(false);
        };
        stream.send_data(piece.split_to(room.min(piece.len())), false)?;
    }
    Ok(true)
}
