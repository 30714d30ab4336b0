//! A running link: both directions, the NAT at side A, the clock, and the changes that are possible while it
//! runs.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rustix::event::{EventfdFlags, eventfd};

use crate::clock::monotonic_ns;
use crate::device::Device;
use crate::impairment::{Impairment, ImpairmentError};
use crate::nat::{Nat, NatOptions};
use crate::pipe::Pipe;
use crate::report::{DirectionReport, Report};
use crate::schedule::{DIRECTIONS, Dark, Direction};

/// Most reopenings on command that the report lists; older ones are forgotten.
const OPENINGS_MAX: usize = 1024;

/// The options of a link.
#[derive(Debug, Clone, Default)]
pub struct LinkOptions {
    /// The seed of all chance.
    pub seed: u64,
    /// The impairments from A to B.
    pub a_to_b: Impairment,
    /// The impairments from B to A.
    pub b_to_a: Impairment,
    /// The scheduled times at which nothing passes.
    pub darks: Vec<Dark>,
    /// The NAT in front of side A, if there is one.
    pub nat: Option<NatOptions>,
}

/// A link that threads carry packets across, and that commands can change.
#[derive(Debug)]
pub struct Link {
    seed: u64,
    started: Instant,
    started_ns: u64,
    darks: Vec<Dark>,
    directions: [DirectionState; 2],
    nat: Option<Mutex<Nat>>,
    openings_ns: Mutex<Vec<u64>>,
    is_stopping: AtomicBool,
}

/// The state of one direction.
#[derive(Debug)]
struct DirectionState {
    pipe: Mutex<Pipe>,
    /// The device that its packets come from, once it is attached.
    from: OnceLock<Arc<Device>>,
    /// An eventfd that wakes the thread that waits for packets.
    wake: OwnedFd,
}

impl Link {
    /// A link whose time begins now.
    ///
    /// # Errors
    /// If this process has no file descriptor left.
    pub fn new(options: LinkOptions) -> io::Result<Self> {
        let LinkOptions { seed, a_to_b, b_to_a, darks, nat } = options;
        let state = |direction, impairment, seed| {
            let darks = darks.iter().filter(|dark| dark.applies_to(direction)).copied().collect();
            let wake = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
            let pipe = Mutex::new(Pipe::new(impairment, darks, seed));
            Ok::<_, io::Error>(DirectionState { pipe, from: OnceLock::new(), wake })
        };
        // Seeds far apart, so that the directions do not draw the same numbers.
        let seeds =
            [1, 2, 3].map(|number: u64| seed.wrapping_add(number.wrapping_mul(0x9e37_79b9_0000_0001)));
        Ok(Self {
            seed,
            started: Instant::now(),
            started_ns: monotonic_ns(),
            directions: [
                state(Direction::AToB, a_to_b, seeds[0])?,
                state(Direction::BToA, b_to_a, seeds[1])?,
            ],
            nat: nat.map(|options| Mutex::new(Nat::new(options, seeds[2]))),
            darks,
            openings_ns: Mutex::default(),
            is_stopping: AtomicBool::new(false),
        })
    }

    /// Attaches the device that a direction's packets come from, for the report. Only the first call counts.
    pub fn attach(&self, direction: Direction, from: Arc<Device>) {
        let _ = self.direction(direction).from.set(from);
    }

