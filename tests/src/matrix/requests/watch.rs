//! A list and a watch, and after each break another watch from where the last one was, as client-go's
//! reflector does.

use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::{Observation, READY_MAX, RequestContext, RequestEnd, within};
use crate::check::reflector::Reflector;
use crate::matrix::code::{Request, Timing};
use crate::matrix::gateway::OpenResponse;

/// Pause before the next list or watch; client-go's is about a second.
const AGAIN_AFTER: Duration = Duration::from_millis(500);
/// Pause between two changes in the collection.
const CHANGE_EVERY: Duration = Duration::from_millis(100);
/// The time that changes go on after the fault's end.
const CHANGE_AFTER: Duration = Duration::from_secs(2);
/// Objects that change in turn.
const OBJECTS: u64 = 8;

pub(super) async fn perform(context: &RequestContext) -> Observation {
    let mut watcher = Watcher::new(context);
    let changes = async {
        let mut count = 0_u64;
        loop {
            change(context, count);
            count += 1;
            sleep(CHANGE_EVERY).await;
            if context.phases.has_ended().is_some_and(|ended| ended.elapsed() >= CHANGE_AFTER) {
                break;
            }
        }
        context.store.revision()
    };
    context.may_begin().await;
    // The watcher goes on until it has seen the last change, which is known at the end.
    let (last, done) = tokio::sync::watch::channel(None);
    let changing = async {
        let revision = changes.await;
        last.send_replace(Some(revision));
        // Kept, so that the watcher can ask as long as it runs.
        let () = last.closed().await;
    };
    let watching = async {
        let seen = context.unless_hung(watcher.watch(done)).await;
        seen.is_some()
    };
    let (is_done, (), ()) = tokio::join!(watching, changing, context.pass_gate());
    let end = if is_done { RequestEnd::Complete } else { RequestEnd::Hung };
    let lost = context.store.revision().saturating_sub(watcher.reflector.resumes_at().unwrap_or(0));
    Observation {
        lost: if is_done { 0 } else { lost },
        reflector: Some((watcher.reflector, watcher.breaks, watcher.refusals)),
        ..Observation::of(end, watcher.noticed_at, watcher.resumed)
    }
}

/// Objects come, change and go.
fn change(context: &RequestContext, count: u64) {
    let name = format!("tick-{}", count % OBJECTS);
    if count % 5 == 4 {
        context.store.delete(&name);
    } else {
        context.store.put(&name, &count.to_string());
    }
    if count % 10 == 9 {
        context.store.bookmark();
    }
}

/// A list or a watch has not come to its end, and is counted.
struct Interrupted;

struct Watcher<'a> {
    context: &'a RequestContext,
    reflector: Reflector,
    breaks: usize,
    refusals: usize,
    noticed_at: Option<Instant>,
    resumed: Option<Instant>,
    stands: bool,
}

impl<'a> Watcher<'a> {
    fn new(context: &'a RequestContext) -> Self {
        Self {
            context,
            reflector: Reflector::default(),
            breaks: 0,
            refusals: 0,
            noticed_at: None,
            resumed: None,
            stands: context.timing == Timing::New || context.gate.is_some(),
        }
    }

    /// Until the reflector has seen the last change.
    async fn watch(&mut self, last: tokio::sync::watch::Receiver<Option<u64>>) {
        while !self.is_done(&last) {
            let turn = match self.reflector.resumes_at() {
                None => self.list().await,
                Some(revision) => self.follow(revision, &last).await,
            };
            if turn.is_err() && !self.is_done(&last) {
                sleep(AGAIN_AFTER).await;
            }
        }
    }

    fn is_done(&self, last: &tokio::sync::watch::Receiver<Option<u64>>) -> bool {
        let last = *last.borrow();
        last.is_some_and(|last| self.reflector.resumes_at().is_some_and(|seen| seen >= last))
    }

    async fn list(&mut self) -> Result<(), Interrupted> {
        let mut body = Vec::new();
        let listed = async {
            let mut answer = self.ask(&self.context.path.clone()).await?;
            answer.body(|bytes| body.extend_from_slice(bytes)).await.map_err(|_| self.note_break())
        };
        listed.await?;
        self.reflector.list(&body).map_err(|_| self.note_break())
    }

    /// One watch, to its end or to ours.
    async fn follow(
        &mut self,
        revision: u64,
        last: &tokio::sync::watch::Receiver<Option<u64>>,
    ) -> Result<(), Interrupted> {
        let path =
            format!("{}?watch=1&allowWatchBookmarks=true&resourceVersion={revision}", self.context.path);
        let mut answer = self.ask(&path).await?;
        let mut last = last.clone();
        loop {
            // Both arms are cancel-safe: a piece that was not returned is returned next time.
            let piece = tokio::select! {
                piece = answer.piece() => piece,
                noticed_at = last.changed() => match noticed_at {
                    Ok(()) if !self.is_done(&last) => continue,
                    _ => return Ok(()),
                },
            };
            match piece {
                Ok(Some(bytes)) => self.reflector.take(&bytes),
                Ok(None) => {
                    self.reflector.ended(true);
                    return Err(self.note_break());
                }
                Err(_) => {
                    self.reflector.ended(false);
                    return Err(self.note_break());
                }
            }
            self.note_progress().await;
            if self.is_done(&last) {
                return Ok(());
            }
        }
    }

    async fn ask(&mut self, path: &str) -> Result<OpenResponse, Interrupted> {
        let asked = self.context.gateway.send(self.context.version, "GET", path, &[], "");
        // A gateway that parks a watch answers nothing meanwhile; that is its right.
        let Ok(Ok(answer)) = within(READY_MAX * 10, asked).await else { return Err(self.note_break()) };
        if answer.response.status() == 200 {
            return Ok(answer);
        }
        self.refusals += 1;
        self.noticed_at.get_or_insert_with(Instant::now);
        Err(Interrupted)
    }

    async fn note_progress(&mut self) {
        if !self.stands && self.reflector.seen().len() >= 3 {
            self.stands = true;
            self.context.phases.ready(Request::Watch).await;
        }
        if self.resumed.is_none() && self.context.phases.has_ended().is_some() {
            self.resumed = Some(Instant::now());
        }
    }

    fn note_break(&mut self) -> Interrupted {
        self.breaks += 1;
        self.noticed_at.get_or_insert_with(Instant::now);
        Interrupted
    }
}
