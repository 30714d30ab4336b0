//! The demo's output to its terminal.

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

/// Prints the demo's steps with the time since the start, and abbreviates the demo's folder.
#[derive(Debug)]
pub(super) struct Progress {
    began: Instant,
    folder: PathBuf,
}

/// The variable that replaces the demo's folder in printed commands. The first lines define it.
const FOLDER: &str = "$DEMO";
const INDENT: &str = "          ";

impl Progress {
    pub(super) fn new(folder: &Path) -> Self {
        Self { began: Instant::now(), folder: folder.to_owned() }
    }

    /// Prints a line about a step.
    pub(super) fn say(&self, text: &str) {
        print(&format!("[{:5.1} s] {text}\n", self.began.elapsed().as_secs_f64()));
    }

    /// The same with the time that it took.
    pub(super) fn done(&self, text: &str, since: Instant) {
        self.say(&format!("{text}, in {:.1} s", since.elapsed().as_secs_f64()));
    }

    /// A command that is run now.
    pub(super) fn command(&self, words: &str) {
        print(&format!("{INDENT}$ {}\n", self.shorten(words)));
    }

    /// Prints the output of a command.
    pub(super) fn output(&self, text: &str) {
        let lines: String = text.lines().map(|line| format!("{INDENT}  {line}\n")).collect();
        print(&self.shorten(&lines));
    }

    /// Prints lines unchanged, such as those to copy.
    pub(super) fn plain(&self, text: &str) {
        print(&format!("{text}\n"));
    }

    fn shorten(&self, text: &str) -> String {
        text.replace(&self.folder.display().to_string(), FOLDER)
    }
}

// A reader that has gone away does not end the demo: it must still clean up.
fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}
