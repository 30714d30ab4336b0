//! Reports a test that cannot run on this machine, so that it does not pass silently.

use std::env;
use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;

/// The environment variable that names the file in which skipped tests are counted.
pub const SKIP_LOG: &str = "TOMBOLO_SKIP_LOG";

/// Reports that a test was not run, with the reason: on stderr, past the capture of test output, and as a
/// line of the file that `TOMBOLO_SKIP_LOG` names. The test returns after this.
///
/// # Panics
/// If `TOMBOLO_SKIP_LOG` is not set or cannot be written. Then nobody would count the skip, and the test
/// fails instead.
pub fn skip(test_name: &str, reason: &str) {
    let log = env::var_os(SKIP_LOG);
    let line = record(log.as_deref().map(Path::new), test_name, reason);
    let _ = io::stderr().write_all(line.as_bytes()); // The file is what counts.
}

fn record(log: Option<&Path>, test_name: &str, reason: &str) -> String {
    let reason = reason.split_whitespace().collect::<Vec<_>>().join(" "); // One line per test.
    let line = format!("SKIPPED {test_name}: {reason}\n");
    let Some(log) = log.filter(|path| !path.as_os_str().is_empty()) else {
        panic!("{test_name} cannot run here: {reason}. Under `make test` it would be counted as skipped");
    };
    // One write with O_APPEND, so that lines of tests that run at once do not mix.
    let written = OpenOptions::new().create(true).append(true).open(log);
    if let Err(error) = written.and_then(|mut file| file.write_all(line.as_bytes())) {
        panic!("{test_name} cannot run here ({reason}), and {} cannot be written: {error}", log.display());
    }
    line
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::panic::catch_unwind;

    use super::record;

    #[test]
    fn each_skipped_test_is_a_line_of_the_log() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("skipped");

        record(Some(&log), "one", "no network\n namespaces");
        record(Some(&log), "two", "not root");

        assert_eq!(
            fs::read_to_string(log).unwrap(),
            "SKIPPED one: no network namespaces\nSKIPPED two: not root\n"
        );
    }

    #[test]
    fn without_a_log_a_skipped_test_fails() {
        let panic = catch_unwind(|| record(None, "one", "not root")).unwrap_err();

        let text = panic.downcast_ref::<String>().unwrap();
        assert_eq!(text, "one cannot run here: not root. Under `make test` it would be counted as skipped");
    }

    #[test]
    fn a_log_that_cannot_be_written_fails_the_test() {
        let folder = tempfile::tempdir().unwrap();
        let log = folder.path().join("absent/skipped");

        assert!(catch_unwind(|| record(Some(&log), "one", "not root")).is_err());
    }
}
