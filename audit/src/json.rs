//! JSON on one line of printable ASCII, whatever characters the texts contain.

use std::io::{self, Write};

use serde::{Serialize, Serializer};
use serde_json::ser::Formatter;

/// Marks the end of a truncated text.
const ELLIPSIS: &str = "…";

/// A text of at most this many bytes; a longer one is cut, and ends with `…`.
pub(crate) struct Truncated<'a>(pub(crate) &'a str, pub(crate) usize);

/// Writes `value` without a line break. All but printable ASCII is escaped, so that the text can neither break lines nor
/// control a terminal.
pub(crate) fn ascii(value: &impl Serialize) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Vec::with_capacity(1024);
    value.serialize(&mut serde_json::Serializer::with_formatter(&mut bytes, Ascii))?;
    Ok(bytes)
}

struct Ascii;

impl Formatter for Ascii {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, writer: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some(at) = rest.find(|character: char| !matches!(character, ' '..='~')) {
            let (plain, other) = rest.split_at(at);
            writer.write_all(plain.as_bytes())?;
            let mut characters = other.chars();
            for unit in characters.next().into_iter().flat_map(|character| {
                let mut units = [0; 2];
                character.encode_utf16(&mut units).to_vec()
            }) {
                write!(writer, "\\u{unit:04x}")?;
            }
            rest = characters.as_str();
        }
        writer.write_all(rest.as_bytes())
    }
}

impl Serialize for Truncated<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(text, bytes_max) = *self;
        if text.len() <= bytes_max {
            return serializer.serialize_str(text);
        }
        let kept = text.floor_char_boundary(bytes_max.saturating_sub(ELLIPSIS.len()));
        serializer.collect_str(&format_args!("{}{ELLIPSIS}", &text[..kept]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_text_becomes_printable_ascii_and_is_read_back_unchanged() {
        let all: String = (0..=0x2100_u32).chain(0x1f600..0x1f610).filter_map(char::from_u32).collect();
        let line = ascii(&all).unwrap();
        assert!(line.iter().all(|byte| matches!(byte, b' '..=b'~')));
        assert_eq!(serde_json::from_slice::<String>(&line).unwrap(), all);
    }

    #[test]
    fn a_text_beyond_its_limit_is_cut_between_two_characters() {
        let cut = |text: &str, bytes_max| serde_json::to_value(Truncated(text, bytes_max)).unwrap();
        assert_eq!(cut("äöü", 6), "äöü");
        assert_eq!(cut("äöüx", 6), "ä…");
    }
}
