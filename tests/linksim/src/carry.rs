//! Moves packets from one device to the other through the link's pipe and NAT.

use std::io;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use tun_rs::SyncDevice;

use crate::link::Link;
use crate::schedule::Direction;

/// The longest packet of IP.
const PACKET_BYTES_MAX: usize = 65_536;
/// Most packets that are read before due packets are written.
const BATCH: usize = 64;

/// Carries one direction until the link stops or the device is gone.
///
/// # Errors
/// The device at the near end cannot be read.
pub fn carry(link: &Link, direction: Direction, from: &SyncDevice, to: &SyncDevice) -> io::Result<()> {
    let mut buffer = vec![0; PACKET_BYTES_MAX];
    while !link.is_stopping() {
        let more = read_packets(link, direction, from, &mut buffer)?;
        let next = write_due_packets(link, direction, to);
        if !more {
            wait(link, direction, from, next)?;
        }
    }
    Ok(())
}

// Reads a batch of packets. Returns whether there may be more.
fn read_packets(link: &Link, direction: Direction, from: &SyncDevice, buffer: &mut [u8]) -> io::Result<bool> {
    for _ in 0..BATCH {
        let length = match from.recv(buffer) {
            Ok(length) => length,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        };
        let packet = &mut buffer[..length];
        if crate::packet::is_link_local_multicast(packet) {
            continue;
        }
        let now = link.now();
        let passes =
            direction == Direction::BToA || link.nat().is_none_or(|mut nat| nat.outbound(now, packet));
        let mut pipe = link.pipe(direction);
        if passes {
            pipe.admit(now, packet.to_vec());
        } else {
            pipe.counters.dropped_nat += 1;
        }
    }
    Ok(true)
}

// Writes the packets that are due, and returns when the next one is. Writing holds the lock, so that nothing
// passes once `Link::down` has returned.
fn write_due_packets(link: &Link, direction: Direction, to: &SyncDevice) -> Option<Duration> {
    let mut pipe = link.pipe(direction);
    let now = link.now();
    while let Some(mut packet) = pipe.release(now) {
        let passes =
            direction == Direction::AToB || link.nat().is_none_or(|mut nat| nat.inbound(now, &mut packet));
        if !passes {
            pipe.counters.dropped_nat += 1;
        } else if to.send(&packet).is_err() {
            pipe.counters.dropped_device += 1;
        }
    }
    pipe.next_release()
}

fn wait(link: &Link, direction: Direction, from: &SyncDevice, until: Option<Duration>) -> io::Result<()> {
    let timeout = until.map(|until| until.saturating_sub(link.now()));
    let timeout = timeout.map(|timeout| Timespec {
        tv_sec: timeout.as_secs().cast_signed(),
        tv_nsec: timeout.subsec_nanos().into(),
    });
    let mut waited = [PollFd::new(from, PollFlags::IN), PollFd::new(link.wake(direction), PollFlags::IN)];
    match poll(&mut waited, timeout.as_ref()) {
        Ok(_) | Err(rustix::io::Errno::INTR) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
