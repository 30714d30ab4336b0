//! The impairments of one direction of a link, and their `KEY=VALUE` notation.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use crate::units::{self, UnitError};

/// The notation of one direction's impairments, for help texts.
pub const HELP: &str = "\
delay=40ms              every packet comes so much later
jitter=5ms              and up to so much earlier or later still, in order
loss=5%                 of the packets, each by its own chance
burst=1%/30%[/100%]     Gilbert-Elliott: the chance per packet that a bad spell begins, that it ends,
                        and that a packet of it is lost
reorder=25%/50ms        so many are held back so long, while others overtake
duplicate=1%            so many come twice
corrupt=5%              in so many one bit behind the IP header is flipped: the kernel's checksum finds it
corrupt-hidden=5%       the same with the checksum made right again: only the receiving program can tell
rate=50mbit             bits a second of whole IP packets
queue=256KiB            what may wait for its turn at that rate; more is dropped
mtu=1280                longer packets are dropped, without an ICMP error
udp-mtu=1000            longer UDP packets are dropped; 0 drops all UDP
An impairment that is left out is off, and so is KEY=off.";

/// Size of the queue where a rate is given without one: 50 ms of 40 Mbit/s.
pub const QUEUE_BYTES_DEFAULT: usize = 256 * 1024;

/// The impairments of one direction. The default has none.
#[derive(Debug, Clone, PartialEq)]
pub struct Impairment {
    /// Added to the time that every packet takes.
    pub delay: Duration,
    /// Largest deviation from `delay`, up or down; packets stay in order.
    pub jitter: Duration,
    /// The share that is lost, each packet by its own chance.
    pub loss: f64,
    /// Spells in which more is lost.
    pub burst: Option<Burst>,
    /// Packets that are held back while others overtake them.
    pub reorder: Option<Reorder>,
    /// The share that comes twice.
    pub duplicate: f64,
    /// The share with one wrong bit.
    pub corrupt: f64,
    /// The share with one wrong bit and a checksum that agrees with it.
    pub corrupt_hidden: f64,
    /// The rate in bits a second.
    pub rate: Option<u64>,
    /// Bytes that may wait where there is a rate.
    pub queue_bytes: usize,
    /// The longest packet that passes, in bytes of IP.
    pub mtu: Option<usize>,
    /// The longest UDP packet that passes, in bytes of IP.
    pub udp_mtu: Option<usize>,
}

/// The model of Gilbert and Elliott: a good state in which `loss` rules, and a bad one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Burst {
    /// The chance per packet that the bad state begins.
    pub begins: f64,
    /// The chance per packet that it ends.
    pub ends: f64,
    /// The chance that a packet is lost in it.
    pub loss: f64,
}

/// Packets that are held back.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Reorder {
    /// The share of packets that are held back.
    pub share: f64,
    /// The time for which each is held back.
    pub by: Duration,
}

/// The reason why impairments cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImpairmentError {
    /// An argument that has no `=`.
    #[error("{0:?} is not KEY=VALUE, as in loss=5%")]
    NoValue(String),
    /// The key of no impairment.
    #[error(
        "there is no impairment {0:?}; there are delay, jitter, loss, burst, reorder, duplicate, corrupt, corrupt-hidden, rate, queue, mtu and udp-mtu"
    )]
    Unknown(String),
    /// A value of the wrong shape.
    #[error("burst is BEGINS/ENDS or BEGINS/ENDS/LOSS, as in burst=1%/30%, not {0:?}")]
    Burst(String),
    /// A value of the wrong shape.
    #[error("reorder is SHARE/TIME, as in reorder=25%/50ms, not {0:?}")]
    Reorder(String),
    /// A value that cannot be read.
    #[error("{key}: {source}")]
    Value {
        /// The key that has the value.
        key: String,
        /// The reason why it cannot be parsed.
        #[source]
        source: UnitError,
    },
}

impl Default for Impairment {
    fn default() -> Self {
        Self {
            delay: Duration::ZERO,
            jitter: Duration::ZERO,
            loss: 0.0,
            burst: None,
            reorder: None,
            duplicate: 0.0,
            corrupt: 0.0,
            corrupt_hidden: 0.0,
            rate: None,
            queue_bytes: QUEUE_BYTES_DEFAULT,
            mtu: None,
            udp_mtu: None,
        }
    }
}

impl Impairment {
    /// Changes the impairments that `impairments` name, and no others.
    ///
    /// # Errors
    /// [`ImpairmentError`]; then nothing has changed.
    pub fn change(&mut self, impairments: &str) -> Result<(), ImpairmentError> {
        let mut changed = self.clone();
        for entry in impairments.split_whitespace() {
            let (key, value) =
                entry.split_once('=').ok_or_else(|| ImpairmentError::NoValue(entry.to_owned()))?;
            changed.set(key, value)?;
        }
        *self = changed;
        Ok(())
    }

