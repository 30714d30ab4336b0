//! Events in CBOR: items behind each other (RFC 8742), each a map, its object an item in it.

use std::borrow::Cow;
use std::ops::Range;

use super::event::{Columns, Event, EventKind, EventParseError, ScanStep};

/// Items within items that are borne, as many as Kubernetes' decoder bears.
const DEPTH_MAX: usize = 64;

/// The tag that says "this is CBOR", with which Kubernetes begins each item (RFC 8949, section 3.4.6).
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

const BREAK: u8 = 31;

/// Finds the ends of items.
#[derive(Debug, Default)]
pub(super) struct CborScanner {
    /// What is open around the next item, the outermost first.
    open: Vec<Remaining>,
    /// An item's first bytes, as long as its argument is not complete.
    head: Vec<u8>,
    /// Bytes of a string that are still to come.
    string: u64,
}

/// How many items are still to come.
#[derive(Debug)]
enum Remaining {
    Items(u64),
    UntilBreak,
}

/// An item's first bytes, read.
struct ItemHead {
    major: u8,
    low: u8,
    argument: u64,
}

impl CborScanner {
    pub(super) fn step(&mut self, bytes: &[u8]) -> Result<ScanStep, EventParseError> {
        let mut at = 0;
        while at < bytes.len() {
            if self.string > 0 {
                let rest = bytes.len() - at;
                let taken = usize::try_from(self.string).unwrap_or(usize::MAX).min(rest);
                at += taken;
                self.string -= taken as u64;
                if self.string > 0 {
                    break;
                }
                if self.item_ended() {
                    return Ok(ScanStep::End(at));
                }
                continue;
            }
            self.head.push(bytes[at]);
            at += 1;
            let Some(head) = ItemHead::read(&self.head)? else { continue };
            self.head.clear();
            if self.begin(&head)? && self.item_ended() {
                return Ok(ScanStep::End(at));
            }
        }
        Ok(ScanStep::Within(bytes.len()))
    }

    /// Begins an item, and says whether that is all of it.
    fn begin(&mut self, head: &ItemHead) -> Result<bool, EventParseError> {
        let ItemHead { major, low, argument } = *head;
        match (major, low) {
            (2..=5, BREAK) => self.push(Remaining::UntilBreak)?,
            (2 | 3, _) => {
                self.string = argument;
                return Ok(argument == 0);
            }
            (4 | 5, _) if argument == 0 => return Ok(true),
            (4, _) => self.push(Remaining::Items(argument))?,
            (5, _) => self.push(Remaining::Items(argument.checked_mul(2).ok_or(EventParseError)?))?,
            // What it is the tag of follows.
            (6, _) => {}
            (7, BREAK) => {
                let Some(Remaining::UntilBreak) = self.open.pop() else { return Err(EventParseError) };
                return Ok(true);
            }
            _ => return Ok(true),
        }
        Ok(false)
    }

    fn push(&mut self, left: Remaining) -> Result<(), EventParseError> {
        if self.open.len() == DEPTH_MAX {
            return Err(EventParseError);
        }
        self.open.push(left);
        Ok(())
    }

    /// Notes that an item has ended, and says whether the outermost has.
    fn item_ended(&mut self) -> bool {
        loop {
            match self.open.last_mut() {
                None => return true,
                Some(Remaining::UntilBreak) => return false,
                Some(Remaining::Items(left)) => {
                    *left -= 1;
                    if *left > 0 {
                        return false;
                    }
                    self.open.pop();
                }
            }
        }
    }
}

impl ItemHead {
    /// `None` while bytes are lacking.
    fn read(bytes: &[u8]) -> Result<Option<Self>, EventParseError> {
        let Some((first, rest)) = bytes.split_first() else { return Ok(None) };
        let (major, low) = (first >> 5, first & 0x1f);
        let length = match low {
            0..=23 => return Ok(Some(Self { major, low, argument: low.into() })),
            24..=27 => 1 << (low - 24),
            BREAK if [2, 3, 4, 5, 7].contains(&major) => {
                return Ok(Some(Self { major, low, argument: 0 }));
            }
            _ => return Err(EventParseError),
        };
        let argument = rest.get(..length);
        let argument =
            argument.map(|bytes| bytes.iter().fold(0, |number, byte| number << 8 | u64::from(*byte)));
        Ok(argument.map(|argument| Self { major, low, argument }))
    }
}

/// What an event says of itself.
pub(super) fn read(event: &[u8]) -> Result<Event, EventParseError> {
    let (mut kind, mut object) = (None, None);
    let mut reader = Reader { bytes: event, at: 0 };
    reader.map(|key, reader| {
        match key {
            b"type" => kind = Some(EventKind::of(reader.text()?.ok_or(EventParseError)?)),
            b"object" => object = Some(CborObject::read(reader)?),
            _ => reader.skip().map(drop)?,
        }
        Ok(())
    })?;
    let (kind, object) = (kind.ok_or(EventParseError)?, object.ok_or(EventParseError)?);
    let mut ends_initial_events = object.metadata.ends_initial_events;
    if object.is_table() && kind == EventKind::Bookmark {
        ends_initial_events |= object.a_row_ends_initial_events(event)?;
    }
    let columns = object.columns.clone().filter(|_| object.is_table()).map(|place| Columns {
        empty: matches!(event[place.clone()], [0xf6] | [0x80] | [0x9f, 0xff]),
        place,
    });
    let version = object.metadata.version.map(|version| String::from_utf8_lossy(version).into());
    Ok(Event { kind, version, ends_initial_events, columns })
}

/// Of which kind an object is.
pub(super) fn kind_of(object: &[u8]) -> Option<Cow<'_, str>> {
    let mut reader = Reader { bytes: object, at: 0 };
    let kind = CborObject::read(&mut reader).ok()?.kind?;
    (reader.at == object.len()).then(|| String::from_utf8_lossy(kind))
}

