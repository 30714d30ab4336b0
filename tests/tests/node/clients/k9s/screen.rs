//! The screen of a program in a tmux of its own, which types and reads.

use std::path::Path;
use std::time::Instant;

use tests::kube::assets::Assets;
use tests::kube::kubectl::Kubectl;
use tests::node_edge::NodeEdge;
use tests::process::Process;
use tokio::time::sleep;

use crate::kubectls::{Client, LOOK_EVERY, SOON, until};

const COLUMNS: &str = "160";
const ROWS: &str = "40";

/// A screen; its tmux and the program are killed when this is dropped.
#[must_use = "the program is killed when this is dropped"]
pub(super) struct Screen {
    name: String,
    tmux: Kubectl,
    socket: String,
    _server: Process,
}

impl Screen {
    /// Runs a program on one, where this hand is, and with a kubectl in its path.
    pub(super) async fn open(edge: &NodeEdge, client: &Client, program: &[&str]) -> Self {
        let folder = |name: &str| edge.file(&format!("{}-{name}", client.name));
        let text = |path: &Path| path.to_str().expect("a path").to_owned();
        let kubectl = Assets::find().expect("they were there before").kubectl;
        let kubectl_folder = text(kubectl.parent().expect("a program is in a folder"));
        let path = format!("{kubectl_folder}:{}", std::env::var("PATH").unwrap_or_default());
        let tmux = client.kubectl.clone().with_variable("PATH", &path).with_variable("LC_ALL", "C.UTF-8");
        let kinds = ["CONFIG_HOME", "DATA_HOME", "STATE_HOME", "CACHE_HOME", "RUNTIME_DIR"];
        let tmux = kinds.into_iter().fold(tmux, |tmux, kind| {
            tmux.with_variable(&format!("XDG_{kind}"), &text(&folder(&format!("xdg/{kind}"))))
        });
        let socket = text(&folder("tmux"));
        let words = ["-u", "-f", "/dev/null", "-S", &socket, "-D"];
        let server = tmux.start(&words, &folder("tmux.out")).await.expect("tmux starts");
        let screen = Self { name: client.name.clone(), tmux, socket, _server: server };
        // What the program said last is still to be read once it has ended; and it does not outlive tmux.
        let opens =
            ["set-option", "-g", "remain-on-exit", "on", ";", "new-session", "-d", "-x", COLUMNS, "-y", ROWS];
        let opens = [&opens, ["setpriv", "--pdeathsig", "SIGKILL", "--"].as_slice(), program].concat();
        until("tmux listens", async || screen.runs_tmux(&opens).await.ok()).await;
        screen
    }

    /// Types keys, by tmux's names of them.
    pub(super) async fn presses(&self, keys: &[&str]) {
        let words = [["send-keys"].as_slice(), keys].concat();
        self.runs_tmux(&words).await.unwrap_or_else(|message| panic!("{}: {message}", self.name));
    }

    /// Types a text into the program.
    pub(super) async fn types(&self, text: &str) {
        self.presses(&["-l", text]).await;
    }

    /// Waits until the screen shows something.
    pub(super) async fn shows(&self, what: &str, is_there: impl Fn(&str) -> bool) {
        let deadline = Instant::now() + SOON;
        loop {
            let seen = self.runs_tmux(&["capture-pane", "-p"]).await;
            let seen = seen.unwrap_or_else(|message| panic!("{}: {message}", self.name));
            if is_there(&seen) {
                println!("{}: {what}", self.name);
                return;
            }
            let in_time = Instant::now() < deadline && !seen.contains("Pane is dead");
            assert!(in_time, "{}: {what}: not within {SOON:?}; the screen is\n{seen}", self.name);
            sleep(LOOK_EVERY).await;
        }
    }

    /// Runs tmux, and returns its output or its error.
    async fn runs_tmux(&self, words: &[&str]) -> Result<String, String> {
        // It must not start a server of its own where ours is not there yet.
        let words = [["-N", "-S", &self.socket].as_slice(), words].concat();
        let output = self.tmux.run(&words).await.map_err(|error| error.to_string())?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }
}
