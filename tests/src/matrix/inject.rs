//! Making a fault, and ending it.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::sleep;

use super::fault::{ApiFault, Injection, Mishap, Row, Victim};
use super::stage::{CLUSTER, OTHER_ADDRESS, Stage};
use crate::fake_api::Door;
use crate::process::{Invocation, Process, run};
use resource::Held;

mod resource;

/// How long one program may take that makes a fault.
const TOOL_MAX: Duration = Duration::from_secs(20);
/// How long a process that is asked to stop may take.
const STOPPED_MAX: Duration = Duration::from_secs(120);

/// A fault that lasts; what holds it is let go by [`Fault::end`].
#[derive(Debug, Default)]
pub struct Fault {
    held: Vec<Held>,
    strace: Option<Process>,
}

/// The fault cannot be made here.
#[derive(Debug, thiserror::Error)]
#[error("the fault could not be made: {0}")]
pub struct NotMade(pub String);

impl Fault {
    /// Makes it.
    ///
    /// # Errors
    /// [`NotMade`], which says what is missing.
    pub async fn begin(stage: &mut Stage, row: &Row) -> Result<Self, NotMade> {
        let mut fault = Self::default();
        match row.injection {
            Injection::Link(words) => stage.site.link().set(words).await,
            // What is from the start is there already; pulses are told by the runner.
            Injection::LinkFromStart(_) | Injection::Idle | Injection::Pulses(..) => {}
            Injection::Dark("") => drop(stage.site.link().down().await),
            Injection::Dark(way) => drop(stage.site.link().tell(&format!("down {way}")).await),
            Injection::Rebind { address } => {
                let other = address.then_some(OTHER_ADDRESS);
                stage.site.link().rebind(other).await;
            }
            Injection::Nft(rule) => {
                let script = format!(
                    "nft 'add table ip fault; add chain ip fault way {{ type filter hook forward priority 0; }}; \
                     add rule ip fault way {rule}'"
                );
                in_namespace(stage.site.node().path(), &script).await?;
            }
            Injection::Ports(first, last) => {
                let script = format!("echo '{first} {last}' > /proc/sys/net/ipv4/ip_local_port_range");
                in_namespace(stage.site.pod().path(), &script).await?;
            }
            Injection::Process(victim, mishap) => befall(stage, victim, mishap)?,
            Injection::Resource(victim, scarcity) => {
                for process in stage.victims(victim) {
                    fault.held.push(Held::take(process, scarcity)?);
                }
            }
            Injection::Strace(victim, what) => {
                let process = stage.victims(victim)[0];
                let words = [
                    "-f",
                    "-qq",
                    "-o",
                    "/dev/null",
                    "-p",
                    &process.to_string(),
                    "-e",
                    &format!("inject={what}"),
                ];
                let strace = Invocation::of("strace").arguments(words);
                let log = stage.rig.path().join("strace.log");
                let strace =
                    Process::start(&strace, &log).await.map_err(|error| NotMade(error.to_string()))?;
                fault.strace = Some(strace);
                resource::traced(process).await?;
            }
            Injection::Api(fault) => begin_api(stage, fault).await,
            Injection::Elsewhere(why) | Injection::NotBuilt(why) | Injection::NotHere(why) => {
                return Err(NotMade(why.to_owned()));
            }
        }
        Ok(fault)
    }

    /// Ends it, and lets start again what has ended by it.
    pub async fn end(mut self, stage: &mut Stage, row: &Row) {
        match row.injection {
            Injection::Link(words) => stage.site.link().set(&off(words)).await,
            Injection::Dark("") => drop(stage.site.link().up().await),
            Injection::Dark(way) => drop(stage.site.link().tell(&format!("up {way}")).await),
            Injection::Nft(_) => {
                let _ = in_namespace(stage.site.node().path(), "nft 'delete table ip fault'").await;
            }
            Injection::Ports(..) => {
                let wide = "echo '32768 60999' > /proc/sys/net/ipv4/ip_local_port_range";
                let _ = in_namespace(stage.site.pod().path(), wide).await;
            }
            Injection::Process(victim, mishap) => recover(stage, victim, mishap).await,
            Injection::Api(fault) => end_api(stage, fault).await,
            Injection::Pulses(..)
            | Injection::LinkFromStart(_)
            | Injection::Idle
            | Injection::Rebind { .. }
            | Injection::Resource(..)
            | Injection::Strace(..)
            | Injection::Elsewhere(_)
            | Injection::NotBuilt(_)
            | Injection::NotHere(_) => {}
        }
        if let Some(strace) = self.strace.take() {
            // SIGTERM lets go of what it traces.
            let _ = strace.stop(TOOL_MAX).await;
        }
        self.held.clear();
        stage.restart_what_ended().await;
    }
}

