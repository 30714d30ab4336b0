//! Archives in the format of ustar (POSIX.1-1988), as far as images need them.

/// Everything in an archive comes in blocks of this size.
const BLOCK_BYTES: usize = 512;
/// The longest path and the longest target of a link that a header holds without its prefix.
const NAME_BYTES_MAX: usize = 100;

/// A tar archive in memory.
#[derive(Debug, Default)]
pub(super) struct Archive(Vec<u8>);

/// The kind of an entry, as the format's letter for it.
#[derive(Debug, Clone, Copy)]
#[repr(u8)]
enum Kind {
    File = b'0',
    Link = b'2',
    Folder = b'5',
}

impl Archive {
    /// Adds a file to the archive.
    pub(super) fn file(mut self, path: &str, mode: u32, content: &[u8]) -> Self {
        self.0.extend(header(path, Kind::File, mode, content.len(), ""));
        self.0.extend(content);
        self.0.resize(self.0.len().next_multiple_of(BLOCK_BYTES), 0);
        self
    }

    /// Adds a symbolic link to the archive.
    pub(super) fn link(mut self, path: &str, target: &str) -> Self {
        self.0.extend(header(path, Kind::Link, 0o777, 0, target));
        self
    }

    /// Adds a folder; its path ends with a slash.
    pub(super) fn folder(mut self, path: &str, mode: u32) -> Self {
        self.0.extend(header(path, Kind::Folder, mode, 0, ""));
        self
    }

    /// The archive's bytes, with the two empty blocks that end it.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.0.resize(self.0.len() + 2 * BLOCK_BYTES, 0);
        self.0
    }
}

/// # Panics
/// If a name is too long for this format.
fn header(path: &str, kind: Kind, mode: u32, bytes: usize, target: &str) -> [u8; BLOCK_BYTES] {
    assert!(path.len() <= NAME_BYTES_MAX && target.len() <= NAME_BYTES_MAX, "{path} → {target}");
    let mut block = [0; BLOCK_BYTES];
    let mut put = |at: usize, text: &str| block[at..at + text.len()].copy_from_slice(text.as_bytes());
    put(0, path);
    put(100, &format!("{mode:07o}"));
    put(108, "0000000"); // owner
    put(116, "0000000"); // group
    put(124, &format!("{bytes:011o}"));
    put(136, "00000000000"); // time
    put(148, "        "); // the checksum counts as if it were spaces
    put(157, target);
    put(257, "ustar\0");
    put(263, "00");
    block[156] = kind as u8;
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    block[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
    block
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::process::Command;

    use super::Archive;

    #[test]
    fn tar_unpacks_what_was_packed() {
        let folder = tempfile::tempdir().unwrap();
        let content: Vec<u8> = (0..1000_u32).map(|n| (n * n / 251) as u8).collect();
        let archive = Archive::default()
            .folder("bin/", 0o755)
            .file("bin/tool", 0o755, &content)
            .link("bin/other", "tool")
            .file("empty", 0o600, b"");
        let path = folder.path().join("a.tar");
        fs::write(&path, archive.finish()).unwrap();

        let tar = Command::new("tar").arg("-xf").arg(&path).arg("-C").arg(folder.path()).output().unwrap();

        assert!(tar.status.success() && tar.stderr.is_empty(), "{tar:?}");
        assert_eq!(fs::read(folder.path().join("bin/other")).unwrap(), content);
        assert_eq!(fs::read(folder.path().join("empty")).unwrap(), b"");
    }
}
