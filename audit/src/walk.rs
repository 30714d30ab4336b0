//! Reads a log line by line, and follows its chain.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read};
use std::path::Path;
use std::time::SystemTime;

use serde::Deserialize;

use crate::chain::{Chain, Code, Head, split};
use crate::event::{Event, LINE_BYTES_MAX, Note, Stage, User};
use crate::keys::ChainKey;

/// What is wrong with a line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Wrong {
    /// It is none.
    #[error("is not a line of an audit log")]
    NotALine,
    /// It does not end.
    #[error(
        "is not whole: the server is writing it, or lost power, or somebody cut it; if the server runs, try again, and one \
         that starts takes it away and says so"
    )]
    NotWhole,
    /// Its number is not the next.
    #[error("has the number {found}, and {expected} comes next: lines were taken away, added or moved")]
    Sequence {
        /// The next.
        expected: u64,
        /// Its own.
        found: u64,
    },
    /// Its code is another.
    #[error("does not fit its code: it or the line before it was changed, or another server wrote it")]
    Code,
    /// It is the first here, and does not say behind what.
    #[error("is in the middle of a log: what stands before it was taken away")]
    Middle,
    /// It says that another line was before it.
    #[error("was written behind another line than the one before it")]
    Previous,
    /// It ends an exchange that did not begin, or twice.
    #[error("completes the intent in line {0}, which is not there, or was completed before")]
    Completion(u64),
}

/// The lines of a file.
pub(crate) struct Lines {
    reader: BufReader<File>,
    line: Vec<u8>,
}

/// A line as it was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Raw<'a> {
    /// Without its end.
    pub(crate) bytes: &'a [u8],
    /// Whether it has one.
    pub(crate) is_whole: bool,
}

/// Follows a chain over all its files.
pub(crate) struct Follower {
    /// Codes are looked at where the key is known.
    key: Option<ChainKey>,
    chain: Option<Chain>,
    /// The last line, as it says it is; nothing before the first.
    last: Option<Head>,
    /// Whether the next line begins a file.
    begins: bool,
    first: Option<u64>,
    /// Intents without completion.
    open: BTreeMap<u64, Opened>,
}

/// An exchange that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Opened {
    audit_id: String,
    verb: String,
    request_uri: String,
    username: String,
}

/// What is read of an event.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Written<'a> {
    #[serde(rename = "auditID", borrow)]
    audit_id: Cow<'a, str>,
    #[serde(borrow)]
    stage: Cow<'a, str>,
    #[serde(borrow)]
    verb: Cow<'a, str>,
    #[serde(rename = "requestURI", borrow)]
    request_uri: Cow<'a, str>,
    #[serde(borrow)]
    user: Named<'a>,
    #[serde(borrow)]
    annotations: BTreeMap<Cow<'a, str>, Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Named<'a> {
    #[serde(borrow, default)]
    username: Cow<'a, str>,
}

impl Lines {
    pub(crate) fn of(path: &Path) -> io::Result<Self> {
        Ok(Self { reader: BufReader::new(File::open(path)?), line: Vec::new() })
    }

    /// The next line. One that is longer than may be comes in pieces, of which none is whole.
    pub(crate) fn next(&mut self) -> io::Result<Option<Raw<'_>>> {
        self.line.clear();
        let read = self.reader.by_ref().take(LINE_BYTES_MAX as u64).read_until(b'\n', &mut self.line)?;
        let line = self.line.strip_suffix(b"\n");
        Ok((read > 0).then(|| Raw { bytes: line.unwrap_or(&self.line), is_whole: line.is_some() }))
    }
}

impl Follower {
    pub(crate) fn new(key: Option<&ChainKey>) -> Self {
        Self { key: key.cloned(), chain: None, last: None, begins: true, first: None, open: BTreeMap::new() }
    }

    /// The next line is the first of a file.
    pub(crate) fn file_begins(&mut self) {
        self.begins = true;
    }