/// The words that undo these.
pub fn off(words: &str) -> String {
    let keys = words.split_whitespace().filter_map(|word| word.split_once('='));
    keys.map(|(key, _)| if key == "delay" { "delay=5ms".to_owned() } else { format!("{key}=off") })
        .collect::<Vec<_>>()
        .join(" ")
}

fn befall(stage: &mut Stage, victim: Victim, mishap: Mishap) -> Result<(), NotMade> {
    let process = match victim {
        Victim::Server | Victim::Both => stage.rig.server(),
        Victim::Agent | Victim::OneAgentOf(_) => {
            &mut stage.agents[0].as_mut().ok_or_else(|| NotMade("there is no agent".to_owned()))?.process
        }
    };
    match mishap {
        Mishap::Killed => process.kill(),
        Mishap::Terminated => process.signal(Signal::TERM).map_err(|error| NotMade(error.to_string()))?,
        Mishap::Stopped => process.signal(Signal::STOP).map_err(|error| NotMade(error.to_string()))?,
    }
    Ok(())
}

async fn recover(stage: &mut Stage, victim: Victim, mishap: Mishap) {
    match (victim, mishap) {
        (Victim::Server, Mishap::Stopped) => drop(stage.rig.server().signal(Signal::CONT)),
        (_, Mishap::Stopped) => {
            drop(stage.agents[0].as_ref().map(|agent| agent.process.signal(Signal::CONT)));
        }
        // One of several that was killed is not there again within the trial.
        (Victim::OneAgentOf(_), Mishap::Killed) => stage.agents[0] = None,
        (Victim::OneAgentOf(_) | Victim::Agent, Mishap::Terminated) => {
            // Its exchanges go on until its drain's end; nobody waits for that here.
            tokio::task::yield_now().await;
        }
        _ => {}
    }
}

async fn begin_api(stage: &mut Stage, fault: ApiFault) {
    match fault {
        ApiFault::Gone => {
            if let Some(fake) = &mut stage.fake {
                fake.refuse().await;
                fake.drop_connections();
            }
        }
        ApiFault::Silent => stage.fake().set_door(Door::StallBeforeTls),
        ApiFault::GoesAway => stage.fake().say_goaway(),
        _ => {}
    }
}

async fn end_api(stage: &mut Stage, fault: ApiFault) {
    match fault {
        // Its socket is one of the site's, and so is made there.
        ApiFault::Gone => {
            if let Some(mut fake) = stage.fake.take() {
                let listen = async move {
                    fake.listen_again().await.expect("its port is free");
                    fake
                };
                stage.fake = Some(stage.site.run(listen).await);
            }
        }
        ApiFault::Silent => stage.fake().set_door(Door::Open),
        _ => {}
    }
}

async fn in_namespace(namespace: &std::path::Path, script: &str) -> Result<(), NotMade> {
    let shell =
        Invocation::of("sh").arguments(["-c", script]).in_network_namespace(Some(namespace.to_owned()));
    let output = run(&shell, TOOL_MAX).await.map_err(|error| NotMade(error.to_string()))?;
    let said = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    if output.status.success() { Ok(()) } else { Err(NotMade(format!("{script}: {said}"))) }
}

impl Stage {
    /// Starts the server and the first agent again if they have ended.
    async fn restart_what_ended(&mut self) {
        if self.rig.server().ended().is_some() {
            self.rig.start_server().await;
        }
        let is_only = self.agents.len() == 1;
        let ended = self.agents[0].as_mut().is_some_and(|agent| agent.process.ended().is_some());
        if is_only && ended {
            self.agents[0] = Some(self.start_agent(0).await);
        }
    }

    /// Waits for those that were asked to stop.
    pub async fn last_words(&mut self) {
        for agent in self.agents.iter_mut().flatten() {
            let _ = agent.process.wait(STOPPED_MAX).await;
        }
    }

    /// The name of the cluster in a list.
    pub fn cluster(&self) -> &'static str {
        CLUSTER
    }
}

/// Lets words come and go for as long as nobody aborts it.
pub async fn pulse(stage: &Stage, words: &str, on: Duration, off_for: Duration) {
    loop {
        stage.site.link().set(words).await;
        sleep(on).await;
        stage.site.link().set(&off(words)).await;
        sleep(off_for).await;
    }
}