    /// The time since the link's start.
    pub fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// The pipe of one direction, locked.
    pub fn pipe(&self, direction: Direction) -> MutexGuard<'_, Pipe> {
        locked(&self.direction(direction).pipe)
    }

    /// The NAT, locked; `None` without one.
    pub fn nat(&self) -> Option<MutexGuard<'_, Nat>> {
        self.nat.as_ref().map(locked)
    }

    /// The eventfd that wakes a thread that waits for packets of this direction.
    pub fn wake(&self, direction: Direction) -> &OwnedFd {
        &self.direction(direction).wake
    }

    /// Returns true if the threads have to end.
    pub fn is_stopping(&self) -> bool {
        self.is_stopping.load(Ordering::Acquire)
    }

    /// Tells the threads to end.
    pub fn stop(&self) {
        self.is_stopping.store(true, Ordering::Release);
        DIRECTIONS.into_iter().for_each(|direction| self.wake_thread(direction));
    }

    /// Makes one direction, or both, dark until [`Self::up`]. Nothing passes after the instant that is
    /// returned, in nanoseconds of the machine's `CLOCK_MONOTONIC`.
    pub fn down(&self, direction: Option<Direction>) -> u64 {
        self.set_down(direction, true)
    }

    /// Leaves one direction, or both, to the schedule again. Packets after the instant that is returned pass.
    pub fn up(&self, direction: Option<Direction>) -> u64 {
        let opened_ns = self.set_down(direction, false);
        let mut openings = locked(&self.openings_ns);
        openings.push(opened_ns);
        let surplus = openings.len().saturating_sub(OPENINGS_MAX);
        openings.drain(..surplus);
        opened_ns
    }

    /// Changes the impairments that `impairments` name, of one direction or both.
    ///
    /// # Errors
    /// [`ImpairmentError`]; then nothing has changed.
    pub fn change(&self, direction: Option<Direction>, impairments: &str) -> Result<(), ImpairmentError> {
        let chosen = || DIRECTIONS.into_iter().filter(|one| direction.is_none_or(|only| only == *one));
        for one in chosen() {
            self.pipe(one).impairment().clone().change(impairments)?;
        }
        for one in chosen() {
            let mut pipe = self.pipe(one);
            let mut impairment = pipe.impairment().clone();
            impairment.change(impairments)?;
            pipe.set_impairment(impairment);
        }
        Ok(())
    }

    /// Lets the NAT forget all senders, and returns their number and the time; `None` without a NAT.
    pub fn rebind(&self, address: Option<Ipv4Addr>) -> Option<(usize, u64)> {
        let forgotten = self.nat()?.rebind(address);
        Some((forgotten, monotonic_ns()))
    }

    /// The report of everything that happened so far.
    pub fn report(&self) -> Report {
        let now = self.now();
        let scheduled = self.darks.iter().map(Dark::end).filter(|end| *end <= now);
        let scheduled = scheduled.map(|end| self.started_ns + end.as_nanos() as u64);
        let mut openings_ns: Vec<u64> = locked(&self.openings_ns).iter().copied().chain(scheduled).collect();
        openings_ns.sort_unstable();
        let report = |direction| {
            let pipe = self.pipe(direction);
            DirectionReport {
                impairment: pipe.impairment().to_string(),
                is_dark: pipe.is_dark(now),
                dropped_unread: self.direction(direction).from.get().map_or(0, |device| device.unread()),
                counters: pipe.counters,
            }
        };
        Report {
            seed: self.seed,
            seconds: now.as_secs_f64(),
            started_ns: self.started_ns,
            openings_ns,
            a_to_b: report(Direction::AToB),
            b_to_a: report(Direction::BToA),
            nat: self.nat().map(|nat| nat.counters),
        }
    }

    fn set_down(&self, direction: Option<Direction>, is_down: bool) -> u64 {
        // Both are locked while the clock is read, so that neither passes a packet on the wrong side of the
        // instant.
        let mut pipes = DIRECTIONS
            .into_iter()
            .filter(|one| direction.is_none_or(|only| only == *one))
            .map(|one| self.pipe(one))
            .collect::<Vec<_>>();
        pipes.iter_mut().for_each(|pipe| pipe.set_down(is_down));
        monotonic_ns()
    }

    fn direction(&self, direction: Direction) -> &DirectionState {
        match direction {
            Direction::AToB => &self.directions[0],
            Direction::BToA => &self.directions[1],
        }
    }

    fn wake_thread(&self, direction: Direction) {
        // It fails only when the count is full, and then the thread is woken anyway.
        let _ = rustix::io::write(self.direction(direction).wake.as_fd(), &1_u64.to_ne_bytes());
    }
}

// A thread that panicked has left a valid pipe behind, between two packets.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_that_cannot_be_read_changes_neither_direction() {
        let link = Link::new(LinkOptions::default()).unwrap();
        assert!(link.change(None, "loss=5% unknown=1").is_err());
        assert_eq!(link.report().a_to_b.impairment, "nothing");
        link.change(Some(Direction::BToA), "loss=5%").unwrap();
        let report = link.report();
        assert_eq!([report.a_to_b.impairment, report.b_to_a.impairment], ["nothing", "loss=5%"]);
    }

    #[test]
    fn every_reopening_is_reported_with_its_time() {
        let darks = vec!["0s+0s".parse().unwrap(), "1h+1h".parse().unwrap()];
        let link = Link::new(LinkOptions { darks, ..LinkOptions::default() }).unwrap();
        let before = link.down(None);
        assert!(link.report().a_to_b.is_dark);
        let opened = link.up(None);
        assert!(before < opened && opened <= monotonic_ns());
        assert_eq!(link.report().openings_ns, [link.started_ns, opened]);
    }

    #[test]
    fn one_direction_can_be_dark_alone() {
        let link = Link::new(LinkOptions::default()).unwrap();
        link.down(Some(Direction::AToB));
        let report = link.report();
        assert!(report.a_to_b.is_dark && !report.b_to_a.is_dark);
    }

    #[test]
    fn without_a_nat_there_is_nothing_to_rebind() {
        assert_eq!(Link::new(LinkOptions::default()).unwrap().rebind(None), None);
    }
}
