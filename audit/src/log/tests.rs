//! What users of a log see of it, and what is in its files then.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;

use super::*;
use crate::chain::Head;
use crate::checkpoint::Extent;
use crate::event::{EndReason, Note, Status, User};
use crate::files::FILE_BYTES_MIN;
use crate::settings::{Sync, Target};
use crate::sink::{Room, Sink};
use crate::verify::{Report, Sources, Trust, verify};

#[tokio::test]
async fn an_intent_is_in_the_file_before_anybody_goes_on_and_has_one_completion_however_it_ends() {
    let kept = Kept::new();
    let (log, running) = kept.open();

    let receipt = log.intent(asked("first")).await.unwrap();
    let intent = line_of(&kept.lines(), "first", "RequestReceived");
    assert_eq!(note(&intent, Note::Sequence), receipt.sequence().to_string());
    receipt.complete(Completion::new(Some(Status::code(200)), EndReason::Clean).with(Note::BytesDown, "42"));
    drop(log.intent(asked("dropped")).await.unwrap());
    log.record(asked("denied"), Completion::new(Some(Status::code(403)), EndReason::Refused)).await.unwrap();
    drop(running);

    let lines = kept.lines();
    for (audit_id, reason) in [("first", "clean"), ("dropped", "client_cancel")] {
        let completions: Vec<_> =
            lines.iter().filter(|line| is(line, audit_id, "ResponseComplete")).collect();
        let [completion] = completions.as_slice() else { panic!("{audit_id}: {completions:?}") };
        assert_eq!(note(completion, Note::EndReason), reason);
        let intent = line_of(&lines, audit_id, "RequestReceived");
        assert_eq!(note(completion, Note::Intent), note(&intent, Note::Sequence));
    }
    assert_eq!(line_of(&lines, "denied", "ResponseComplete")["responseStatus"]["code"], 403);
    let report = kept.verified();
    assert_eq!((report.open, report.lines, report.signed), (0, lines.len() as u64, lines.len() as u64));
}

#[tokio::test]
async fn who_no_longer_waits_leaves_no_intent_without_completion() {
    let kept = Kept::new();
    let (log, running) = kept.open();

    for n in 0..200 {
        let waits = log.intent(asked(&format!("{n}")));
        // Given up in the moment in which it is written, or before.
        let _ = timeout(Duration::from_micros(n * 5), waits).await;
    }
    drop(running);

    assert_eq!(kept.verified().open, 0);
}

