//! Reads a log line by line, and checks that its chain is unbroken.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;

use crate::chain::{Chain, Head, Mac, split};
use crate::event::line::Stage;
use crate::event::{Annotation, Event, LINE_BYTES_MAX, User};
use crate::keys::ChainKey;

/// The faults of a single line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LineFault {
    /// The bytes are no line of an audit log.
    #[error("is not a line of an audit log")]
    NotALine,
    /// The line has no end: it was cut, or is being written.
    #[error(
        "is incomplete: the server is writing it, or lost power, or somebody cut it; if the server runs, try again, and one \
         that starts takes it away and says so"
    )]
    Incomplete,
    /// The number of the line is not the next one.
    #[error("has the number {found}, and {expected} comes next: lines were taken away, added or moved")]
    Sequence {
        /// The number that comes next.
        expected: u64,
        /// The number that the line has.
        found: u64,
    },
    /// The MAC does not match the line.
    #[error("does not match its MAC: it or the line before it was changed, or another server wrote it")]
    Mac,
    /// It is the first line of a file, and does not name the MAC before it.
    #[error("is in the middle of a log: the lines before it were removed")]
    Middle,
    /// It names the MAC of another line than the one before it.
    #[error("was written behind another line than the one before it")]
    Previous,
    /// It completes an intent that is missing or was completed before.
    #[error("completes the intent in line {0}, which is not there, or was completed before")]
    Completion(u64),
}

/// Iterates over the lines of a file.
pub(crate) struct LogLines {
    reader: BufReader<File>,
    line: Vec<u8>,
}

/// A line as it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RawLine<'a> {
    /// The line without its line break.
    pub(crate) bytes: &'a [u8],
    /// True if the line ended with a line break.
    pub(crate) is_complete: bool,
}

/// Checks a chain line by line, over all its files.
pub(crate) struct ChainReader {
    /// MACs are verified only with the key.
    key: Option<ChainKey>,
    chain: Option<Chain>,
    /// The position that the last line claims; `None` before the first line.
    last: Option<Head>,
    /// True if the next line is the first of a file.
    begins: bool,
    first: Option<u64>,
    /// Intents without a completion, by line number.
    open: BTreeMap<u64, OpenIntent>,
}

/// An intent that has no completion yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenIntent {
    audit_id: String,
    verb: String,
    request_uri: String,
    username: String,
}

/// The fields of an event that the reader needs.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawEvent<'a> {
    #[serde(rename = "auditID", borrow)]
    audit_id: Cow<'a, str>,
    #[serde(borrow)]
    stage: Cow<'a, str>,
    #[serde(borrow)]
    verb: Cow<'a, str>,
    #[serde(rename = "requestURI", borrow)]
    request_uri: Cow<'a, str>,
    #[serde(borrow)]
    user: RawUser<'a>,
    #[serde(borrow)]
    annotations: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

#[derive(Deserialize)]
struct RawUser<'a> {
    #[serde(borrow, default)]
    username: Cow<'a, str>,
}

impl LogLines {
    pub(crate) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self { reader: BufReader::new(File::open(path)?), line: Vec::new() })
    }

    /// The next line. A line beyond the limit comes in pieces, none of which is complete.
    pub(crate) fn next(&mut self) -> io::Result<Option<RawLine<'_>>> {
        self.line.clear();
        let read = self.reader.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut self.line)?;
        let line = self.line.strip_suffix(b"\n");
        Ok((read > 0).then(|| RawLine { bytes: line.unwrap_or(&self.line), is_complete: line.is_some() }))
    }
}

impl ChainReader {
    pub(crate) fn new(key: Option<&ChainKey>) -> Self {
        Self { key: key.cloned(), chain: None, last: None, begins: true, first: None, open: BTreeMap::new() }
    }

    /// Marks the next line as the first of a file.
    pub(crate) fn file_begins(&mut self) {
        self.begins = true;
    }

