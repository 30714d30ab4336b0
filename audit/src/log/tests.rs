//! Tests of the log's handle against the files that it leaves behind.

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
use crate::event::{Annotation, EndReason, Status, User};
use crate::files::FILE_BYTES_MIN;
use crate::settings::{Sync, Target};
use crate::sink::{Sink, Space};
use crate::verify::{Report, Sources, VerifyKeys, verify};

#[tokio::test]
async fn an_intent_is_written_first_and_gets_exactly_one_completion() {
    let fixture = LogFixture::new();
    let (log, guard) = fixture.open();

    let receipt = log.intent(event("first")).await.unwrap();
    let intent = line_of(&fixture.lines(), "first", "RequestReceived");
    assert_eq!(annotation(&intent, Annotation::Sequence), receipt.sequence().to_string());
    receipt.complete(
        Completion::new(Some(Status::code(200)), EndReason::Clean).with(Annotation::BytesDown, "42"),
    );
    drop(log.intent(event("dropped")).await.unwrap());
    log.write(event("denied"), Completion::new(Some(Status::code(403)), EndReason::Refused)).await.unwrap();
    drop(guard);

    let lines = fixture.lines();
    for (audit_id, reason) in [("first", "clean"), ("dropped", "client_cancel")] {
        let completions: Vec<_> =
            lines.iter().filter(|line| is(line, audit_id, "ResponseComplete")).collect();
        let [completion] = completions.as_slice() else { panic!("{audit_id}: {completions:?}") };
        assert_eq!(annotation(completion, Annotation::EndReason), reason);
        let intent = line_of(&lines, audit_id, "RequestReceived");
        assert_eq!(annotation(completion, Annotation::Intent), annotation(&intent, Annotation::Sequence));
    }
    assert_eq!(line_of(&lines, "denied", "ResponseComplete")["responseStatus"]["code"], 403);
    let report = fixture.verified();
    assert_eq!(
        (report.open, report.lines, report.covered_up_to),
        (0, lines.len() as u64, lines.len() as u64)
    );
}

#[tokio::test]
async fn a_cancelled_intent_leaves_no_intent_without_completion() {
    let fixture = LogFixture::new();
    let (log, guard) = fixture.open();

    for n in 0..200 {
        let waits = log.intent(event(&format!("{n}")));
        // Cancelled before or in the moment in which it is written.
        let _ = timeout(Duration::from_micros(n * 5), waits).await;
    }
    drop(guard);

    assert_eq!(fixture.verified().open, 0);
}

