//! The TUN devices at the two ends of a link.

use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::Ipv4Addr;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
use tun_rs::{DeviceBuilder, SyncDevice};

/// Most packets that wait in the kernel until we read them: 50 ms of full packets at 1 Gbit/s.
const QUEUE_PACKETS: u32 = 4096;

/// The specification of one end's device: its namespace, its name and its address.
#[derive(Debug, Clone)]
pub struct DeviceSpec {
    /// A path such as `/run/netns/NAME`; this process's own namespace, if `None`.
    pub namespace: Option<PathBuf>,
    /// The device's name in it.
    pub name: String,
    /// The address that it gets, if any.
    pub address: Option<Address>,
    /// The longest packet that the kernel puts into it, in bytes.
    pub mtu: u16,
}

/// An open device, and the kernel's counters of it.
pub struct Device {
    tun: SyncDevice,
    name: String,
    /// `/proc/net/dev` of the namespace in which it was opened, in whichever namespace it is read.
    interfaces: Mutex<File>,
}

/// An IPv4 address with a prefix length, such as `10.9.0.1/30`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Address {
    address: Ipv4Addr,
    prefix: u8,
}

/// Text that is no [`Address`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is no IPv4 address with a prefix; write 10.9.0.1/30")]
pub struct NotAnAddress(String);

/// The reason why a device could not be made.
#[derive(Debug, thiserror::Error)]
pub enum DeviceError {
    /// The namespace cannot be opened.
    #[error("{} cannot be opened; make the namespace first, as with `ip netns add`", .path.display())]
    NoNamespace {
        /// The path of the namespace.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The namespace cannot be entered.
    #[error("{} cannot be entered; run as root, or as root of the user namespace that owns it", .path.display())]
    NotEntered {
        /// The path of the namespace.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The system has no `/dev/net/tun`.
    #[error("there is no /dev/net/tun; `modprobe tun`, or give the container that device")]
    NoTun(#[source] io::Error),
    /// This process lacks the permission.
    #[error("the device {name} may not be made; run as root (CAP_NET_ADMIN in its namespace)")]
    Denied {
        /// The name of the device.
        name: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Anything else, such as a name that is taken.
    #[error("the device {name} could not be made; is the name taken, or longer than 15 letters?")]
    Refused {
        /// The name of the device.
        name: String,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
}

impl FromStr for Address {
    type Err = NotAnAddress;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let read = || {
            let (address, prefix) = text.split_once('/')?;
            let prefix = prefix.parse().ok().filter(|prefix| *prefix <= 32)?;
            Some(Self { address: address.parse().ok()?, prefix })
        };
        read().ok_or_else(|| NotAnAddress(text.to_owned()))
    }
}

impl DeviceSpec {
    /// Makes the device, up and with its address. It is gone when the last value that holds it is.
    ///
    /// # Errors
    /// [`DeviceError`], which says what to do.
    pub fn open(&self) -> Result<Device, DeviceError> {
        let Some(path) = &self.namespace else { return self.make() };
        // A thread of its own: what enters a namespace stays there.
        thread::scope(|scope| {
            let made = scope.spawn(|| {
                enter(path)?;
                self.make()
            });
            made.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        })
    }

    fn make(&self) -> Result<Device, DeviceError> {
        let name = self.name.clone();
        let mut builder = DeviceBuilder::new().name(&self.name).mtu(self.mtu).tx_queue_len(QUEUE_PACKETS);
        if let Some(Address { address, prefix }) = self.address {
            builder = builder.ipv4(address, prefix, None);
        }
        let made = builder.build_sync().and_then(|tun| {
            tun.set_nonblocking(true)?;
            let interfaces = Mutex::new(File::open("/proc/thread-self/net/dev")?);
            Ok(Device { tun, name: name.clone(), interfaces })
        });
        made.map_err(|source| match source.kind() {
            io::ErrorKind::NotFound => DeviceError::NoTun(source),
            io::ErrorKind::PermissionDenied => DeviceError::Denied { name, source },
            _ => DeviceError::Refused { name, source },
        })
    }
}

impl Device {
    /// The TUN device: reading takes packets that the kernel sends, writing hands packets to the kernel.
    pub fn tun(&self) -> &SyncDevice {
        &self.tun
    }

    /// Packets that the kernel dropped, because too many waited to be read already.
    pub fn unread(&self) -> u64 {
        let mut text = String::new();
        let mut interfaces = self.interfaces.lock().unwrap_or_else(PoisonError::into_inner);
        let read = interfaces.rewind().and_then(|()| interfaces.read_to_string(&mut text));
        read.ok().and_then(|_| dropped(&text, &self.name)).unwrap_or_default()
    }
}

impl fmt::Debug for Device {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Device").field("name", &self.name).finish_non_exhaustive()
    }
}

// proc_pid_net(5): eight columns of receiving, then bytes, packets, errors and drops of sending.
fn dropped(interfaces: &str, name: &str) -> Option<u64> {
    let mut lines = interfaces.lines().filter_map(|line| line.split_once(':'));
    let (_, columns) = lines.find(|(known, _)| known.trim() == name)?;
    columns.split_whitespace().nth(11)?.parse().ok()
}

fn enter(path: &Path) -> Result<(), DeviceError> {
    let namespace =
        File::open(path).map_err(|source| DeviceError::NoNamespace { path: path.to_owned(), source })?;
    move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
        .map_err(|source| DeviceError::NotEntered { path: path.to_owned(), source: source.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_has_a_prefix() {
        assert!("10.9.0.1/30".parse::<Address>().is_ok());
        for text in ["", "10.9.0.1", "10.9.0.1/33", "10.9.0/24", "::1/64"] {
            assert_eq!(text.parse::<Address>(), Err(NotAnAddress(text.to_owned())));
        }
    }

    #[test]
    fn the_kernels_own_drops_are_found_by_the_devices_name() {
        let text = "Inter-| Receive | Transmit\n face |bytes ...\n  lo: 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16\n\
                    link-a: 1 2 3 4 5 6 7 8 9 10 11 77 13 14 15 16\n";
        assert_eq!(
            (dropped(text, "link-a"), dropped(text, "lo"), dropped(text, "li")),
            (Some(77), Some(12), None)
        );
    }

    #[test]
    fn an_absent_namespace_is_named_with_what_to_do() {
        let namespace = Some("/run/netns/there-is-none".into());
        let spec = DeviceSpec { namespace, name: "link".to_owned(), address: None, mtu: 1500 };
        let Err(error) = spec.open() else { panic!("a device in an absent namespace") };
        assert!(
            error.to_string().contains("/run/netns/there-is-none")
                && error.to_string().contains("ip netns add")
        );
    }
}
