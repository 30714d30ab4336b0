//! Makes a fault and ends it.

use std::time::Duration;

use rustix::process::Signal;
use tokio::time::sleep;

use super::fault::{ApiFault, Connections, Injection, ProcessFault, Row, ServersFault, Victim};
use super::namespace::{TOOL_MAX, in_namespace};
use super::setup::{CLUSTER, MatrixSetup, OTHER_ADDRESS};
use crate::fake_api::ListenerMode;
use crate::process::{Invocation, Process};
use resource::ShortageGuard;

mod clock;
mod resource;

pub use super::namespace::FaultUnavailable;
pub use clock::Clocks;

/// The time that the server is frozen, and the time that it runs afterwards.
const STUTTER: Duration = Duration::from_millis(150);
/// The limit for a process to stop when asked.
const STOPPED_MAX: Duration = Duration::from_secs(120);

/// A fault that lasts; what holds it is let go by [`ActiveFault::end`].
#[derive(Debug, Default)]
pub struct ActiveFault {
    held: Vec<ShortageGuard>,
    strace: Option<Process>,
}

impl ActiveFault {
    /// Makes the fault of a row.
    ///
    /// # Errors
    /// [`FaultUnavailable`], which says what is missing.
    pub async fn begin(setup: &mut MatrixSetup, row: &Row) -> Result<Self, FaultUnavailable> {
        let mut fault = Self::default();
        match row.injection {
            Injection::Link(words) => setup.site.link().set(words).await,
            // A fault from the start is there already, and the runner sends the pulses.
            Injection::LinkFromStart(_) | Injection::Idle | Injection::Pulses(..) => {}
            Injection::Dark("") => drop(setup.site.link().down().await),
            Injection::Dark(direction) => drop(setup.site.link().send(&format!("down {direction}")).await),
            Injection::Rebind { address } => {
                let other = address.then_some(OTHER_ADDRESS);
                setup.site.link().rebind(other).await;
            }
            Injection::Nft(rule) => {
                let script = format!(
                    "nft 'add table inet fault; add chain inet fault way {{ type filter hook forward priority 0; }}; \
                     add rule inet fault way {rule}'"
                );
                in_namespace(setup.site.node().path(), &script).await?;
            }
            Injection::Reset(whose) => reset(setup, whose).await?,
            Injection::Interface => setup.site.replace_interface("eth1", 77).await,
            Injection::Buffers(bytes) => {
                for process in setup.victims(Victim::Both) {
                    fault.held.push(ShortageGuard::buffers(process, bytes)?);
                }
            }
            Injection::Clock { victim, ahead_seconds, again } => {
                set_clock(setup, victim, ahead_seconds)?;
                if again {
                    // The one that ran is killed as it is dropped.
                    setup.agents[0] = None;
                    setup.agents[0] = Some(setup.start_agent(0).await);
                }
            }
            Injection::Ports(first, last) => {
                let script = format!("echo '{first} {last}' > /proc/sys/net/ipv4/ip_local_port_range");
                in_namespace(setup.site.pod().path(), &script).await?;
            }
            Injection::Process(victim, mishap) => befall(setup, victim, mishap)?,
            Injection::Resource(victim, scarcity) => {
                for process in setup.victims(victim) {
                    fault.held.push(ShortageGuard::take(process, scarcity)?);
                }
            }
            Injection::Strace(victim, what) => fault.strace = Some(strace(setup, victim, what).await?),
            Injection::Api(fault) => begin_api(setup, fault).await,
            Injection::Servers(fault) => begin_among_servers(setup, fault).await?,
            Injection::Elsewhere(why) => {
                return Err(FaultUnavailable(why.to_owned()));
            }
        }
        Ok(fault)
    }

