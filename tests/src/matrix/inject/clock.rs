//! Wall clocks of daemons that differ from the machine's: they are started with a library that reads the
//! shift of each from a file.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::process::{Invocation, run};

/// The source of the library.
const SOURCE: &str = include_str!("wall_clock.c");
/// The limit for the compiler.
const COMPILED_MAX: Duration = Duration::from_secs(60);
/// The daemons whose clocks can be shifted.
const PROGRAMS: [&str; 2] = ["tunnel-server", "tunnel-agent"];

/// The clocks of one stage's daemons.
#[derive(Debug)]
pub struct Clocks(PathBuf);

impl Clocks {
    /// Compiles the library into a folder; all clocks are right.
    ///
    /// # Panics
    /// Where there is no C compiler.
    pub async fn build(folder: &Path) -> Self {
        let clocks = Self(folder.join("clocks"));
        fs::create_dir_all(&clocks.0).expect("a folder can be made");
        for program in PROGRAMS {
            clocks.set(program, 0).expect("a file can be written");
        }
        let source = clocks.0.join("wall_clock.c");
        fs::write(&source, SOURCE).expect("a file can be written");
        let words = ["-shared", "-fPIC", "-O1", "-o"].map(str::to_owned);
        let files = [clocks.library(), source].map(|path| path.display().to_string());
        let output = run(&Invocation::of("cc").arguments(words).arguments(files), COMPILED_MAX).await;
        let output = output.expect("there is a C compiler");
        assert!(output.status.success(), "cc: {}", String::from_utf8_lossy(&output.stderr));
        clocks
    }

    /// The environment variables with which daemons see these clocks.
    pub fn variables(&self) -> Vec<(String, String)> {
        let text = |path: &Path| path.display().to_string();
        vec![("LD_PRELOAD".to_owned(), text(&self.library())), ("TRIAL_CLOCKS".to_owned(), text(&self.0))]
    }

    /// Sets the clock of a program that runs or will.
    pub fn set(&self, program: &str, ahead_seconds: i64) -> io::Result<()> {
        // Written in place, because who runs has the file mapped.
        let mut file =
            fs::OpenOptions::new().create(true).truncate(false).write(true).open(self.0.join(program))?;
        io::Write::write_all(&mut file, &ahead_seconds.to_ne_bytes())
    }

    fn library(&self) -> PathBuf {
        self.0.join("wall_clock.so")
    }
}