#[tokio::test]
async fn after_a_crash_open_exchanges_are_completed_as_unknown() {
    let fixture = LogFixture::new();
    let (log, guard) = fixture.open();
    let open = log.intent(event("open")).await.unwrap();
    let before = fixture.copied();
    drop(guard);
    drop(open);

    // As if power had been lost while a line was written.
    let mut torn = before.lines_text();
    torn.push_str(r#"{"kind":"Ev"#);
    fs::write(before.file(), torn).unwrap();
    let (log, guard) = before.open();
    log.write(event("later"), Completion::new(None, EndReason::Clean)).await.unwrap();
    drop(guard);

    let lines = before.lines();
    assert_eq!(annotation(&line_of(&lines, "open", "ResponseComplete"), Annotation::EndReason), "unknown");
    let cut = lines.iter().filter(|line| !annotation(line, Annotation::CutBytes).is_empty()).count();
    assert_eq!(cut, 1, "the cut is logged");
    assert_eq!(before.verified().open, 0);
}

#[tokio::test]
async fn files_rotate_and_what_retention_leaves_is_verified() {
    let fixture = LogFixture::new();
    let (log, guard) = fixture.open();

    let long = "x".repeat(8 * 1024);
    for n in 0..500 {
        let event = Event::new("get", format!("/{n}/{long}"), User::default());
        log.write(event, Completion::new(None, EndReason::Clean)).await.unwrap();
    }
    let figures = log.figures().unwrap();
    drop(guard);

    assert_eq!(fixture.files().len(), 2);
    assert!(figures.files >= 4, "{figures:?}");
    let report = fixture.verified();
    assert!(report.first > 1 && report.covered_up_to == report.last, "{report:?}");
    // A file that is missing without a checkpoint of its removal is a fault.
    fs::remove_file(&fixture.files()[0]).unwrap();
    verify(&fixture.sources(), &fixture.keys()).unwrap_err();
}

#[tokio::test]
async fn a_failing_log_refuses_new_requests_and_recovers_without_loss() {
    let fixture = LogFixture::new();
    let disk = Arc::new(AtomicU8::new(WORKS));
    let (log, guard) = fixture.open_faulty(&disk);
    let live = log.intent(event("live")).await.unwrap();

    disk.store(FULL, Ordering::SeqCst);
    assert!(matches!(log.intent(event("refused")).await, Err(AuditError::Failing(_))));
    live.complete(Completion::new(None, EndReason::Clean));
    assert!(matches!(log.intent(event("refused")).await, Err(AuditError::Failing(_))));
    let revoked = Completion::new(None, EndReason::Clean);
    log.write_reserved(event("revoked"), revoked.clone()).unwrap();
    until(|| fixture.lines().iter().any(|line| is(line, "revoked", "ResponseComplete"))).await;
    assert!(
        !fixture.lines().iter().any(|line| is(line, "live", "ResponseComplete")),
        "nothing else is written"
    );
    log.failed_for(Duration::from_millis(50)).await;

    disk.store(BROKEN, Ordering::SeqCst);
    log.write_reserved(event("revoked-later"), revoked).unwrap();
    disk.store(WORKS, Ordering::SeqCst);
    until(|| log.failing().is_none()).await;
    drop(log.intent(event("served")).await.unwrap());
    drop(guard);

    let lines = fixture.lines();
    let completed =
        |audit_id: &str| lines.iter().filter(|line| is(line, audit_id, "ResponseComplete")).count();
    assert_eq!(["live", "revoked", "revoked-later", "served", "refused"].map(completed), [1, 1, 1, 1, 0]);
    let words: Vec<_> =
        lines.iter().map(|line| annotation(line, Annotation::Log)).filter(|word| !word.is_empty()).collect();
    assert_eq!(words, ["file-begins", "opened", "failed", "healed", "closed"]);
    assert_eq!(fixture.verified().open, 0);
}

#[tokio::test]
async fn lines_for_the_reserve_are_queued_up_to_the_limit() {
    let fixture = LogFixture::new();
    let disk = Arc::new(AtomicU8::new(WORKS));
    let (log, guard) = fixture.open_faulty(&disk);
    disk.store(BROKEN, Ordering::SeqCst);
    assert!(log.intent(event("refused")).await.is_err());

    let revoked = || log.write_reserved(event("revoked"), Completion::new(None, EndReason::Clean));
    // One slot is taken by the line about the failure itself.
    for _ in 1..RESERVED_MAX {
        revoked().unwrap();
    }
    assert_eq!(revoked(), Err(AuditError::Full));

    disk.store(WORKS, Ordering::SeqCst);
    timeout(Duration::from_secs(30), log.becomes(false)).await.unwrap();
    revoked().unwrap();
    drop(guard);
    let written = fixture.lines().iter().filter(|line| is(line, "revoked", "ResponseComplete")).count();
    assert_eq!(written, RESERVED_MAX);
}

#[tokio::test]
async fn a_writer_that_is_blocked_for_too_long_counts_as_failing() {
    let fixture = LogFixture::new();
    let disk = Arc::new(AtomicU8::new(WORKS));
    let (log, guard) = fixture.open_faulty(&disk);
    disk.store(STUCK, Ordering::SeqCst);

    assert!(matches!(log.intent(event("stuck")).await, Err(AuditError::Failing(_))));
    assert!(matches!(log.intent(event("refused at once")).await, Err(AuditError::Failing(_))));

    disk.store(WORKS, Ordering::SeqCst);
    timeout(Duration::from_secs(30), log.becomes(false)).await.unwrap();
    drop(log.intent(event("served")).await.unwrap());
    drop(guard);
    assert_eq!(fixture.verified().open, 0);
}

#[tokio::test]
async fn unauthenticated_requests_are_reported_by_source_in_one_line() {
    let fixture = LogFixture::new();
    let (log, guard) = fixture.open();

    for _ in 0..10_000 {
        log.unauthenticated("192.0.2.7".parse().unwrap(), FailureCause::Refused);
    }
    drop(log.intent(event("served")).await.unwrap());
    drop(guard);

    let lines = fixture.lines();
    let reports: Vec<_> = lines.iter().filter(|line| line["verb"] == "authenticate").collect();
    let [report] = reports.as_slice() else { panic!("{reports:?}") };
    assert_eq!(
        (&report["sourceIPs"][0], annotation(report, Annotation::Count).as_str()),
        (&"192.0.2.7".into(), "10000")
    );
    assert_eq!(report["responseStatus"]["code"], 401);
}

#[tokio::test]
async fn a_directory_in_use_and_a_changed_log_are_both_refused() {
    let fixture = LogFixture::new();
    let (log, guard) = fixture.open();
    assert!(matches!(
        Log::open(&fixture.settings(), &fixture.chain, &fixture.signing),
        Err(OpenError::Taken(_))
    ));
    drop(log.intent(event("a")).await.unwrap());
    drop(guard);

    let text = fixture.lines_text().replace(r#""auditID":"a""#, r#""auditID":"b""#);
    fs::write(fixture.file(), text).unwrap();

    assert!(matches!(
        Log::open(&fixture.settings(), &fixture.chain, &fixture.signing),
        Err(OpenError::Changed { .. })
    ));
}

#[tokio::test]
async fn a_log_that_is_off_accepts_everything_and_writes_nothing() {
    let log = Log::off();
    log.intent(event("a")).await.unwrap().complete(Completion::new(None, EndReason::Clean));
    log.write(event("b"), Completion::new(None, EndReason::Clean)).await.unwrap();
    log.unauthenticated("192.0.2.7".parse().unwrap(), FailureCause::Refused);
    assert!(log.figures().is_none() && log.failing().is_none());
}

const WORKS: u8 = 0;
const FULL: u8 = 1;
const BROKEN: u8 = 2;
const STUCK: u8 = 3;

/// A sink whose disk is full but for its reserve, broken or stuck, as the test sets it.
struct FaultySink {
    sink: Box<dyn Sink>,
    disk: Arc<AtomicU8>,
}

impl Sink for FaultySink {
    fn append(&mut self, lines: &[u8], head: Head, space: Space) -> io::Result<()> {
        while self.disk.load(Ordering::SeqCst) == STUCK {
            thread::sleep(Duration::from_millis(5));
        }
        match (self.disk.load(Ordering::SeqCst), space) {
            (WORKS, _) | (FULL, Space::Reserved) => self.sink.append(lines, head, space),
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

/// The directory of a log, and its keys.
struct LogFixture {
    directory: TempDir,
    chain: ChainKey,
    signing: SigningKey,
}

impl LogFixture {
    fn new() -> Self {
        let (chain, signing) = (ChainKey::generate().unwrap(), SigningKey::generate().unwrap());
        Self { directory: tempfile::tempdir().unwrap(), chain, signing }
    }

    fn settings(&self) -> Settings {
        let target = Target::Files { bytes_max: FILE_BYTES_MIN, kept: 2 };
        let directory = self.directory.path().to_owned();
        Settings { server: "server-1".into(), directory, target, sync: Sync::Interval }
    }

    fn open(&self) -> (Log, WriterGuard) {
        Log::open(&self.settings(), &self.chain, &self.signing).unwrap()
    }

    fn open_faulty(&self, disk: &Arc<AtomicU8>) -> (Log, WriterGuard) {
        let mut recovered = recovery::recover(&self.settings(), &self.chain, &self.signing).unwrap();
        recovered.sink = Box::new(FaultySink { sink: recovered.sink, disk: Arc::clone(disk) });
        Log::start(&self.settings(), &self.chain, recovered).unwrap()
    }

    /// A copy of the files, as a crash would leave them now.
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
        // A line that is still being written is left out.
        let text = self.lines_text();
        text.split_inclusive('\n')
            .filter(|line| line.ends_with('\n'))
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }

    fn sources(&self) -> Sources {
        Sources::from_paths(&[Path::to_owned(self.directory.path())], None).unwrap()
    }

    fn keys(&self) -> VerifyKeys {
        VerifyKeys { chain: Some(self.chain.clone()), public: Some(self.signing.public().unwrap()) }
    }

    fn verified(&self) -> Report {
        verify(&self.sources(), &self.keys()).unwrap()
    }
}

fn event(audit_id: &str) -> Event {
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

fn annotation(line: &Value, key: Annotation) -> String {
    line["annotations"][key.key()].as_str().unwrap_or_default().to_owned()
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
