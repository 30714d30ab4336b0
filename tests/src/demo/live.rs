//! Output of commands that run on, printed line by line with the time at which each line came.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::DemoError;
use super::progress::Progress;

/// Pause between two looks at the outputs.
const LOOK_EVERY: Duration = Duration::from_millis(10);

/// The output of a command that runs, in a file.
#[derive(Debug)]
pub(super) struct LiveOutput {
    label: &'static str,
    path: PathBuf,
    shown: usize,
}

impl LiveOutput {
    /// An output of which nothing was shown yet; its lines are printed behind the label.
    pub(super) fn new(label: &'static str, path: &Path) -> Self {
        Self { label, path: path.to_owned(), shown: 0 }
    }

    /// Returns true if one of the complete lines so far is accepted.
    pub(super) fn has(&self, is_it: impl Fn(&str) -> bool) -> bool {
        let text = self.text();
        text[..complete(&text)].lines().any(is_it)
    }

    /// Counts the complete lines with this beginning.
    pub(super) fn count(&self, beginning: &str) -> usize {
        let text = self.text();
        text[..complete(&text)].lines().filter(|line| line.starts_with(beginning)).count()
    }

    /// The first complete line with this beginning; empty if there is none.
    pub(super) fn line(&self, beginning: &str) -> String {
        let text = self.text();
        let found = text[..complete(&text)].lines().find(|line| line.starts_with(beginning));
        found.unwrap_or_default().to_owned()
    }

    /// Prints the lines that are complete and were not printed, and returns their number.
    pub(super) fn show(&mut self, progress: &Progress) -> usize {
        let text = self.text();
        let new = &text[self.shown..complete(&text)];
        for line in new.lines() {
            progress.live(self.label, line);
        }
        self.shown += new.len();
        new.lines().count()
    }

    // A file that is not there yet is empty.
    fn text(&self) -> String {
        fs::read(&self.path).map(|bytes| String::from_utf8_lossy(&bytes).into_owned()).unwrap_or_default()
    }
}

/// Shows what comes until the outputs are as they should be, which the claim describes.
pub(super) async fn until(
    outputs: &mut [&mut LiveOutput],
    progress: &Progress,
    limit: Duration,
    claim: &str,
    is_so: impl Fn(&[&mut LiveOutput]) -> bool,
) -> Result<(), DemoError> {
    let deadline = Instant::now() + limit;
    loop {
        // First what is so: it is then shown, too.
        let so = is_so(outputs);
        for output in &mut *outputs {
            output.show(progress);
        }
        if so {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let found = outputs.iter().map(|output| format!("{}:\n{}", output.label, output.text()));
            let found = found.collect::<Vec<_>>().join("\n");
            return Err(DemoError::NotShown { claim: format!("{claim} within {limit:?}"), found });
        }
        sleep(LOOK_EVERY).await;
    }
}

/// The number of bytes up to the end of the last complete line.
fn complete(text: &str) -> usize {
    text.rfind('\n').map_or(0, |end| end + 1)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use super::LiveOutput;
    use crate::demo::progress::Progress;

    #[test]
    fn a_line_is_shown_once_and_when_it_is_complete() {
        let folder = tempfile::tempdir().unwrap();
        let (path, progress) = (folder.path().join("out"), Progress::new(Path::new("/nowhere")));
        let mut output = LiveOutput::new("watch", &path);
        assert_eq!(output.show(&progress), 0, "there is no file yet");

        fs::write(&path, "one\ntw").unwrap();
        assert_eq!((output.show(&progress), output.show(&progress)), (1, 0));
        assert!(!output.has(|line| line == "tw"));
        fs::write(&path, "one\ntwo\nthree\n").unwrap();

        assert!(output.has(|line| line == "two"));
        assert_eq!((output.show(&progress), output.show(&progress)), (2, 0));
    }
}