    /// Ends the fault, and restarts the processes that ended by it. A returned text says that there was no
    /// fault.
    pub async fn end(mut self, setup: &mut MatrixSetup, row: &Row) -> Option<String> {
        let unmade = self.held.iter().find_map(ShortageGuard::unmade);
        match row.injection {
            Injection::Link(words) => setup.site.link().set(&off(words)).await,
            Injection::Dark("") => drop(setup.site.link().up().await),
            Injection::Dark(direction) => drop(setup.site.link().send(&format!("up {direction}")).await),
            Injection::Nft(_) => {
                let _ = in_namespace(setup.site.node().path(), "nft 'delete table inet fault'").await;
            }
            Injection::Ports(..) => {
                let wide = "echo '32768 60999' > /proc/sys/net/ipv4/ip_local_port_range";
                let _ = in_namespace(setup.site.pod().path(), wide).await;
            }
            Injection::Process(victim, mishap) => recover(setup, victim, mishap).await,
            Injection::Api(fault) => end_api(setup, fault).await,
            Injection::Servers(fault) => {
                if let Some(shared) = &mut setup.shared {
                    shared.end(&setup.rig, fault).await;
                }
            }
            Injection::Clock { victim, .. } => drop(set_clock(setup, victim, 0)),
            Injection::Pulses(..)
            | Injection::Reset(_)
            | Injection::Interface
            | Injection::Buffers(_)
            | Injection::LinkFromStart(_)
            | Injection::Idle
            | Injection::Rebind { .. }
            | Injection::Resource(..)
            | Injection::Strace(..)
            | Injection::Elsewhere(_) => {}
        }
        if let Some(strace) = self.strace.take() {
            // SIGTERM lets go of what it traces.
            let _ = strace.stop(TOOL_MAX).await;
        }
        self.held.clear();
        setup.restart_what_ended().await;
        unmade
    }
}

/// The words that undo these.
pub fn off(words: &str) -> String {
    let keys = words.split_whitespace().filter_map(|word| word.split_once('='));
    keys.map(|(key, _)| if key == "delay" { "delay=5ms".to_owned() } else { format!("{key}=off") })
        .collect::<Vec<_>>()
        .join(" ")
}

fn befall(setup: &mut MatrixSetup, victim: Victim, mishap: ProcessFault) -> Result<(), FaultUnavailable> {
    let process = match victim {
        Victim::Server | Victim::ServerOfTwo | Victim::Both => setup.rig.server(),
        Victim::Agent | Victim::OneAgentOf(_) => {
            &mut setup.agents[0]
                .as_mut()
                .ok_or_else(|| FaultUnavailable("there is no agent".to_owned()))?
                .process
        }
    };
    match mishap {
        ProcessFault::Killed => process.kill(),
        ProcessFault::Terminated => {
            process.signal(Signal::TERM).map_err(|error| FaultUnavailable(error.to_string()))?
        }
        ProcessFault::Stopped => {
            process.signal(Signal::STOP).map_err(|error| FaultUnavailable(error.to_string()))?
        }
    }
    Ok(())
}

async fn recover(setup: &mut MatrixSetup, victim: Victim, mishap: ProcessFault) {
    match (victim, mishap) {
        (Victim::Server, ProcessFault::Stopped) => drop(setup.rig.server().signal(Signal::CONT)),
        (_, ProcessFault::Stopped) => {
            drop(setup.agents[0].as_ref().map(|agent| agent.process.signal(Signal::CONT)));
        }
        // One of several that was killed is not there again within the trial.
        (Victim::OneAgentOf(_), ProcessFault::Killed) => setup.agents[0] = None,
        (Victim::OneAgentOf(_) | Victim::Agent, ProcessFault::Terminated) => {
            // Its exchanges go on until its drain's end; nobody waits for that here.
            tokio::task::yield_now().await;
        }
        _ => {}
    }
}

/// Starts strace, which injects results into system calls of a process until it is stopped.
async fn strace(setup: &mut MatrixSetup, victim: Victim, what: &str) -> Result<Process, FaultUnavailable> {
    let process = setup.victims(victim)[0];
    let (traced, inject) = (process.to_string(), format!("inject={what}"));
    let words = ["-f", "-qq", "-o", "/dev/null", "-p", &traced, "-e", &inject];
    let invocation = Invocation::of("strace").arguments(words);
    let strace = Process::start(&invocation, &setup.rig.path().join("strace.log")).await;
    let strace = strace.map_err(|error| FaultUnavailable(error.to_string()))?;
    resource::traced(process).await?;
    Ok(strace)
}

