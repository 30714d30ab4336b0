//! Reads complete files up to a limit of bytes.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

/// Reads the file at `path`; `None` if it has more than `bytes_max`. Blocks.
///
/// # Errors
///
/// The file cannot be opened or read.
pub fn read_bounded(path: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = Vec::new();
    // One byte more than allowed, to detect a file that is too large.
    File::open(path)?.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes)?;
    Ok((bytes.len() as u64 <= bytes_max).then_some(bytes))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_up_to_the_limit_and_not_one_byte_beyond() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        assert_eq!(read_bounded(&path, 3).unwrap_err().kind(), io::ErrorKind::NotFound);
        std::fs::write(&path, b"abc").unwrap();

        assert_eq!(read_bounded(&path, 3).unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(read_bounded(&path, u64::MAX).unwrap().as_deref(), Some(&b"abc"[..]));
        assert_eq!(read_bounded(&path, 2).unwrap(), None);
    }
}