/// An ERROR event about `status`, an item.
pub(super) fn error_event(status: &[u8]) -> Vec<u8> {
    // As Kubernetes writes it, texts are byte strings: a map of two, `type` and `object`.
    [&SELF_DESCRIBED, b"\xa2\x44type\x45ERROR\x46object".as_slice(), status].concat()
}

#[derive(Default)]
struct CborObject<'a> {
    kind: Option<&'a [u8]>,
    api_version: Option<&'a [u8]>,
    metadata: CborMetadata<'a>,
    columns: Option<Range<usize>>,
    rows: Option<Range<usize>>,
}

#[derive(Default)]
struct CborMetadata<'a> {
    version: Option<&'a [u8]>,
    ends_initial_events: bool,
}

impl<'a> CborObject<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, EventParseError> {
        let mut object = Self::default();
        reader.map(|key, reader| {
            match key {
                b"kind" => object.kind = reader.text()?,
                b"apiVersion" => object.api_version = reader.text()?,
                b"metadata" => object.metadata = CborMetadata::read(reader)?,
                // Unread until it is known that this is a Table: any object may have a field of this name.
                b"columnDefinitions" => object.columns = Some(reader.skip()?),
                b"rows" => object.rows = Some(reader.skip()?),
                _ => reader.skip().map(drop)?,
            }
            Ok(())
        })?;
        Ok(object)
    }

    fn is_table(&self) -> bool {
        self.kind == Some(b"Table")
            && self.api_version.is_some_and(|version| version.starts_with(b"meta.k8s.io/"))
    }

    fn a_row_ends_initial_events(&self, event: &'a [u8]) -> Result<bool, EventParseError> {
        let Some(place) = self.rows.clone() else { return Ok(false) };
        let mut reader = Reader { bytes: &event[..place.end], at: place.start };
        let mut any = false;
        reader.array(|reader| {
            reader.map(|key, reader| {
                match key {
                    b"object" => any |= Self::read(reader)?.metadata.ends_initial_events,
                    _ => reader.skip().map(drop)?,
                }
                Ok(())
            })
        })?;
        Ok(any)
    }
}

impl<'a> CborMetadata<'a> {
    fn read(reader: &mut Reader<'a>) -> Result<Self, EventParseError> {
        let mut metadata = Self::default();
        reader.map(|key, reader| {
            match key {
                b"resourceVersion" => metadata.version = reader.text()?,
                b"annotations" => reader.map(|key, reader| {
                    match key {
                        b"k8s.io/initial-events-end" => {
                            metadata.ends_initial_events = reader.text()? == Some(b"true")
                        }
                        _ => reader.skip().map(drop)?,
                    }
                    Ok(())
                })?,
                _ => reader.skip().map(drop)?,
            }
            Ok(())
        })?;
        Ok(metadata)
    }
}

/// Reads items, one behind the other. As deep as this module's functions call each other and no deeper.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads a map, whose values `entry` has to read, or to skip. Null is an empty one.
    fn map(
        &mut self,
        mut entry: impl FnMut(&[u8], &mut Self) -> Result<(), EventParseError>,
    ) -> Result<(), EventParseError> {
        self.container(5, |reader| match reader.text()? {
            Some(key) => entry(key, reader),
            None => Err(EventParseError),
        })
    }

    /// Reads an array, whose items `item` has to read, or to skip. Null is an empty one.
    fn array(
        &mut self,
        item: impl FnMut(&mut Self) -> Result<(), EventParseError>,
    ) -> Result<(), EventParseError> {
        self.container(4, item)
    }

    fn container(
        &mut self,
        wanted: u8,
        mut item: impl FnMut(&mut Self) -> Result<(), EventParseError>,
    ) -> Result<(), EventParseError> {
        match self.head()? {
            ItemHead { major: 7, low: 22, .. } => Ok(()),
            ItemHead { major, low: BREAK, .. } if major == wanted => {
                while self.bytes.get(self.at) != Some(&0xff) {
                    item(self)?;
                }
                self.at += 1;
                Ok(())
            }
            ItemHead { major, argument, .. } if major == wanted => (0..argument).try_for_each(|_| item(self)),
            _ => Err(EventParseError),
        }
    }

    /// Reads a text, which may be written as bytes, or null.
    fn text(&mut self) -> Result<Option<&'a [u8]>, EventParseError> {
        match self.head()? {
            ItemHead { major: 7, low: 22, .. } => Ok(None),
            ItemHead { major: 2 | 3, low: 0..=27, argument } => {
                let end = usize::try_from(argument).ok().and_then(|length| self.at.checked_add(length));
                let text = end.and_then(|end| self.bytes.get(self.at..end)).ok_or(EventParseError)?;
                self.at += text.len();
                Ok(Some(text))
            }
            _ => Err(EventParseError),
        }
    }

    /// Passes an item over, and says where it stands.
    fn skip(&mut self) -> Result<Range<usize>, EventParseError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let ScanStep::End(length) = CborScanner::default().step(rest)? else { return Err(EventParseError) };
        self.at += length;
        Ok(self.at - length..self.at)
    }

    /// Reads the first bytes of an item, and the tags before it.
    fn head(&mut self) -> Result<ItemHead, EventParseError> {
        loop {
            let rest = self.bytes.get(self.at..).unwrap_or_default();
            let rest = &rest[..rest.len().min(9)];
            let head = ItemHead::read(rest)?.ok_or(EventParseError)?;
            self.at += match head.low {
                24..=27 => 1 + (1 << (head.low - 24)),
                _ => 1,
            };
            if head.major != 6 {
                return Ok(head);
            }
        }
    }
}
