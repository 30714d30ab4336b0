//! The fuzz target of the text of exports.

use crate::export::{ExportReader, ExportWriter, NotAnExport};
use crate::layout::Place;

/// Random inputs that `make test` tries beside the corpus. `make fuzz` sets another number by the environment.
const ITERATIONS: usize = 2_000;

/// Most bytes that the reader gets at once.
const PIECE_BYTES: usize = 100;

/// A text that is read has the records that are written as these lines.
#[test]
fn exports() {
    bolero::check!().with_iterations(ITERATIONS).for_each(|bytes: &[u8]| {
        let (mut reader, mut found) = (ExportReader::default(), Vec::new());
        for piece in bytes.chunks(PIECE_BYTES) {
            let read = reader.read(piece, |place, record| {
                found.push((place.to_string(), record.to_vec()));
                Ok::<_, NotAnExport>(())
            });
            if read.is_err() {
                return;
            }
        }
        let Ok((header, summary)) = reader.end() else { return };
        let mut out = Vec::new();
        let mut writer = ExportWriter::begin(&header.trust_domain, &header.taken, &mut out);
        for (path, record) in &found {
            writer.record(&Place::parse(path).unwrap(), record, &mut out).unwrap();
        }
        assert_eq!(writer.end(&mut out), summary);
    });
}
