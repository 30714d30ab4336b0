//! `linksim`: makes two TUN devices and joins them by an impaired link.

use std::error::Error;
use std::io;
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Parser;
use rustix::process::{Signal, set_parent_process_death_signal};
use tokio::net::UnixListener;
use tokio::signal::unix::{SignalKind, signal};

use linksim::carry::carry;
use linksim::device::{Address, DeviceSpec};
use linksim::impairment::{Impairment, ImpairmentError};
use linksim::link::{Link, LinkOptions};
use linksim::nat::NatOptions;
use linksim::schedule::{Dark, Direction};
use linksim::units;
use linksim::{control, impairment};

/// Time after which a link ends that is not stopped before.
const RUN_DEFAULT: &str = "1h";
/// The default expiry, as for UDP on many home routers.
const NAT_EXPIRY_DEFAULT: &str = "30s";

const EXAMPLE: &str = "\
Example, as root: two namespaces, 40 ms and 1 % loss between them, dark from second 10 to 13:

  ip netns add left; ip netns add right
  linksim --a /run/netns/left --a-address 10.9.0.1/30 --b /run/netns/right --b-address 10.9.0.2/30 \\
      --both \"delay=20ms loss=1%\" --dark 10s+3s --control /tmp/link.sock --for 60s &
  ip netns exec left ping -c 20 10.9.0.2
  echo 'set a-to-b rate=2mbit' | socat - /tmp/link.sock
  ip netns delete left; ip netns delete right

It prints `ready` when packets pass, and at its end what it did: a table, then a line of JSON. It ends after --for, at
SIGINT or SIGTERM, and with the process that started it.";

/// Joins two network namespaces by a link that delays, loses, reorders, doubles and breaks packets, from a
/// seed.
///
/// TCP, QUIC and all else suffer alike: it works on packets of IP. Each direction has impairments of its own.
#[derive(Debug, Parser)]
#[command(after_long_help = long_help(), after_help = "More by --help: the impairments, the commands, an example.")]
struct Arguments {
    /// Side A's network namespace, such as /run/netns/NAME; this process's own, if left out
    #[arg(long, value_name = "PATH")]
    a: Option<PathBuf>,
    /// Side B's network namespace, in the same way
    #[arg(long, value_name = "PATH")]
    b: Option<PathBuf>,
    /// Name of the device in namespace A
    #[arg(long, value_name = "NAME", default_value = "link-a")]
    a_name: String,
    /// Name of the device in namespace B
    #[arg(long, value_name = "NAME", default_value = "link-b")]
    b_name: String,
    /// The device's address at side A; the caller gives it one, if left out
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    a_address: Option<Address>,
    /// The device's address at side B, in the same way
    #[arg(long, value_name = "ADDRESS/PREFIX")]
    b_address: Option<Address>,
    /// The devices' own MTU: what the kernels know, not what the link drops (that is the impairment mtu=)
    #[arg(long, value_name = "BYTES", default_value_t = 1500)]
    device_mtu: u16,
    /// Impairments that apply to both directions
    #[arg(long, value_name = "IMPAIRMENTS", default_value = "")]
    both: String,
    /// Further impairments from A to B
    #[arg(long, value_name = "IMPAIRMENTS", default_value = "")]
    a_to_b: String,
    /// Further impairments from B to A
    #[arg(long, value_name = "IMPAIRMENTS", default_value = "")]
    b_to_a: String,
    /// Time in which nothing passes: START+LENGTH from the beginning, one way only with :a-to-b or :b-to-a;
    /// may be repeated
    #[arg(long, value_name = "10s+30s")]
    dark: Vec<Dark>,
    /// Puts side A behind a NAT that gives every sender of UDP and TCP another port
    #[arg(long)]
    nat: bool,
    /// Time for which the NAT remembers a quiet sender
    #[arg(long, value_name = "TIME", default_value = NAT_EXPIRY_DEFAULT, value_parser = units::time, requires = "nat")]
    nat_expiry: Duration,
    /// The address that side B sees; every sender's own, if left out
    #[arg(long, value_name = "ADDRESS", requires = "nat")]
    nat_address: Option<Ipv4Addr>,
    /// Seed of all chance: the same seed does the same to the same packets
    #[arg(long, value_name = "NUMBER", default_value_t = 1)]
    seed: u64,
    /// A Unix socket that takes commands; the file must not exist, and is removed at the end
    #[arg(long, value_name = "PATH")]
    control: Option<PathBuf>,
    /// Time after which the link ends
    #[arg(long = "for", value_name = "TIME", default_value = RUN_DEFAULT, value_parser = units::time)]
    run_for: Duration,
}

