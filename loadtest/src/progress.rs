//! One line that says what runs, for a person who waits.

use std::io::{self, IsTerminal, Write};
use std::time::Instant;

/// Writes to stderr, and only where that is a terminal.
#[derive(Debug)]
pub struct Progress {
    began: Instant,
    is_shown: bool,
}

impl Progress {
    /// Nothing has been said yet.
    pub fn new() -> Self {
        Self { began: Instant::now(), is_shown: io::stderr().is_terminal() }
    }

    /// Replaces the line.
    pub fn say(&self, text: &str) {
        if self.is_shown {
            // A terminal that has gone away is no reason to stop measuring.
            let _ = write!(io::stderr(), "\r\x1b[K[{:4.0} s] {text}", self.began.elapsed().as_secs_f64());
        }
    }
}

impl Drop for Progress {
    /// Leaves no line behind.
    fn drop(&mut self) {
        if self.is_shown {
            let _ = write!(io::stderr(), "\r\x1b[K");
        }
    }
}
