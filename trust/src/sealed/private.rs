//! Reads files that no other user may read or replace.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Permissions that only the owner may have.
const OF_OTHERS: u32 = 0o077;

/// The permission that the group may have on a file of root: Kubernetes mounts a Secret so for a pod's group.
const GROUP_READS: u32 = 0o040;

/// The reason why a file was not read.
#[derive(Debug, thiserror::Error)]
pub enum NotPrivate {
    /// The file is missing, or this user may not read it.
    #[error("cannot read {}", .0.display())]
    Io(PathBuf, #[source] io::Error),
    /// Another user owns the file and could replace it.
    #[error("{} belongs to user {owner}; it must be this user's or root's", path.display())]
    Owner {
        /// The path of the file.
        path: PathBuf,
        /// The user id of its owner.
        owner: u32,
    },
    /// Other users may read or write the file.
    #[error("others may use {shown} (mode {mode:03o}), run: chmod 600 {shown}", shown = path.display())]
    Mode {
        /// The path of the file.
        path: PathBuf,
        /// The permission bits of the file.
        mode: u32,
    },
    /// The file is larger than expected.
    #[error("{} is larger than {bytes_max} bytes", path.display())]
    TooLarge {
        /// The path of the file.
        path: PathBuf,
        /// The largest expected size, in bytes.
        bytes_max: u64,
    },
    /// The file is not UTF-8.
    #[error("{} is not text", .0.display())]
    NotText(PathBuf),
}

/// Reads the text of a file that belongs to this user or root, and is closed to others.
pub(super) fn read(path: &Path, bytes_max: u64) -> Result<String, NotPrivate> {
    let failed = |error| NotPrivate::Io(path.to_owned(), error);
    let file = File::open(path).map_err(failed)?;
    // Metadata of the open file, which nobody can replace any more.
    let found = file.metadata().map_err(failed)?;
    let this = rustix::process::geteuid().as_raw();
    is_private(path, found.uid(), found.mode() & 0o777, this)?;
    let mut bytes = Vec::new();
    file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes).map_err(failed)?;
    if bytes.len() as u64 > bytes_max {
        return Err(NotPrivate::TooLarge { path: path.to_owned(), bytes_max });
    }
    String::from_utf8(bytes).map_err(|_| NotPrivate::NotText(path.to_owned()))
}

fn is_private(path: &Path, owner: u32, mode: u32, this: u32) -> Result<(), NotPrivate> {
    if owner != this && owner != 0 {
        return Err(NotPrivate::Owner { path: path.to_owned(), owner });
    }
    let permitted = if owner == 0 { GROUP_READS } else { 0 };
    if mode & OF_OTHERS & !permitted != 0 {
        return Err(NotPrivate::Mode { path: path.to_owned(), mode });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_is_this_users_or_roots_and_closed_to_others() {
        const US: u32 = 1000;
        for (owner, mode, is_taken) in [
            (US, 0o600, true),
            (US, 0o400, true),
            (US, 0o640, false),
            (US, 0o604, false),
            (US, 0o620, false),
            (0, 0o400, true),
            (0, 0o440, true),
            (0, 0o444, false),
            (0, 0o460, false),
            (1001, 0o600, false),
        ] {
            let judged = is_private(Path::new("key"), owner, mode, US);
            assert_eq!(judged.is_ok(), is_taken, "{owner} {mode:o}");
        }
    }

    #[test]
    fn a_file_is_read_up_to_the_expected_size() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("key");
        let written = |bytes: &[u8]| {
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
            read(&path, 4)
        };
        assert_eq!(written(b"").unwrap(), "");
        assert_eq!(written(b"four").unwrap(), "four");
        assert!(matches!(written(b"fours"), Err(NotPrivate::TooLarge { bytes_max: 4, .. })));
        assert!(matches!(written(b"longer"), Err(NotPrivate::TooLarge { bytes_max: 4, .. })));
        assert!(matches!(written(&[0xff]), Err(NotPrivate::NotText(_))));
    }
}
