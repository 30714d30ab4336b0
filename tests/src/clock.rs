//! A process with a wrong or shifted clock: a preloaded library adds a span to the C library's time of day.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

/// The library between a program and the system's clock. Timers are not touched.
const SHIFTER: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *now) {
    static int (*real)(clockid_t, struct timespec *);
    if (!real) {
        real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    }
    int answer = real(clock, now);
    const char *path = getenv("TOMBOLO_TEST_SHIFT_FILE");
    if (!answer && clock == CLOCK_REALTIME && path) {
        char said[32] = {0};
        int file = open(path, O_RDONLY | O_CLOEXEC);
        if (file >= 0) {
            if (read(file, said, sizeof said - 1) > 0) {
                now->tv_sec += atol(said);
            }
            close(file);
        }
    }
    return answer;
}
"#;

/// The file that holds the shift in seconds.
const SHIFT: &str = "shift.seconds";

/// The span by which a clock differs from the right time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Shift {
    seconds: i64,
}

impl Shift {
    /// A clock that is ahead by this number of hours.
    #[must_use]
    pub fn hours(hours: i64) -> Self {
        Self { seconds: hours * 60 * 60 }
    }

    /// A clock that is ahead by this number of minutes.
    #[must_use]
    pub fn minutes(minutes: i64) -> Self {
        Self { seconds: minutes * 60 }
    }

    /// A machine without a battery.
    #[must_use]
    pub fn to_1970() -> Self {
        let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("after 1970").as_secs();
        Self { seconds: 60 - i64::try_from(now).expect("not so late") }
    }

    /// Moves the clocks of all processes that have the variables of `folder`.
    ///
    /// # Errors
    /// Where the file cannot be written.
    pub fn apply(self, folder: &Path) -> io::Result<()> {
        let (new, file) = (folder.join("shift.new"), folder.join(SHIFT));
        fs::write(&new, self.seconds.to_string())?;
        fs::rename(new, file)
    }
}

/// The environment variables with which a process obeys [`Shift::apply`]. The library is built in `folder`,
/// once.
///
/// # Errors
/// If there is no C compiler.
pub fn variables(folder: &Path) -> io::Result<Vec<(String, String)>> {
    Ok(vec![
        ("LD_PRELOAD".to_owned(), library(folder)?.display().to_string()),
        ("TOMBOLO_TEST_SHIFT_FILE".to_owned(), folder.join(SHIFT).display().to_string()),
    ])
}

fn library(folder: &Path) -> io::Result<PathBuf> {
    let (source, library) = (folder.join("shifter.c"), folder.join("shifter.so"));
    if !library.exists() {
        fs::write(&source, SHIFTER)?;
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(&source)
            .arg("-ldl")
            .status()?;
        if !status.success() {
            return Err(io::Error::other("cc could not build the library"));
        }
    }
    Ok(library)
}
