//! The link goes dark for ten seconds under a watch, a shell and a request, and all of them go on.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt;
use tokio::process::ChildStdin;
use tokio::time::sleep_until;

use super::DemoError;
use super::link::DemoLink;
use super::live::{LiveOutput, until};
use super::network::EDGES;
use super::progress::Progress;
use super::shell_pod::{POD, site};
use super::tour::Tour;
use crate::kube::EdgeCluster;
use crate::process::Process;

/// The time for which the link is dark.
const DARK: Duration = Duration::from_secs(10);
/// The limit for something to be shown while the link is there.
const SEEN_MAX: Duration = Duration::from_secs(20);
/// The limit for a kubectl to end whose work is done.
const END_MAX: Duration = Duration::from_secs(10);

/// Lets the first cluster's link go dark.
pub(super) async fn show(
    tour: &Tour<'_>,
    link: &DemoLink<'_>,
    cluster: &EdgeCluster,
) -> Result<(), DemoError> {
    let progress = tour.progress;
    let edge = EDGES[0];
    tour.say(&format!(
        "{edge}: a watch and a shell run, and then the link goes dark for {} s:",
        DARK.as_secs()
    ));
    let (watching, mut watch) = start_watch(tour, edge).await?;
    let (mut shell, mut said) = Shell::start(tour, edge).await?;
    shell.type_line(progress, "echo I am process $$ at $(date +%T)").await?;
    until(&mut [&mut watch, &mut said], progress, SEEN_MAX, "watch and shell should have begun", |all| {
        all[0].has(|line| line.starts_with("site ")) && all[1].has(|line| line.starts_with("I am process "))
    })
    .await?;
    let first = said.line("I am process ");

    tour.say("now no packet passes between the site and the cloud, and nobody is told:");
    let began = Instant::now();
    let dark = link.dark(progress).await?;
    tour.say("meanwhile: a change at the site itself, a line typed into the shell, and a new request:");
    let patch = r#"{"data":{"note":"in the dark"}}"#;
    progress.command(&format!(
        "kubectl --kubeconfig admin.conf patch configmap site --patch '{patch}'  # at the site"
    ));
    site(cluster, &["patch", "configmap", "site", "--patch", patch]).await?;
    shell.type_line(progress, "echo typed in the dark, run at $(date +%T)").await?;
    let (mut asking, mut answer) = ask(tour, edge).await?;
    sleep_until((began + DARK).into()).await;
    let too_soon: usize =
        [&mut watch, &mut said, &mut answer].map(|output| output.show(progress)).iter().sum();
    if too_soon > 0 {
        let claim = "nothing should have come through a dark link".to_owned();
        return Err(DemoError::NotShown { claim, found: format!("{too_soon} lines came") });
    }
    dark.bright(progress).await?;
    tour.say(&format!(
        "the link is back after {:.1} s, in which nothing came:",
        began.elapsed().as_secs_f64()
    ));

    let back = Instant::now();
    let mut outputs = [&mut watch, &mut said, &mut answer];
    until(&mut outputs, progress, SEEN_MAX, "watch, shell and request should have gone on", |all| {
        all[0].count("site ") >= 2
            && all[1].has(|line| line.starts_with("typed in the dark"))
            && all[2].has(|line| line.starts_with("default "))
    })
    .await?;
    progress.done("watch, shell and request have gone on", back);
    ended_well("kubectl get namespaces", &mut asking).await?;
    shell.type_line(progress, "echo still process $$").await?;
    until(&mut [&mut said], progress, SEEN_MAX, "the shell should answer", |all| {
        all[0].has(|line| line.starts_with("still process "))
    })
    .await?;
    same_process(&first, &said.line("still process "))?;
    shell.end().await?;
    watching.stop(END_MAX).await?;
    tour.say("it is the same shell and the same watch: no kubectl has ended, and none was started again");
    Ok(())
}

/// A `kubectl exec -i` and what is typed into it.
struct Shell {
    process: Process,
    stdin: ChildStdin,
}

impl Shell {
    async fn start(tour: &Tour<'_>, edge: &str) -> Result<(Self, LiveOutput), DemoError> {
        let words = format!("--context {edge} exec -i {POD} -- sh");
        tour.progress.command(&format!("kubectl {words}"));
        let path = tour.folder.join(format!("{edge}-shell.out"));
        let words: Vec<&str> = words.split(' ').collect();
        let (process, stdin) = tour.kubectl.start_listening(&words, &path).await?;
        Ok((Self { process, stdin }, LiveOutput::new("shell", &path)))
    }

    async fn type_line(&mut self, progress: &Progress, line: &str) -> Result<(), DemoError> {
        progress.live("typed", line);
        let typed = self.stdin.write_all(format!("{line}\n").as_bytes()).await;
        typed.map_err(DemoError::Files)
    }

    /// Ends the input, and with it the shell.
    async fn end(self) -> Result<(), DemoError> {
        let Self { mut process, stdin } = self;
        drop(stdin);
        ended_well("kubectl exec", &mut process).await
    }
}

async fn start_watch(tour: &Tour<'_>, edge: &str) -> Result<(Process, LiveOutput), DemoError> {
    start(tour, "watch", &format!("--context {edge} get configmaps -w"), edge).await
}

async fn ask(tour: &Tour<'_>, edge: &str) -> Result<(Process, LiveOutput), DemoError> {
    start(tour, "get", &format!("--context {edge} get namespaces"), edge).await
}

async fn start(
    tour: &Tour<'_>,
    label: &'static str,
    words: &str,
    edge: &str,
) -> Result<(Process, LiveOutput), DemoError> {
    tour.progress.command(&format!("kubectl {words} &"));
    let path = tour.folder.join(format!("{edge}-dark-{label}.out"));
    let process = tour.kubectl.start(&words.split(' ').collect::<Vec<_>>(), &path).await?;
    Ok((process, LiveOutput::new(label, &path)))
}

async fn ended_well(command: &str, process: &mut Process) -> Result<(), DemoError> {
    let status = process.wait(END_MAX).await?;
    if status.success() {
        return Ok(());
    }
    Err(DemoError::Refused { command: command.to_owned(), stderr: format!("{status}: {}", process.tail()) })
}

/// Compares the numbers in what a shell said before and after.
fn same_process(before: &str, after: &str) -> Result<(), DemoError> {
    let number = |line: &str| line.split_whitespace().find_map(|word| word.parse::<u32>().ok());
    match (number(before), number(after)) {
        (Some(first), Some(second)) if first == second => Ok(()),
        _ => {
            let claim = "the shell should be the same process as before".to_owned();
            Err(DemoError::NotShown { claim, found: format!("{before:?} and {after:?}") })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::same_process;

    #[test]
    fn another_shell_in_place_of_the_first_ends_the_demo() {
        assert!(same_process("I am process 7 at 10:00:00", "still process 7").is_ok());
        assert!(same_process("I am process 7 at 10:00:00", "still process 8").is_err());
        assert!(same_process("", "").is_err());
    }
}
