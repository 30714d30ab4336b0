//! The demo's output to its terminal.

use std::fs;
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

    /// A line that a command which runs on has written, or that was typed into it, with the time.
    pub(super) fn live(&self, label: &str, line: &str) {
        print(&format!(
            "[{:5.1} s]   {label:>5} | {}\n",
            self.began.elapsed().as_secs_f64(),
            self.shorten(line)
        ));
    }

    /// Prints a configuration file without its comments, so that it can be copied.
    pub(super) fn file(&self, path: &Path) -> io::Result<()> {
        let text = fs::read_to_string(path)?;
        let shown: String = without_comments(&text).map(|line| format!("{line}\n")).collect();
        print(&format!("{INDENT}# {}\n", self.shorten(&path.display().to_string())));
        self.output(&shown);
        Ok(())
    }

    /// Prints what is added to a file, as a command.
    pub(super) fn appended(&self, path: &Path, text: &str) {
        self.command(&format!("cat >>{} <<'EOF'", path.display()));
        self.output(&format!("{text}EOF"));
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

fn without_comments(text: &str) -> impl Iterator<Item = &str> {
    let is_kept = |line: &&str| !line.trim_start().is_empty() && !line.trim_start().starts_with('#');
    text.lines().filter(is_kept)
}

// A reader that has gone away does not end the demo: it must still clean up.
fn print(text: &str) {
    let _ = io::stdout().lock().write_all(text.as_bytes());
}

#[cfg(test)]
mod tests {
    use super::without_comments;

    #[test]
    fn a_configuration_is_printed_without_comments_and_empty_lines() {
        let text = "# A server.\nkind: A\n\n  # tokenFile: b\ngateway:\n  listen: c # stays\n";

        let kept: Vec<&str> = without_comments(text).collect();

        assert_eq!(kept, ["kind: A", "gateway:", "  listen: c # stays"]);
    }
}
