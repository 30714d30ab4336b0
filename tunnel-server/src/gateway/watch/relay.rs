//! Passes a watch's events on, complete, and knows from where the watch could go on. Pure.
//!
//! Nothing of an event is passed on before all of it is there, so that whoever loses the rest of the stream has lost no
//! half event. What is larger than may be held is passed on as it comes, and makes the watch one that ends with its
//! tunnel. Bookmarks that only we asked for are kept back.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::buffer_budget::{BufferBudget, Reservation};
use super::event::{Encoding, EventKind, EventParseError, ScanStep, Scanner};
use super::query::Query;
use super::resume_point::{NotResumable, ResumePoint, Version};

/// The events of one watch on their way to its caller.
#[derive(Debug)]
pub(super) struct Relay {
    encoding: Encoding,
    scanner: Scanner,
    resume_point: ResumePoint,
    keeps_bookmarks_back: bool,
    event_bytes_max: usize,
    /// How an event begins whose end has not come.
    partial: BytesMut,
    /// Column definitions that came with a bookmark that was kept back, for the first Table that is not.
    columns: Option<Bytes>,
    /// A Table was passed on, with which a caller has got all definitions that it will ever get.
    has_shown_columns: bool,
    reservation: Reservation,
    mode: PassMode,
    /// The last event was kept back, and what stands behind it will be too.
    kept_back: bool,
    /// What was passed on does not end with an event's last byte and a line's.
    line_is_open: bool,
}

/// What is done with the next bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum PassMode {
    /// They are taken for events.
    Events,
    /// An event that is too large is passed on as it comes, to its end.
    Large,
    /// They are no events, and are passed on.
    Anything,
}

/// What of a piece is passed on: a part of it, as long as that will do.
enum RelayOutput {
    Nothing,
    Part(Range<usize>),
    Copy(BytesMut),
}

impl Relay {
    /// Passes on events of an answer to `query`, holding none that is larger than `event_bytes_max`.
    pub(super) fn new(
        encoding: Encoding,
        query: &Query,
        event_bytes_max: usize,
        budget: &BufferBudget,
    ) -> Self {
        Self {
            encoding,
            scanner: Scanner::of(encoding),
            resume_point: ResumePoint::of(query.start.clone()),
            keeps_bookmarks_back: !query.bookmarks,
            event_bytes_max,
            partial: BytesMut::new(),
            columns: None,
            has_shown_columns: false,
            reservation: budget.reserve(),
            mode: PassMode::Events,
            kept_back: false,
            line_is_open: false,
        }
    }

    pub(super) fn encoding(&self) -> Encoding {
        self.encoding
    }

    /// The next bytes that came, and what of them, and of those before, is to be passed on.
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
            self.line_is_open = *last != b'\n';
        }
        passed
    }

    /// The rest, where the stream came to a clean end.
    pub(super) fn rest(&mut self) -> Bytes {
        self.reservation.release();
        std::mem::take(&mut self.partial).freeze()
    }

    /// The version behind which the watch can be begun again.
    pub(super) fn resume_point(&self) -> Result<&Version, NotResumable> {
        self.resume_point.version()
    }

    /// Whether all that was passed on are complete events.
    pub(super) fn is_between_events(&self) -> bool {
        self.mode == PassMode::Events
    }

    /// Begins anew with a stream that was begun at the safe point; what came of an event is forgotten. What is to be
    /// passed on before anything else: a line's end.
    pub(super) fn begin_again(&mut self) -> Bytes {
        self.scanner = Scanner::of(self.encoding);
        let _forgotten = self.rest();
        self.kept_back = false;
        self.end_line()
    }

    /// Ends the watch with an ERROR event about `status`.
    pub(super) fn fail(&mut self, status: &[u8]) -> Bytes {
        let _forgotten = self.rest();
        self.resume_point.never(NotResumable::TerminationReason);
        let mut passed = BytesMut::from(self.end_line());
        passed.extend_from_slice(&self.encoding.error_event(status));
        passed.freeze()
    }

    fn end_line(&mut self) -> Bytes {
        let is_open = std::mem::take(&mut self.line_is_open) && self.encoding == Encoding::Json;
        Bytes::from_static(if is_open { b"\n" } else { b"" })
    }

    /// Does what a step at `at` asks for, and says where the next one begins.
    fn step(&mut self, step: ScanStep, piece: &Bytes, at: usize, passed: &mut RelayOutput) -> usize {
        match step {
            ScanStep::Between(length) => {
                if !self.kept_back {
                    passed.part(piece, at..at + length);
                }
                at + length
            }
            ScanStep::Within(length) | ScanStep::End(length) if self.mode == PassMode::Large => {
                passed.part(piece, at..at + length);
                if matches!(step, ScanStep::End(_)) {
                    self.mode = PassMode::Events;
                    self.kept_back = false;
                }
                at + length
            }
            ScanStep::Within(length) | ScanStep::End(length) if !self.fits(length) => {
                self.give_up(NotResumable::TooLarge, PassMode::Large, piece, passed);
                self.step(step, piece, at, passed)
            }
            ScanStep::Within(length) if !self.reservation.resize(self.partial.len() + length) => {
                self.give_up(NotResumable::NoRoom, PassMode::Large, piece, passed);
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

    /// From here on the watch ends with its tunnel.
    fn give_up(&mut self, reason: NotResumable, mode: PassMode, piece: &Bytes, passed: &mut RelayOutput) {
        self.resume_point.never(reason);
        self.mode = mode;
        passed.bytes(piece, &self.rest());
    }

    /// An event has become complete: what was held, and a part of `piece`.
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

    /// Takes note of an event, and says whether it is to be passed on as it is.
    fn is_passed_on(&mut self, event: &[u8], piece: &Bytes, passed: &mut RelayOutput) -> bool {
        self.kept_back = false;
        let Ok(read) = self.encoding.read(event) else {
            self.resume_point.never(NotResumable::NotAnEvent);
            return true;
        };
        self.resume_point.advance(&read);
        let columns = read.columns.as_ref();
        if read.kind == EventKind::Bookmark && self.keeps_bookmarks_back {
            self.kept_back = true;
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
