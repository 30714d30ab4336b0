//! The audit log of a rig's server, read while it is written or after it is closed.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use serde_json::Value;
use tokio::time::{sleep, timeout};

use crate::caller::SOON;
use crate::rig::Rig;

/// The pause between two reads of the log.
const LOOK_EVERY: Duration = Duration::from_millis(20);

/// The lines of an audit log, in their order.
#[derive(Debug, Clone)]
pub struct AuditLog(Vec<Value>);

impl AuditLog {
    /// Reads all that a rig's server has written so far, from the files of the state directory.
    pub fn of(rig: &Rig) -> Self {
        let mut files: Vec<PathBuf> = fs::read_dir(directory(rig))
            .map(|entries| entries.flatten().map(|entry| entry.path()).collect())
            .unwrap_or_default();
        files.retain(|path| path.extension().is_some_and(|end| end == "log"));
        files.sort();
        let text: String = files.iter().map(|path| fs::read_to_string(path).unwrap_or_default()).collect();
        // What is behind the last line's end is being written.
        let complete = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
        Self(complete.map(|line| serde_json::from_str(line).expect("a line is JSON")).collect())
    }

    /// Waits for what `look` finds in a rig's log. The line about an exchange's end is written after its
    /// answer.
    ///
    /// # Panics
    /// If it does not come in time.
    pub async fn found<T>(rig: &Rig, look: impl Fn(&Self) -> Option<T>) -> T {
        let found = async {
            loop {
                if let Some(found) = look(&Self::of(rig)) {
                    return found;
                }
                sleep(LOOK_EVERY).await;
            }
        };
        timeout(SOON, found).await.unwrap_or_else(|_| panic!("it does not come: {:?}", Self::of(rig)))
    }

    /// The lines about an exchange.
    pub fn about(&self, audit_id: &str) -> Self {
        Self(self.0.iter().filter(|line| line["auditID"] == audit_id).cloned().collect())
    }

    /// The lines that announce an exchange before it begins.
    pub fn intents(&self) -> Vec<&Value> {
        self.of_stage("RequestReceived")
    }

    /// The lines of completions, and of requests that are over when they are written.
    pub fn completions(&self) -> Vec<&Value> {
        self.of_stage("ResponseComplete")
    }

    /// All lines, in the order in which they were written.
    pub fn lines(&self) -> &[Value] {
        &self.0
    }

    fn of_stage(&self, stage: &str) -> Vec<&Value> {
        self.0.iter().filter(|line| line["stage"] == stage).collect()
    }
}

/// The value of an annotation under `tombolo.dev/` in a line.
pub fn note<'a>(line: &'a Value, name: &str) -> &'a str {
    line["annotations"][format!("tombolo.dev/{name}")].as_str().unwrap_or_default()
}

/// The directory of a rig's log.
pub fn directory(rig: &Rig) -> PathBuf {
    rig.path().join("server.state/audit")
}

/// Has `tombolo` look at a rig's log with both keys, and fails where it was changed.
pub async fn verify(rig: &Rig) -> Value {
    let words = ["audit", "verify", "server.state/audit", "--key", "server.state/audit-chain.key"];
    let more = ["--public-key", "server.state/audit/audit.pub", "-o", "json"];
    serde_json::from_str(&rig.tombolo(&[&words[..], &more].concat()).await).expect("JSON")
}
