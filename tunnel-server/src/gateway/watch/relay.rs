//! Passes the events of a watch on, and tracks the point from which the watch could be resumed. Pure.
//!
//! An event is passed on only when it is complete, so that a caller whose stream is lost never has half an
//! event. An event larger than the limit is passed on as it comes, and the watch then ends with its tunnel.
//! Bookmarks that only the gateway asked for are suppressed.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::buffer_budget::{BufferBudget, Reservation};
use super::encoding::{Encoding, EventScanner};
use super::event::{EventKind, EventParseError, ScanStep};
use super::query::Query;
use super::resume_point::{NotResumable, ResumePoint};
use super::version::Version;

/// The events of one watch on their way to its caller.
#[derive(Debug)]
pub(super) struct Relay {
    encoding: Encoding,
    scanner: EventScanner,
    resume_point: ResumePoint,
    suppresses_bookmarks: bool,
    event_bytes_max: usize,
    /// The beginning of an incomplete event.
    partial: BytesMut,
    /// Column definitions of a suppressed bookmark, for the first Table that is passed on.
    columns: Option<Bytes>,
    /// True if a Table was passed on. Later ones have no column definitions.
    has_shown_columns: bool,
    reservation: Reservation,
    mode: PassMode,
    /// True if the last event was suppressed. The bytes between it and the next event are suppressed too.
    is_suppressed: bool,
    /// True if the bytes passed on so far do not end with the end of a line.
    is_line_open: bool,
}

/// The treatment of the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassMode {
    /// They are scanned for events.
    Events,
    /// They belong to an event that is too large, and are passed on as they come.
    Large,
    /// They are no events, and are passed on as they come.
    Anything,
}

/// The bytes to pass on: a part of the current piece where possible, or else a copy.
enum RelayOutput {
    Nothing,
    Part(Range<usize>),
    Copy(BytesMut),
}