#[tokio::test]
async fn a_log_goes_on_over_restarts_and_ends_as_unknown_what_nobody_has_ended() {
    let kept = Kept::new();
    let (log, running) = kept.open();
    let open = log.intent(asked("open")).await.unwrap();
    let before = kept.copied();
    drop(running);
    drop(open);

    // As if power had been lost while a line was written.
    let mut torn = before.lines_text();
    torn.push_str(r#"{"kind":"Ev"#);
    fs::write(before.file(), torn).unwrap();
    let (log, running) = before.open();
    log.record(asked("later"), Completion::new(None, EndReason::Clean)).await.unwrap();
    drop(running);

    let lines = before.lines();
    assert_eq!(note(&line_of(&lines, "open", "ResponseComplete"), Note::EndReason), "unknown");
    let cut = lines.iter().filter(|line| !note(line, Note::CutBytes).is_empty()).count();
    assert_eq!(cut, 1, "what was cut is said");
    assert_eq!(before.verified().open, 0);
}

#[tokio::test]
async fn files_follow_each_other_and_the_oldest_go_and_what_is_left_is_verified() {
    let kept = Kept::new();
    let (log, running) = kept.open();

    let long = "x".repeat(8 * 1024);
    for n in 0..500 {
        let event = Event::new("get", format!("/{n}/{long}"), User::default());
        log.record(event, Completion::new(None, EndReason::Clean)).await.unwrap();
    }
    let figures = log.figures().unwrap();
    drop(running);

    assert_eq!(kept.files().len(), 2);
    assert!(figures.files >= 4, "{figures:?}");
    let report = kept.verified();
    assert!(report.first > 1 && report.signed == report.last, "{report:?}");
    // What is no longer there was taken away by somebody else, if it is not the server that says so.
    fs::remove_file(&kept.files()[0]).unwrap();
    verify(&kept.sources(), &kept.trust()).unwrap_err();
}

#[tokio::test]
async fn a_log_that_fails_refuses_what_is_new_and_loses_nothing_of_what_is_not_and_heals_by_itself() {
    let kept = Kept::new();
    let broken = Arc::new(AtomicU8::new(WORKS));
    let (log, running) = kept.open_breaking(&broken);
    let live = log.intent(asked("live")).await.unwrap();

    broken.store(FULL, Ordering::SeqCst);
    assert!(matches!(log.intent(asked("refused")).await, Err(NotRecorded::Failing(_))));
    live.complete(Completion::new(None, EndReason::Clean));
    assert!(matches!(log.intent(asked("refused")).await, Err(NotRecorded::Failing(_))));
    let revoked = Completion::new(None, EndReason::Clean);
    log.reserved(asked("revoked"), revoked.clone()).unwrap();
    until(|| kept.lines().iter().any(|line| is(line, "revoked", "ResponseComplete"))).await;
    assert!(!kept.lines().iter().any(|line| is(line, "live", "ResponseComplete")), "nothing else is written");
    log.failed_for(Duration::from_millis(50)).await;

    broken.store(BROKEN, Ordering::SeqCst);
    log.reserved(asked("revoked-later"), revoked).unwrap();
    broken.store(WORKS, Ordering::SeqCst);
    until(|| log.failing().is_none()).await;
    drop(log.intent(asked("served")).await.unwrap());
    drop(running);

    let lines = kept.lines();
    let completed =
        |audit_id: &str| lines.iter().filter(|line| is(line, audit_id, "ResponseComplete")).count();
    assert_eq!(["live", "revoked", "revoked-later", "served", "refused"].map(completed), [1, 1, 1, 1, 0]);
    let words: Vec<_> =
        lines.iter().map(|line| note(line, Note::Log)).filter(|word| !word.is_empty()).collect();
    assert_eq!(words, ["file-begins", "opened", "failed", "healed", "closed"]);
    assert_eq!(kept.verified().open, 0);
}

#[tokio::test]
async fn as_many_lines_wait_for_the_reserve_as_may_and_not_one_more() {
    let kept = Kept::new();
    let broken = Arc::new(AtomicU8::new(WORKS));
    let (log, running) = kept.open_breaking(&broken);
    broken.store(BROKEN, Ordering::SeqCst);
    assert!(log.intent(asked("refused")).await.is_err());

    let revoked = || log.reserved(asked("revoked"), Completion::new(None, EndReason::Clean));
    // One place is taken by the line that says that the log has failed.
    for _ in 1..RESERVED_MAX {
        revoked().unwrap();
    }
    assert_eq!(revoked(), Err(NotRecorded::Full));

    broken.store(WORKS, Ordering::SeqCst);
    timeout(Duration::from_secs(30), log.becomes(false)).await.unwrap();
    revoked().unwrap();
    drop(running);
    let written = kept.lines().iter().filter(|line| is(line, "revoked", "ResponseComplete")).count();
    assert_eq!(written, RESERVED_MAX);
}

#[tokio::test]
async fn what_holds_the_writer_up_for_too_long_counts_as_a_failure() {
    let kept = Kept::new();
    let broken = Arc::new(AtomicU8::new(WORKS));
    let (log, running) = kept.open_breaking(&broken);
    broken.store(STUCK, Ordering::SeqCst);

    assert!(matches!(log.intent(asked("stuck")).await, Err(NotRecorded::Failing(_))));
    assert!(matches!(log.intent(asked("refused at once")).await, Err(NotRecorded::Failing(_))));

    broken.store(WORKS, Ordering::SeqCst);
    timeout(Duration::from_secs(30), log.becomes(false)).await.unwrap();
    drop(log.intent(asked("served")).await.unwrap());
    drop(running);
    assert_eq!(kept.verified().open, 0);
}

#[tokio::test]
async fn strangers_are_told_of_by_source_and_take_nobodys_place() {
    let kept = Kept::new();
    let (log, running) = kept.open();

    for _ in 0..10_000 {
        log.stranger("192.0.2.7".parse().unwrap(), Why::Refused);
    }
    drop(log.intent(asked("served")).await.unwrap());
    drop(running);

    let lines = kept.lines();
    let told: Vec<_> = lines.iter().filter(|line| line["verb"] == "authenticate").collect();
    let [told] = told.as_slice() else { panic!("{told:?}") };
    assert_eq!((&told["sourceIPs"][0], note(told, Note::Count).as_str()), (&"192.0.2.7".into(), "10000"));
    assert_eq!(told["responseStatus"]["code"], 401);
}

#[tokio::test]
async fn a_directory_is_one_process_own_and_a_log_that_was_changed_is_not_gone_on_with() {
    let kept = Kept::new();
    let (log, running) = kept.open();
    assert!(matches!(Log::open(&kept.settings(), &kept.chain, &kept.signing), Err(OpenError::Taken(_))));
    drop(log.intent(asked("a")).await.unwrap());
    drop(running);

    let text = kept.lines_text().replace(r#""auditID":"a""#, r#""auditID":"b""#);
    fs::write(kept.file(), text).unwrap();

    assert!(matches!(
        Log::open(&kept.settings(), &kept.chain, &kept.signing),
        Err(OpenError::Changed { .. })
    ));
}

#[tokio::test]
async fn a_log_that_is_off_takes_everything_and_writes_nothing() {
    let log = Log::off();
    log.intent(asked("a")).await.unwrap().complete(Completion::new(None, EndReason::Clean));
    log.record(asked("b"), Completion::new(None, EndReason::Clean)).await.unwrap();
    log.stranger("192.0.2.7".parse().unwrap(), Why::Refused);
    assert!(log.figures().is_none() && log.failing().is_none());
}

const WORKS: u8 = 0;
const FULL: u8 = 1;
const BROKEN: u8 = 2;
const STUCK: u8 = 3;

/// A disk that is full but for its reserve, or broken, as it is told.
struct Breaking {
    sink: Box<dyn Sink>,
    broken: Arc<AtomicU8>,
}

impl Sink for Breaking {
    fn append(&mut self, lines: &[u8], head: Head, room: Room) -> io::Result<()> {
        while self.broken.load(Ordering::SeqCst) == STUCK {
            thread::sleep(Duration::from_millis(5));
        }
        match (self.broken.load(Ordering::SeqCst), room) {
            (WORKS, _) | (FULL, Room::Reserved) => self.sink.append(lines, head, room),
            _ => Err(io::ErrorKind::StorageFull.into()),
        }
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sink.sync()
    }

    fn is_full(&self) -> bool {
        self.sink.is_full()
    }

    fn begin_file(&mut self, first: u64) -> io::Result<()> {
        self.sink.begin_file(first)
    }

    fn extent(&self) -> Option<Extent> {
        self.sink.extent()
    }

    fn oldest_kept(&self) -> u64 {
        self.sink.oldest_kept()
    }

    fn retire(&mut self) -> io::Result<bool> {
        self.sink.retire()
    }

    fn close(&mut self) -> io::Result<()> {
        self.sink.close()
    }
}

/// A log's directory and its keys.
struct Kept {
    directory: TempDir,
    chain: ChainKey,
    signing: SigningKey,
}

impl Kept {
    fn new() -> Self {
        let (chain, signing) = (ChainKey::generate().unwrap(), SigningKey::generate().unwrap());
        Self { directory: tempfile::tempdir().unwrap(), chain, signing }
    }

    fn settings(&self) -> Settings {
        let target = Target::Files { bytes_max: FILE_BYTES_MIN, kept: 2 };
        let directory = self.directory.path().to_owned();
        Settings { server: "server-1".into(), directory, target, sync: Sync::Interval }
    }

    fn open(&self) -> (Log, Running) {
        Log::open(&self.settings(), &self.chain, &self.signing).unwrap()
    }

    fn open_breaking(&self, broken: &Arc<AtomicU8>) -> (Log, Running) {
        let mut begun = recovery::recover(&self.settings(), &self.chain, &self.signing).unwrap();
        begun.sink = Box::new(Breaking { sink: begun.sink, broken: Arc::clone(broken) });
        Log::start(&self.settings(), &self.chain, begun).unwrap()
    }

    /// The same, as a crash would leave it now.
    fn copied(&self) -> Self {
        let copy = tempfile::tempdir().unwrap();
        for entry in fs::read_dir(self.directory.path()).unwrap().flatten() {
            fs::copy(entry.path(), copy.path().join(entry.file_name())).unwrap();
        }
        Self { directory: copy, chain: self.chain.clone(), signing: self.signing.clone() }
    }

    fn files(&self) -> Vec<PathBuf> {
        self.sources().files
    }

    fn file(&self) -> PathBuf {
        self.files()[0].clone()
    }

    fn lines_text(&self) -> String {
        self.files().iter().map(|path| fs::read_to_string(path).unwrap()).collect()
    }

    fn lines(&self) -> Vec<Value> {
        // A line that is being written is none yet.
        let text = self.lines_text();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn sources(&self) -> Sources {
        Sources::of(&[Path::to_owned(self.directory.path())], None).unwrap()
    }

    fn trust(&self) -> Trust {
        Trust { chain: Some(self.chain.clone()), public: Some(self.signing.public().unwrap()) }
    }

    fn verified(&self) -> Report {
        verify(&self.sources(), &self.trust()).unwrap()
    }
}

fn asked(audit_id: &str) -> Event {
    let user = User { username: "alice".into(), ..User::default() };
    let mut event = Event::new("get", "/api/v1/pods", user);
    audit_id.clone_into(&mut event.audit_id);
    event
}

fn is(line: &Value, audit_id: &str, stage: &str) -> bool {
    line["auditID"] == audit_id && line["stage"] == stage
}

fn line_of(lines: &[Value], audit_id: &str, stage: &str) -> Value {
    lines
        .iter()
        .find(|line| is(line, audit_id, stage))
        .unwrap_or_else(|| panic!("{audit_id} {stage}"))
        .clone()
}

fn note(line: &Value, note: Note) -> String {
    line["annotations"][note.key()].as_str().unwrap_or_default().to_owned()
}

async fn until(mut is_so: impl FnMut() -> bool) {
    timeout(Duration::from_secs(30), async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
}