    /// Goes on behind `line`, and gives where the chain is then.
    pub(crate) fn line(&mut self, line: Raw<'_>) -> Result<Head, Wrong> {
        if !line.is_whole {
            return Err(Wrong::NotWhole);
        }
        let (body, code) = split(line.bytes).ok_or(Wrong::NotALine)?;
        let code = std::str::from_utf8(code).ok().and_then(Code::from_text).ok_or(Wrong::NotALine)?;
        let written: Written<'_> = serde_json::from_slice(line.bytes).map_err(|_| Wrong::NotALine)?;
        // The last number there is has none behind it, and no log gets so far.
        let found = written.number(Note::Sequence).filter(|number| *number < u64::MAX);
        let found = found.ok_or(Wrong::NotALine)?;
        self.follows(&written, found)?;
        if let Some(chain) = &mut self.chain
            && chain.follow(body) != code
        {
            return Err(Wrong::Code);
        }
        self.count(&written, found)?;
        let head = Head { sequence: found, code };
        (self.last, self.begins) = (Some(head), false);
        self.first.get_or_insert(found);
        Ok(head)
    }

    /// The last line.
    pub(crate) fn last(&self) -> Head {
        self.last.unwrap_or(Head::NOTHING)
    }

    /// The first line's number.
    pub(crate) fn first(&self) -> Option<u64> {
        self.first
    }

    /// Intents without completion, by their lines.
    pub(crate) fn open(&self) -> &BTreeMap<u64, Opened> {
        &self.open
    }

    /// The same, where it is no longer asked for more.
    pub(crate) fn into_open(self) -> BTreeMap<u64, Opened> {
        self.open
    }

    /// Whether a line that says so may come next.
    fn follows(&mut self, written: &Written<'_>, found: u64) -> Result<(), Wrong> {
        let said = written
            .note(Note::Previous)
            .map(|text| Code::from_text(text).ok_or(Wrong::NotALine))
            .transpose()?;
        if self.begins && said.is_none() {
            return Err(Wrong::Middle);
        }
        match (self.last, said) {
            (None, Some(code)) => {
                let before = Head { sequence: found.saturating_sub(1), code };
                self.chain = self.key.as_ref().map(|key| Chain::new(key, before));
                Ok(())
            }
            (None, None) => Err(Wrong::Middle),
            (Some(last), _) if last.sequence + 1 != found => {
                Err(Wrong::Sequence { expected: last.sequence + 1, found })
            }
            (Some(last), Some(code)) if last.code != code => Err(Wrong::Previous),
            (Some(_), _) => Ok(()),
        }
    }

    /// Each intent has one completion.
    fn count(&mut self, written: &Written<'_>, found: u64) -> Result<(), Wrong> {
        if written.stage == Stage::RequestReceived.as_str() {
            self.open.insert(found, written.opened());
        } else if let Some(intent) = written.number(Note::Intent) {
            let was_open = self.open.remove(&intent).is_some();
            // The intent may stand in a file that is no longer kept.
            let is_here = self.first.is_some_and(|first| intent >= first);
            if !was_open && is_here {
                return Err(Wrong::Completion(intent));
            }
        }
        Ok(())
    }
}

impl Opened {
    /// The event that it was, as far as its end needs it.
    pub(crate) fn event(self, intent: u64) -> Event {
        let user = User { username: self.username, ..User::default() };
        let mut event = Event::new(self.verb, self.request_uri, user).with(Note::Intent, intent.to_string());
        event.audit_id = self.audit_id;
        event.received = SystemTime::now();
        event
    }
}

impl Written<'_> {
    fn note(&self, note: Note) -> Option<&str> {
        self.annotations.get(note.key()).map(AsRef::as_ref)
    }

    fn number(&self, note: Note) -> Option<u64> {
        self.note(note)?.parse().ok()
    }

    fn opened(&self) -> Opened {
        Opened {
            audit_id: self.audit_id.clone().into_owned(),
            verb: self.verb.clone().into_owned(),
            request_uri: self.request_uri.clone().into_owned(),
            username: self.user.username.clone().into_owned(),
        }
    }
}