impl Relay {
    /// Makes a relay for the answer to `query`. It buffers no event that is larger than `event_bytes_max`.
    pub(super) fn new(
        encoding: Encoding,
        query: &Query,
        event_bytes_max: usize,
        budget: &BufferBudget,
    ) -> Self {
        Self {
            encoding,
            scanner: EventScanner::new(encoding),
            resume_point: ResumePoint::new(query.start.clone()),
            suppresses_bookmarks: !query.bookmarks,
            event_bytes_max,
            partial: BytesMut::new(),
            columns: None,
            has_shown_columns: false,
            reservation: budget.reserve(),
            mode: PassMode::Events,
            is_suppressed: false,
            is_line_open: false,
        }
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// Takes the next bytes of the stream. Returns the bytes to pass on.
    pub(super) fn pass(&mut self, piece: &Bytes) -> Bytes {
        let mut passed = RelayOutput::Nothing;
        let mut at = 0;
        while at < piece.len() {
            let step = match self.mode {
                PassMode::Anything => ScanStep::Between(piece.len() - at),
                PassMode::Events | PassMode::Large => match self.scanner.step(&piece[at..]) {
                    Ok(step) => step,
                    Err(EventParseError) => {
                        self.give_up(NotResumable::NotAnEvent, PassMode::Anything, piece, &mut passed);
                        continue;
                    }
                },
            };
            at = self.step(step, piece, at, &mut passed);
        }
        let passed = passed.into_bytes(piece);
        if let Some(last) = passed.last() {
            self.is_line_open = *last != b'\n';
        }
        passed
    }

    /// The remaining bytes, after the stream has ended cleanly.
    pub(super) fn rest(&mut self) -> Bytes {
        self.reservation.release();
        std::mem::take(&mut self.partial).freeze()
    }

    /// The version after which the watch can be resumed.
    ///
    /// # Errors
    /// The reason why it cannot be resumed.
    pub(super) fn resume_point(&self) -> Result<&Version, NotResumable> {
        self.resume_point.version()
    }

    /// Returns true if only complete events were passed on.
    pub(super) fn is_between_events(&self) -> bool {
        self.mode == PassMode::Events
    }

    /// Continues with a stream that begins at the resume point. The incomplete event is dropped. Returns the
    /// bytes to pass on first, which end an open line.
    pub(super) fn resume(&mut self) -> Bytes {
        self.scanner = EventScanner::new(self.encoding);
        let _dropped = self.rest();
        self.is_suppressed = false;
        self.end_line()
    }

    /// Ends the watch with an ERROR event that contains `status`. Returns the bytes to pass on.
    pub(super) fn fail(&mut self, status: &[u8]) -> Bytes {
        let _dropped = self.rest();
        self.resume_point.give_up(NotResumable::ErrorEvent);
        let mut passed = BytesMut::from(self.end_line());
        passed.extend_from_slice(&self.encoding.error_event(status));
        passed.freeze()
    }

    /// The end of an open line, in JSON.
    fn end_line(&mut self) -> Bytes {
        let is_open = std::mem::take(&mut self.is_line_open) && self.encoding == Encoding::Json;
        Bytes::from_static(if is_open { b"\n" } else { b"" })
    }

    /// Handles a step at `at`. Returns the position of the next one.
    fn step(&mut self, step: ScanStep, piece: &Bytes, at: usize, passed: &mut RelayOutput) -> usize {
        match step {
            ScanStep::Between(length) => {
                if !self.is_suppressed {
                    passed.part(piece, at..at + length);
                }
                at + length
            }
            ScanStep::Within(length) | ScanStep::End(length) if self.mode == PassMode::Large => {
                passed.part(piece, at..at + length);
                if matches!(step, ScanStep::End(_)) {
                    self.mode = PassMode::Events;
                    self.is_suppressed = false;
                }
                at + length
            }
            ScanStep::Within(length) | ScanStep::End(length) if !self.fits(length) => {
                self.give_up(NotResumable::TooLarge, PassMode::Large, piece, passed);
                self.step(step, piece, at, passed)
            }
            ScanStep::Within(length) if !self.reservation.resize(self.partial.len() + length) => {
                self.give_up(NotResumable::OverBudget, PassMode::Large, piece, passed);
                self.step(step, piece, at, passed)
            }
            ScanStep::Within(length) => {
                self.partial.extend_from_slice(&piece[at..at + length]);
                at + length
            }
            ScanStep::End(length) => {
                self.event(piece, at..at + length, passed);
                at + length
            }
        }
    }

    fn fits(&self, more: usize) -> bool {
        self.partial.len() + more <= self.event_bytes_max
    }

    /// Passes on what is buffered, and gives up resuming the watch.
    fn give_up(&mut self, reason: NotResumable, mode: PassMode, piece: &Bytes, passed: &mut RelayOutput) {
        self.resume_point.give_up(reason);
        self.mode = mode;
        passed.bytes(piece, &self.rest());
    }

    /// Handles the end of an event: the buffered bytes, and a part of `piece`.
    fn event(&mut self, piece: &Bytes, place: Range<usize>, passed: &mut RelayOutput) {
        if self.partial.is_empty() {
            if self.is_passed_on(&piece[place.clone()], piece, passed) {
                passed.part(piece, place);
            }
        } else {
            self.partial.extend_from_slice(&piece[place]);
            let event = std::mem::take(&mut self.partial);
            if self.is_passed_on(&event, piece, passed) {
                passed.bytes(piece, &event);
            }
        }
        self.reservation.release();
    }

    /// Reads a complete event. Returns whether it is to be passed on unchanged.
    fn is_passed_on(&mut self, event: &[u8], piece: &Bytes, passed: &mut RelayOutput) -> bool {
        self.is_suppressed = false;
        let Ok(read) = self.encoding.read(event) else {
            self.resume_point.give_up(NotResumable::NotAnEvent);
            return true;
        };
        self.resume_point.advance(&read);
        let columns = read.columns.as_ref();
        if read.kind == EventKind::Bookmark && self.suppresses_bookmarks {
            self.is_suppressed = true;
            if let Some(columns) = columns.filter(|columns| !columns.empty && !self.has_shown_columns) {
                self.columns = Some(Bytes::copy_from_slice(&event[columns.place.clone()]));
            }
            return false;
        }
        let Some(columns) = columns else { return true };
        self.has_shown_columns = true;
        let Some(kept) = self.columns.take().filter(|_| columns.empty) else { return true };
        passed.bytes(piece, &event[..columns.place.start]);
        passed.bytes(piece, &kept);
        passed.bytes(piece, &event[columns.place.end..]);
        false
    }
}

impl RelayOutput {
    fn part(&mut self, piece: &Bytes, part: Range<usize>) {
        match self {
            Self::Nothing => *self = Self::Part(part),
            Self::Part(before) if before.end == part.start => before.end = part.end,
            Self::Part(_) | Self::Copy(_) => self.bytes(piece, &piece[part]),
        }
    }

    fn bytes(&mut self, piece: &Bytes, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        match self {
            Self::Nothing => *self = Self::Copy(bytes.into()),
            Self::Part(before) => {
                let mut copy = BytesMut::from(&piece[before.clone()]);
                copy.extend_from_slice(bytes);
                *self = Self::Copy(copy);
            }
            Self::Copy(copy) => copy.extend_from_slice(bytes),
        }
    }

    fn into_bytes(self, piece: &Bytes) -> Bytes {
        match self {
            Self::Nothing => Bytes::new(),
            Self::Part(part) => piece.slice(part),
            Self::Copy(copy) => copy.freeze(),
        }
    }
}

#[cfg(test)]
mod tests;