async fn begin_among_servers(setup: &mut MatrixSetup, fault: ServersFault) -> Result<(), FaultUnavailable> {
    let MatrixSetup { shared, rig, .. } = setup;
    let shared = shared.as_mut().ok_or_else(|| FaultUnavailable("there is one server".to_owned()))?;
    shared.begin(rig, fault).await
}

/// The kernel aborts the socket here and sends a RST, so both ends notice it.
async fn reset(setup: &MatrixSetup, whose: Connections) -> Result<(), FaultUnavailable> {
    let port = setup.rig.gateway().port();
    match whose {
        Connections::Carrier => {
            in_namespace(setup.site.pod().path(), &format!("ss -K -tn dport = :{port}")).await
        }
        Connections::Callers => {
            let cloud = setup.rig.network_namespace();
            let cloud = cloud.ok_or_else(|| FaultUnavailable("the server is in no namespace".to_owned()))?;
            in_namespace(cloud, &format!("ss -K -tn src 127.0.0.1 and sport = :{port}")).await
        }
    }
}

fn set_clock(setup: &MatrixSetup, victim: Victim, ahead_seconds: i64) -> Result<(), FaultUnavailable> {
    let program = match victim {
        Victim::Agent | Victim::OneAgentOf(_) => "tunnel-agent",
        Victim::Server | Victim::ServerOfTwo | Victim::Both => "tunnel-server",
    };
    let clocks =
        setup.clocks.as_ref().ok_or_else(|| FaultUnavailable("the stage has no clocks".to_owned()))?;
    clocks.set(program, ahead_seconds).map_err(|error| FaultUnavailable(error.to_string()))
}

async fn begin_api(setup: &mut MatrixSetup, fault: ApiFault) {
    match fault {
        ApiFault::Gone => {
            if let Some(fake) = &mut setup.fake {
                fake.refuse().await;
                fake.drop_connections();
            }
        }
        ApiFault::Silent => setup.fake().set_listener_mode(ListenerMode::SilentBeforeTls),
        ApiFault::GoesAway => setup.fake().send_goaway(),
        _ => {}
    }
}

async fn end_api(setup: &mut MatrixSetup, fault: ApiFault) {
    match fault {
        // Its socket is one of the site's, and so is made there.
        ApiFault::Gone => {
            if let Some(mut fake) = setup.fake.take() {
                let listen = async move {
                    fake.listen_again().await.expect("its port is free");
                    fake
                };
                setup.fake = Some(setup.site.run(listen).await);
            }
        }
        ApiFault::Silent => setup.fake().set_listener_mode(ListenerMode::Open),
        _ => {}
    }
}

impl MatrixSetup {
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
    pub async fn log_tail(&mut self) {
        for agent in self.agents.iter_mut().flatten() {
            let _ = agent.process.wait(STOPPED_MAX).await;
        }
    }

    /// The name of the cluster in a list.
    pub fn cluster(&self) -> &'static str {
        CLUSTER
    }
}

/// Freezes the server now and then until the task is aborted. Data that arrives meanwhile has to wait.
pub async fn stutter(setup: &mut MatrixSetup) {
    loop {
        // A server that has ended is found by those who ask it.
        let _ = setup.rig.server().signal(Signal::STOP);
        sleep(STUTTER).await;
        go_on(setup);
        sleep(STUTTER).await;
    }
}

/// Lets the server go on.
pub fn go_on(setup: &mut MatrixSetup) {
    let _ = setup.rig.server().signal(Signal::CONT); // As above.
}

/// Lets words come and go for as long as nobody aborts it.
pub async fn pulse(setup: &MatrixSetup, words: &str, on: Duration, off_for: Duration) {
    loop {
        setup.site.link().set(words).await;
        sleep(on).await;
        setup.site.link().set(&off(words)).await;
        sleep(off_for).await;
    }
}