/// The reason why there is no link.
#[derive(Debug, thiserror::Error)]
enum LinkError {
    #[error("{flag}")]
    Impairment {
        flag: &'static str,
        #[source]
        source: ImpairmentError,
    },
    #[error("side {side}")]
    Device {
        side: &'static str,
        #[source]
        source: linksim::device::DeviceError,
    },
    #[error("the control socket {} could not be made; remove a leftover file, or name another", .path.display())]
    Control {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("packets could not be carried")]
    Carry(#[source] io::Error),
    #[error("could not get what every program needs: signals, threads, file descriptors")]
    System(#[source] io::Error),
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match run(arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let causes = std::iter::successors(Error::source(&error), |cause| (*cause).source());
            eprintln!(
                "linksim: {}",
                causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
            );
            ExitCode::FAILURE
        }
    }
}

fn run(arguments: Arguments) -> Result<(), LinkError> {
    // A link that outlives its test would carry the next one's packets.
    set_parent_process_death_signal(Some(Signal::TERM)).map_err(|error| LinkError::System(error.into()))?;
    let link = Arc::new(Link::new(options(&arguments)?).map_err(LinkError::System)?);
    let a = device_spec(&arguments.a, &arguments.a_name, arguments.a_address, &arguments);
    let a = Arc::new(a.open().map_err(|source| LinkError::Device { side: "A", source })?);
    let b = device_spec(&arguments.b, &arguments.b_name, arguments.b_address, &arguments);
    let b = Arc::new(b.open().map_err(|source| LinkError::Device { side: "B", source })?);
    let threads = [(Direction::AToB, &a, &b), (Direction::BToA, &b, &a)].map(|(direction, from, to)| {
        let (link, from, to) = (Arc::clone(&link), Arc::clone(from), Arc::clone(to));
        link.attach(direction, Arc::clone(&from));
        let carried = move || {
            let carried = carry(&link, direction, from.tun(), to.tun());
            link.stop();
            carried
        };
        thread::Builder::new().name(direction.name().to_owned()).spawn(carried)
    });
    let served = serve(&arguments, &link);
    link.stop();
    for thread in threads {
        let carried = thread.map_err(LinkError::System)?.join();
        carried.unwrap_or_else(|panic| std::panic::resume_unwind(panic)).map_err(LinkError::Carry)?;
    }
    served?;
    let report = link.report();
    println!("{report}{}", report.json());
    Ok(())
}

fn options(arguments: &Arguments) -> Result<LinkOptions, LinkError> {
    let parse = |flag, text: &str| {
        let mut impairment: Impairment =
            arguments.both.parse().map_err(|source| LinkError::Impairment { flag: "--both", source })?;
        impairment.change(text).map_err(|source| LinkError::Impairment { flag, source })?;
        Ok(impairment)
    };
    let nat = NatOptions { address: arguments.nat_address, expiry: arguments.nat_expiry };
    Ok(LinkOptions {
        seed: arguments.seed,
        a_to_b: parse("--a-to-b", &arguments.a_to_b)?,
        b_to_a: parse("--b-to-a", &arguments.b_to_a)?,
        darks: arguments.dark.clone(),
        nat: arguments.nat.then_some(nat),
    })
}

fn device_spec(
    namespace: &Option<PathBuf>,
    name: &str,
    address: Option<Address>,
    all: &Arguments,
) -> DeviceSpec {
    DeviceSpec { namespace: namespace.clone(), name: name.to_owned(), address, mtu: all.device_mtu }
}

fn serve(arguments: &Arguments, link: &Arc<Link>) -> Result<(), LinkError> {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(LinkError::System)?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt()).map_err(LinkError::System)?;
        let mut terminate = signal(SignalKind::terminate()).map_err(LinkError::System)?;
        let control = arguments.control.as_ref().map(Control::bind).transpose()?;
        println!("ready");
        let controlled = async {
            match &control {
                Some(control) => control.serve(Arc::clone(link)).await,
                None => std::future::pending().await,
            }
        };
        // Dropping the other arms loses nothing: the link is at its end.
        tokio::select! {
            () = tokio::time::sleep(arguments.run_for) => Ok(()),
            _ = interrupt.recv() => Ok(()),
            _ = terminate.recv() => Ok(()),
            error = controlled => Err(error),
        }
    })
}

/// The control socket; its file is removed with it.
struct Control(PathBuf, std::cell::Cell<Option<UnixListener>>);

impl Control {
    fn bind(path: &PathBuf) -> Result<Self, LinkError> {
        let listener =
            UnixListener::bind(path).map_err(|source| LinkError::Control { path: path.clone(), source })?;
        Ok(Self(path.clone(), Some(listener).into()))
    }

    /// Comes back only with an error.
    async fn serve(&self, link: Arc<Link>) -> LinkError {
        let Some(listener) = self.1.take() else { return std::future::pending().await };
        let source = control::serve(listener, link).await.err();
        LinkError::Control {
            path: self.0.clone(),
            source: source.unwrap_or_else(|| io::Error::other("closed")),
        }
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0); // It may have been removed already.
    }
}

fn long_help() -> String {
    format!(
        "IMPAIRMENTS of a direction, in one argument:\n{}\n\nCommands of the control socket, a line each:\n{}\n\n{EXAMPLE}",
        impairment::HELP,
        control::COMMANDS
    )
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_flags_agree_with_each_other() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn one_direction_adds_to_both() {
        let arguments = ["linksim", "--both", "delay=20ms loss=1%", "--a-to-b", "loss=5%"];
        let options = options(&Arguments::parse_from(arguments)).unwrap();
        assert_eq!(options.a_to_b.to_string(), "delay=20ms loss=5%");
        assert_eq!(options.b_to_a.to_string(), "delay=20ms loss=1%");
    }
}
