//! Events in CBOR: a sequence of items (RFC 8742), each a map that contains its object.

use std::borrow::Cow;
use std::ops::Range;

use super::event::{Columns, Event, EventKind, EventParseError, ScanStep};

/// Deepest nesting of items that is accepted. The decoder of Kubernetes has the same limit.
const DEPTH_MAX: usize = 64;

/// The tag of self-described CBOR, with which Kubernetes begins each item (RFC 8949, section 3.4.6).
const SELF_DESCRIBED: [u8; 3] = [0xd9, 0xd9, 0xf7];

const BREAK: u8 = 31;

/// Finds the ends of CBOR items.
#[derive(Debug, Default)]
pub(super) struct CborScanner {
    /// The containers around the next item, the outermost first.
    open: Vec<Remaining>,
    /// The first bytes of an item, until its argument is complete.
    head: Vec<u8>,
    /// Number of bytes of a string that are still to come.
    string: u64,
}

/// The items of a container that are still to come.
#[derive(Debug)]
enum Remaining {
    Items(u64),
    UntilBreak,
}

/// The parsed head of an item.
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

    /// Begins an item. Returns whether the item is complete with its head.
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
            // The tagged item follows.
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

    /// Notes the end of an item. Returns whether it was the outermost one.
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
    /// Parses the head. `None` if bytes are missing.
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

/// Reads a complete event, which is one item.
pub(super) fn read(event: &[u8]) -> Result<Event, EventParseError> {
    let (mut kind, mut object) = (None, None);
    let mut reader = Reader { bytes: event, at: 0 };
    reader.map(|key, reader| {
        match key {
            b"type" => kind = Some(EventKind::parse(reader.text()?.ok_or(EventParseError)?)),
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

/// The kind of an object, if it is one.
pub(super) fn kind_of(object: &[u8]) -> Option<Cow<'_, str>> {
    let mut reader = Reader { bytes: object, at: 0 };
    let kind = CborObject::read(&mut reader).ok()?.kind?;
    (reader.at == object.len()).then(|| String::from_utf8_lossy(kind))
}

/// An ERROR event with `status`, a CBOR item.
pub(super) fn error_event(status: &[u8]) -> Vec<u8> {
    // A map of two entries, `type` and `object`. Kubernetes writes texts as byte strings.
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
                // Not parsed unless the object is a Table, because any object may have a field of this name.
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

    /// Says whether an object in a row of the Table ends the initial events.
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

/// Reads a sequence of items. Its recursion is bounded by the nesting of this module's own functions.
struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Reads a map. `entry` must read or skip each value. Null is an empty map.
    fn map(
        &mut self,
        mut entry: impl FnMut(&[u8], &mut Self) -> Result<(), EventParseError>,
    ) -> Result<(), EventParseError> {
        self.container(5, |reader| match reader.text()? {
            Some(key) => entry(key, reader),
            None => Err(EventParseError),
        })
    }

    /// Reads an array. `item` must read or skip each item. Null is an empty array.
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

    /// Reads a text, which may be written as a byte string, or null.
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

    /// Skips an item and returns its position.
    fn skip(&mut self) -> Result<Range<usize>, EventParseError> {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let ScanStep::End(length) = CborScanner::default().step(rest)? else { return Err(EventParseError) };
        self.at += length;
        Ok(self.at - length..self.at)
    }

    /// Reads the head of an item, after skipping its tags.
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
