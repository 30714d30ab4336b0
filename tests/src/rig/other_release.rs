//! Programs of another release in a rig, in place of those under test.

use std::path::PathBuf;
use std::time::Instant;

use tokio::time::sleep;

use super::{LOOK_EVERY, READY_MAX, Rig, plain};

impl Rig {
    /// Starts this file from now on where a program of this name is meant.
    pub fn take_program(&mut self, name: &'static str, path: PathBuf) {
        self.programs.insert(name, path);
    }

    /// The other way round: what is started from now on is of this release.
    pub fn leave_programs(&mut self) {
        self.programs.clear();
    }

    /// Starts the server, and waits until it is ready or has ended. Returns the exit code if it has ended.
    pub async fn starts_or_ends(&mut self) -> Option<i32> {
        let config = self.path().join("server.yaml");
        let mut process = self.launch(&self.surroundings(), "tunnel-server", &config, "server.log").await;
        let deadline = Instant::now() + READY_MAX;
        loop {
            if let Some(status) = process.ended() {
                return status.code();
            }
            if matches!(plain(self.probes(), "/readyz").await, Ok(answer) if answer.contains(" 200 ")) {
                self.server = Some(process);
                return None;
            }
            assert!(Instant::now() < deadline, "it neither ended nor became ready: {}", self.logs());
            sleep(LOOK_EVERY).await;
        }
    }
}
