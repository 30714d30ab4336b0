//! The policy changes while the server runs: a request is denied, the denial is explained, and it holds no longer.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::{Duration, Instant};

use tokio::time::sleep;

use super::DemoError;
use super::installer::{CALLER, GROUP, Installer};
use super::network::EDGES;
use super::tour::Tour;

/// The limit for a changed policy to be in force.
const IN_FORCE_MAX: Duration = Duration::from_secs(90);
const LOOK_EVERY: Duration = Duration::from_millis(50);
/// The exit code of `tombolo policy explain` for what the policy denies.
const DENIED: i32 = 1;

const RULE: &str = "nobody-reads-secrets-of-edge-b";
/// The rule in YAML, as it is added to the file.
const RULE_TEXT: &str = r#"- name: nobody-reads-secrets-of-edge-b
  effect: Deny
  subjects:
  - { method: client-certificate, group: "tombolo:admins" }
  clusters: { names: ["edge-b"] }
  mode: kube-api
  actions:
  - verbs: ["*"]
    apiGroups: [""]
    resources: [secrets]
    namespaces: ["*"]
"#;

/// Adds a rule, and takes it back.
pub(super) async fn show(tour: &Tour<'_>, installer: &Installer<'_>) -> Result<(), DemoError> {
    let policy = PolicyFile::in_folder(tour.folder);
    let [allowed, denied] = EDGES;
    tour.run(&format!("--context {denied} create secret generic lock --from-literal=code=1234")).await?;
    tour.say("the policy gets one more rule, while the server runs:");
    let before = policy.append(tour, RULE_TEXT)?;
    let secrets = |edge: &str| format!("--context {edge} get secrets");
    let since = Instant::now();
    let refused = turned(tour, &secrets(denied), false).await?;
    tour.progress.done("the server denies it now, with no restart", since);
    tour.progress.command(&format!("kubectl {}", secrets(denied)));
    let message = String::from_utf8_lossy(&refused.stderr).into_owned();
    tour.progress.output(&message);
    if !message.contains("policy") {
        let claim = "the denial should name the policy".to_owned();
        return Err(DemoError::NotShown { claim, found: message });
    }
    tour.say("tombolo says which rule it was:");
    let question = format!(
        "policy explain --policy {} --method client-certificate --user {CALLER} --group {GROUP} --cluster {denied} \
         --verb list --resource secrets --namespace default",
        policy.path.display()
    );
    let explained = installer.ask(&question).await?;
    let reason = String::from_utf8_lossy(&explained.stdout).into_owned();
    tour.progress.output(&reason);
    if explained.status.code() != Some(DENIED) || !reason.contains(RULE) {
        let claim = format!("`tombolo policy explain` should name the rule {RULE} and end with {DENIED}");
        return Err(DemoError::NotShown { claim, found: format!("{}: {reason}", explained.status) });
    }
    tour.say(&format!("{allowed} is not concerned, and the rule goes again:"));
    tour.run(&secrets(allowed)).await?;
    policy.replace(&before)?;
    let since = Instant::now();
    turned(tour, &secrets(denied), true).await?;
    tour.progress.done("the server allows it again", since);
    tour.run(&secrets(denied)).await
}

/// The policy that the server reads again when it changes.
#[derive(Debug)]
pub(super) struct PolicyFile {
    path: PathBuf,
}

impl PolicyFile {
    /// The file in the demo's folder.
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self { path: folder.join("policy.yaml") }
    }

    /// Adds rules, prints them, and returns the text as it was.
    pub(super) fn append(&self, tour: &Tour<'_>, rules: &str) -> Result<String, DemoError> {
        let before = fs::read_to_string(&self.path).map_err(DemoError::Files)?;
        tour.progress.appended(&self.path, rules);
        self.replace(&format!("{before}\n{rules}"))?;
        Ok(before)
    }

    // In one step: a reader sees all of the old file or all of the new one.
    fn replace(&self, text: &str) -> Result<(), DemoError> {
        let new = self.path.with_extension("new");
        fs::write(&new, text).and_then(|()| fs::rename(&new, &self.path)).map_err(DemoError::Files)
    }
}

/// Runs a kubectl until it succeeds or fails as it is to.
async fn turned(tour: &Tour<'_>, words: &str, succeeds: bool) -> Result<Output, DemoError> {
    let deadline = Instant::now() + IN_FORCE_MAX;
    loop {
        let output = tour.kubectl.run(&words.split(' ').collect::<Vec<_>>()).await?;
        if output.status.success() == succeeds {
            return Ok(output);
        }
        if Instant::now() >= deadline {
            let wanted = if succeeds { "succeed" } else { "fail" };
            let claim =
                format!("`kubectl {words}` should {wanted} within {IN_FORCE_MAX:?} of the policy's change");
            let found = String::from_utf8_lossy(&output.stderr).into_owned();
            return Err(DemoError::NotShown { claim, found });
        }
        sleep(LOOK_EVERY).await;
    }
}