    fn set(&mut self, key: &str, value: &str) -> Result<(), ImpairmentError> {
        let off = Self::default();
        let bad = |source| ImpairmentError::Value { key: key.to_owned(), source };
        let is_off = value == "off";
        let time = || if is_off { Ok(Duration::ZERO) } else { units::time(value).map_err(bad) };
        let share = || if is_off { Ok(0.0) } else { units::share(value).map_err(bad) };
        let size = || if is_off { Ok(None) } else { units::size(value).map(Some).map_err(bad) };
        match key {
            "delay" => self.delay = time()?,
            "jitter" => self.jitter = time()?,
            "loss" => self.loss = share()?,
            "duplicate" => self.duplicate = share()?,
            "corrupt" => self.corrupt = share()?,
            "corrupt-hidden" => self.corrupt_hidden = share()?,
            "mtu" => self.mtu = size()?,
            "udp-mtu" => self.udp_mtu = size()?,
            "queue" => self.queue_bytes = size()?.unwrap_or(off.queue_bytes),
            "rate" if is_off => self.rate = None,
            "rate" => self.rate = Some(units::rate(value).map_err(bad)?),
            "burst" if is_off => self.burst = None,
            "burst" => self.burst = Some(burst(value)?),
            "reorder" if is_off => self.reorder = None,
            "reorder" => self.reorder = Some(reorder(value)?),
            _ => return Err(ImpairmentError::Unknown(key.to_owned())),
        }
        Ok(())
    }
}

impl FromStr for Impairment {
    type Err = ImpairmentError;

    fn from_str(impairments: &str) -> Result<Self, Self::Err> {
        let mut impairment = Self::default();
        impairment.change(impairments)?;
        Ok(impairment)
    }
}

impl fmt::Display for Impairment {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let off = Self::default();
        let mut entries = Vec::new();
        let mut add = |key: &str, is_on: bool, value: &dyn Fn() -> String| {
            if is_on {
                entries.push(format!("{key}={}", value()));
            }
        };
        add("delay", self.delay != off.delay, &|| units::format_time(self.delay));
        add("jitter", self.jitter != off.jitter, &|| units::format_time(self.jitter));
        add("loss", self.loss > 0.0, &|| units::format_share(self.loss));
        if let Some(burst) = self.burst {
            let shares = [burst.begins, burst.ends, burst.loss].map(units::format_share);
            add("burst", true, &|| shares.join("/"));
        }
        if let Some(Reorder { share, by }) = self.reorder {
            add("reorder", true, &|| format!("{}/{}", units::format_share(share), units::format_time(by)));
        }
        add("duplicate", self.duplicate > 0.0, &|| units::format_share(self.duplicate));
        add("corrupt", self.corrupt > 0.0, &|| units::format_share(self.corrupt));
        add("corrupt-hidden", self.corrupt_hidden > 0.0, &|| units::format_share(self.corrupt_hidden));
        add("rate", self.rate.is_some(), &|| units::format_rate(self.rate.unwrap_or_default()));
        add("queue", self.queue_bytes != off.queue_bytes, &|| self.queue_bytes.to_string());
        add("mtu", self.mtu.is_some(), &|| self.mtu.unwrap_or_default().to_string());
        add("udp-mtu", self.udp_mtu.is_some(), &|| self.udp_mtu.unwrap_or_default().to_string());
        if entries.is_empty() {
            formatter.write_str("nothing")
        } else {
            formatter.write_str(&entries.join(" "))
        }
    }
}

fn burst(value: &str) -> Result<Burst, ImpairmentError> {
    let bad = |source| ImpairmentError::Value { key: "burst".to_owned(), source };
    let shares: Result<Vec<f64>, _> = value.split('/').map(units::share).collect();
    match shares.map_err(bad)?[..] {
        [begins, ends] => Ok(Burst { begins, ends, loss: 1.0 }),
        [begins, ends, loss] => Ok(Burst { begins, ends, loss }),
        _ => Err(ImpairmentError::Burst(value.to_owned())),
    }
}

fn reorder(value: &str) -> Result<Reorder, ImpairmentError> {
    let bad = |source| ImpairmentError::Value { key: "reorder".to_owned(), source };
    let (share, by) = value.split_once('/').ok_or_else(|| ImpairmentError::Reorder(value.to_owned()))?;
    Ok(Reorder { share: units::share(share).map_err(bad)?, by: units::time(by).map_err(bad)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "delay=40ms jitter=5ms loss=5% burst=1%/30%/90% reorder=25%/50ms duplicate=1% \
                       corrupt=2% corrupt-hidden=3% rate=50mbit queue=65536 mtu=1280 udp-mtu=0";

    #[test]
    fn every_impairment_is_parsed_and_formatted_back() {
        let impairment: Impairment = ALL.parse().unwrap();
        assert_eq!(impairment.to_string(), ALL.split_whitespace().collect::<Vec<_>>().join(" "));
        assert_eq!(impairment.to_string().parse(), Ok(impairment));
    }

    #[test]
    fn every_impairment_can_be_switched_off() {
        let mut impairment: Impairment = ALL.parse().unwrap();
        let off: Vec<String> = ALL
            .split_whitespace()
            .filter_map(|word| word.split_once('='))
            .map(|(key, _)| format!("{key}=off"))
            .collect();
        impairment.change(&off.join(" ")).unwrap();
        assert_eq!(impairment, Impairment::default());
        assert_eq!(impairment.to_string(), "nothing");
    }

    #[test]
    fn a_wrong_impairment_changes_nothing_and_is_named() {
        let mut impairment = Impairment::default();
        for (impairments, expected) in [
            ("loss=5% dely=3ms", "dely"),
            ("loss=5% delay", "KEY=VALUE"),
            ("loss=5% delay=3", "delay: \"3\" is no length of time"),
            ("loss=5% burst=1%", "BEGINS/ENDS"),
            ("loss=5% reorder=1%", "SHARE/TIME"),
        ] {
            let error = impairment.change(impairments).unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
            assert_eq!(impairment, Impairment::default());
        }
    }

    #[test]
    fn the_help_names_every_impairment() {
        for word in ALL.split_whitespace().filter_map(|word| word.split_once('=')) {
            assert!(HELP.contains(&format!("{}=", word.0)), "{word:?}");
        }
    }
}
