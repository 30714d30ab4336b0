//! A progress line on standard error, for people who wait.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// Writes to standard error if that is a terminal, and nothing otherwise.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    is_shown: bool,
}

impl Progress {
    /// Begins to count the time, and shows nothing yet.
    pub fn new() -> Self {
        Self { began: Instant::now(), is_shown: io::stderr().is_terminal() }
    }

    /// Replaces the text of the line.
    pub fn show(&self, text: &str) {
        if self.is_shown {
            // A closed terminal is no reason to stop measuring.
            let _ = write!(io::stderr(), "\r\x1b[K[{:4.0} s] {text}", self.began.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Progress {
    /// Clears the line at the end.
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
