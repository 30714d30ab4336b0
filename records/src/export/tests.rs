//! Tests of the text: what is written is read, and nothing else.

use super::*;
use crate::layout::{Place, SCHEMA};

const RECORDS: [(&str, &str); 4] = [
    ("r/agents/edge-a/one", r#"{"serial":"1","newer":{"a":[1.50,null]}}"#),
    ("r/tokens/\u{e9}\"t", r#"{"used":null}"#),
    ("w/clusters/edge-a", r#"{"labels":{"b":"\u00e9","a":"2"}}"#),
    ("w/seen/edge-a", "1795770257"),
];

#[test]
fn records_are_read_as_they_were_written() {
    let (text, summary) = written(&RECORDS);

    for size in [1, 7, text.len()] {
        let (found, header, read) = read_in_pieces(&text, size).unwrap();
        assert_eq!(found, RECORDS.map(|(path, record)| (path.to_owned(), record.to_owned())), "{size}");
        assert_eq!((header.schema, header.trust_domain.as_str()), (SCHEMA, "example.org"));
        assert_eq!(read, summary);
    }
}

#[test]
fn records_in_another_order_are_not_written() {
    let mut out = Vec::new();
    let mut writer = ExportWriter::begin("example.org", "now", &mut out);
    let mut put = |path| writer.record(&Place::parse(path).unwrap(), b"1", &mut out);

    put("w/seen/b").unwrap();
    assert!(matches!(put("w/seen/a"), Err(NotARecord::OutOfOrder(_))));
    assert!(matches!(put("w/seen/b"), Err(NotARecord::OutOfOrder(_))));
}

#[test]
fn a_record_that_is_no_json_is_named() {
    let mut out = Vec::new();
    let mut writer = ExportWriter::begin("example.org", "now", &mut out);
    for bad in [&b"no record"[..], b"", b"1 2", b"\"\xff\""] {
        let refused = writer.record(&Place::parse("w/seen/a").unwrap(), bad, &mut out);
        assert_eq!(refused.unwrap_err().to_string(), "w/seen/a is no JSON");
    }
}

/// A record that a person has repaired by hand.
#[test]
fn line_ends_within_a_record_become_spaces() {
    let (text, _) = written(&[("w/seen/a", "{\n  \"a\": 1\r\n}\n")]);

    let (found, ..) = read_in_pieces(&text, 64).unwrap();

    assert_eq!(found[0].1, "{   \"a\": 1  } ");
}

#[test]
fn no_part_of_an_export_passes_for_all_of_it() {
    let (text, _) = written(&RECORDS);
    for length in 0..text.len() {
        assert!(read_in_pieces(&text[..length], 64).is_err(), "{length} of {}", text.len());
    }
    let whole_lines = text.iter().enumerate().filter(|(_, byte)| **byte == b'\n').map(|(at, _)| at + 1);
    let ends: Vec<usize> = whole_lines.collect();
    assert_eq!(refused(&text[..ends[2]]), NotAnExport::CutOff(3));
    assert_eq!(refused(&text[..text.len() - 1]), NotAnExport::CutOff(5));
    let without_one = [&text[..ends[1]], &text[ends[2]..]].concat();
    assert_eq!(refused(&without_one), NotAnExport::OtherCount { found: 3, expected: 4 });
    assert_eq!(refused(&[&text[..], b"\n"].concat()), NotAnExport::GoesOn(7));
    assert_eq!(refused(&[&text[..], b"x"].concat()), NotAnExport::GoesOn(7));
}

/// The time in the first line is the only part that may differ.
#[test]
fn every_changed_byte_of_a_record_is_noticed() {
    let (text, _) = written(&RECORDS);
    let first = text.iter().position(|byte| *byte == b'\n').unwrap() + 1;
    for at in first..text.len() {
        for bit in 0..8 {
            let mut changed = text.clone();
            changed[at] ^= 1 << bit;
            assert!(read_in_pieces(&changed, text.len()).is_err(), "byte {at}, bit {bit}");
        }
    }
    let other = String::from_utf8(text).unwrap().replace(r#""serial":"1""#, r#""serial":"2""#);
    assert_eq!(refused(other.as_bytes()), NotAnExport::OtherDigest);
}

#[test]
fn an_export_of_a_newer_release_is_refused_with_its_version() {
    let (text, _) = written(&RECORDS);
    let text = String::from_utf8(text).unwrap();
    let newer = text.replacen(r#"{"tomboloRecords":1,"#, r#"{"tomboloRecords":2,"x":1,"#, 1);
    let what = NotAnExport::Newer { what: "format", found: 2, known: FORMAT };
    assert_eq!(refused(newer.as_bytes()), what);
    let newer = text.replacen(r#""schema":1"#, r#""schema":9"#, 1);
    assert_eq!(refused(newer.as_bytes()), NotAnExport::Newer { what: "schema", found: 9, known: SCHEMA });
}

#[test]
fn a_file_of_another_kind_is_no_export() {
    for other in [&b""[..], b"redb\x1a\x0a\xa9\x0d\x0a", b"apiVersion: v1\n", b"{}\n", b"1\n"] {
        assert_eq!(refused(other), NotAnExport::NoHeader, "{other:?}");
    }
}

#[test]
fn a_line_is_limited_to_the_byte() {
    let overhead = before_record("w/seen/a").len() + 2;
    let record = |length: usize| format!("\"{}\"", "x".repeat(length - overhead - 2));
    let (text, _) = written(&[("w/seen/a", &record(LINE_BYTES_MAX))]);
    assert!(read_in_pieces(&text, text.len()).is_ok());

    let mut out = Vec::new();
    let mut writer = ExportWriter::begin("example.org", "now", &mut out);
    let place = Place::parse("w/seen/a").unwrap();
    let refused_here = writer.record(&place, record(LINE_BYTES_MAX + 1).as_bytes(), &mut out);
    assert!(matches!(refused_here, Err(NotARecord::TooLarge(_))));
    assert_eq!(refused(&out), NotAnExport::Damaged(2));
}

fn written(records: &[(&str, &str)]) -> (Vec<u8>, Summary) {
    let mut out = Vec::new();
    let mut writer = ExportWriter::begin("example.org", "2026-11-27T09:04:17Z", &mut out);
    for (path, record) in records {
        writer.record(&Place::parse(path).unwrap(), record.as_bytes(), &mut out).unwrap();
    }
    let summary = writer.end(&mut out);
    (out, summary)
}

type Read = (Vec<(String, String)>, Header, Summary);

fn read_in_pieces(text: &[u8], size: usize) -> Result<Read, NotAnExport> {
    let (mut reader, mut found) = (ExportReader::default(), Vec::new());
    for piece in text.chunks(size) {
        reader.read(piece, |place, record| {
            found.push((place.to_string(), String::from_utf8_lossy(record).into_owned()));
            Ok::<_, NotAnExport>(())
        })?;
    }
    let (header, summary) = reader.end()?;
    Ok((found, header, summary))
}

fn refused(text: &[u8]) -> NotAnExport {
    read_in_pieces(text, 100).unwrap_err()
}
