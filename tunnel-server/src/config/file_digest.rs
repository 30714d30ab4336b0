//! Digests of files that all servers of an installation have alike.

use aws_lc_rs::digest;
use proto::peering::FileDigest;

/// The SHA-256 of a file's content.
#[must_use]
pub fn file_digest(content: &[u8]) -> FileDigest {
    let digest = digest::digest(&digest::SHA256, content);
    let mut bytes = [0; 32];
    bytes.copy_from_slice(digest.as_ref());
    FileDigest(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The same as by `sha256sum`, with which people compare files.
    #[test]
    fn a_digest_is_the_one_that_other_programs_show() {
        let digest = file_digest(b"abc");
        assert_eq!(digest.to_string(), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    }
}
