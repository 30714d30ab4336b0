//! The command-line arguments of the measurement.

/// The directions that go dark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dark {
    Both,
    ToServer,
    ToAgent,
}

pub(crate) struct Arguments {
    pub(crate) outages: Vec<u64>,
    pub(crate) tunnels: usize,
    pub(crate) rounds: usize,
    pub(crate) dark: Dark,
    /// The server sees another source port after the outage.
    pub(crate) new_port: bool,
    /// Packets from the agent's old port are lost for ever.
    pub(crate) stale: bool,
    /// Measures plain quinn beside it, too.
    pub(crate) stock: bool,
}

pub(crate) const HELP: &str = "\
outage [--outages 3,10,30] [--tunnels 30] [--rounds 1] [--dark both|to-server|to-agent] [--new-port] [--stale] [--no-stock]

Seconds of each outage; tunnels of ours and as many of plain quinn, in equal parts of each kind; how often; which
direction goes dark; whether the agent comes from another source port afterwards, as through a NAT that forgot it; whether its old one leads nowhere any more.";

impl Arguments {
    pub(crate) fn parse() -> Option<Self> {
        let mut parsed = Self {
            outages: vec![3, 10, 30],
            tunnels: 30,
            rounds: 1,
            dark: Dark::Both,
            new_port: false,
            stale: false,
            stock: true,
        };
        let mut words = std::env::args().skip(1);
        while let Some(word) = words.next() {
            match word.as_str() {
                "--outages" => {
                    let seconds: Result<_, _> = words.next()?.split(',').map(str::parse).collect();
                    parsed.outages = seconds.ok()?;
                }
                "--tunnels" => parsed.tunnels = words.next()?.parse().ok()?,
                "--rounds" => parsed.rounds = words.next()?.parse().ok()?,
                "--stale" => parsed.stale = true,
                "--new-port" => parsed.new_port = true,
                "--no-stock" => parsed.stock = false,
                "--dark" => {
                    parsed.dark = match words.next()?.as_str() {
                        "both" => Dark::Both,
                        "to-server" => Dark::ToServer,
                        "to-agent" => Dark::ToAgent,
                        _ => return None,
                    }
                }
                _ => return None,
            }
        }
        Some(parsed)
    }
}