    /// Checks `line`, and returns the chain's position after it.
    pub(crate) fn line(&mut self, line: RawLine<'_>) -> Result<Head, LineFault> {
        if !line.is_complete {
            return Err(LineFault::Incomplete);
        }
        let (body, mac) = split(line.bytes).ok_or(LineFault::NotALine)?;
        let mac = std::str::from_utf8(mac).ok().and_then(Mac::from_text).ok_or(LineFault::NotALine)?;
        let raw: RawEvent<'_> = serde_json::from_slice(line.bytes).map_err(|_| LineFault::NotALine)?;
        // The highest number has no successor, and no log gets that far.
        let found = raw.number(Annotation::Sequence).filter(|number| *number < u64::MAX);
        let found = found.ok_or(LineFault::NotALine)?;
        self.check_position(&raw, found)?;
        if let Some(chain) = &mut self.chain
            && chain.follow(body) != mac
        {
            return Err(LineFault::Mac);
        }
        self.track_intent(&raw, found)?;
        let head = Head { sequence: found, mac };
        (self.last, self.begins) = (Some(head), false);
        self.first.get_or_insert(found);
        Ok(head)
    }

    /// The position of the last line.
    pub(crate) fn last(&self) -> Head {
        self.last.unwrap_or(Head::START)
    }

    /// The number of the first line.
    pub(crate) fn first(&self) -> Option<u64> {
        self.first
    }

    /// Intents without a completion, by line number.
    pub(crate) fn open(&self) -> &BTreeMap<u64, OpenIntent> {
        &self.open
    }

    /// Consumes the reader for its open intents.
    pub(crate) fn into_open(self) -> BTreeMap<u64, OpenIntent> {
        self.open
    }

    /// Checks that the line may come next: its number, and the MAC that it names.
    fn check_position(&mut self, raw: &RawEvent<'_>, found: u64) -> Result<(), LineFault> {
        let previous = raw
            .annotation(Annotation::Previous)
            .map(|text| Mac::from_text(text).ok_or(LineFault::NotALine))
            .transpose()?;
        if self.begins && previous.is_none() {
            return Err(LineFault::Middle);
        }
        match (self.last, previous) {
            (None, Some(mac)) => {
                let before = Head { sequence: found.saturating_sub(1), mac };
                self.chain = self.key.as_ref().map(|key| Chain::new(key, before));
                Ok(())
            }
            (None, None) => Err(LineFault::Middle),
            (Some(last), _) if last.sequence + 1 != found => {
                Err(LineFault::Sequence { expected: last.sequence + 1, found })
            }
            (Some(last), Some(mac)) if last.mac != mac => Err(LineFault::Previous),
            (Some(_), _) => Ok(()),
        }
    }

    /// Checks that each intent has one completion.
    fn track_intent(&mut self, raw: &RawEvent<'_>, found: u64) -> Result<(), LineFault> {
        if raw.stage == Stage::RequestReceived.as_str() {
            self.open.insert(found, raw.open_intent());
        } else if let Some(intent) = raw.number(Annotation::Intent) {
            let was_open = self.open.remove(&intent).is_some();
            // The intent may be in a file that retention has removed.
            let is_here = self.first.is_some_and(|first| intent >= first);
            if !was_open && is_here {
                return Err(LineFault::Completion(intent));
            }
        }
        Ok(())
    }
}

impl OpenIntent {
    /// The event of the intent, with the fields that its completion needs.
    pub(crate) fn event(self, intent: u64) -> Event {
        let user = User { username: self.username, ..User::default() };
        let mut event =
            Event::new(self.verb, self.request_uri, user).with(Annotation::Intent, intent.to_string());
        event.audit_id = self.audit_id;
        event.received = SystemTime::now();
        event
    }
}

impl RawEvent<'_> {
    fn annotation(&self, key: Annotation) -> Option<&str> {
        self.annotations.get(key.key()).map(AsRef::as_ref)
    }

    fn number(&self, key: Annotation) -> Option<u64> {
        self.annotation(key)?.parse().ok()
    }

    fn open_intent(&self) -> OpenIntent {
        OpenIntent {
            audit_id: self.audit_id.clone().into_owned(),
            verb: self.verb.clone().into_owned(),
            request_uri: self.request_uri.clone().into_owned(),
            username: self.user.username.clone().into_owned(),
        }
    }
}
