//! Flows over one bottleneck, in simulated time: the same seed, the same packets.

mod cubic;
mod link;
mod pacer;
mod sender;

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::time::{Duration, Instant};

pub(super) use cubic::Cubic;
use link::Link;
pub(super) use link::{LinkSpec, Loss};
use sender::{PACKET_BYTES, Packet, Sender};

use super::control::CongestionControl;

/// A receiver acknowledges every second packet, and a single one after this.
const ACK_DELAY: Duration = Duration::from_millis(25);

/// Size of an acknowledgement on the wire, in bytes.
const ACK_BYTES: u64 = 60;

/// Small requests are made this far apart.
const SMALL_EVERY: Duration = Duration::from_millis(37);

/// Length of the slices in which deliveries are counted.
const SLICE: Duration = Duration::from_millis(100);

/// The data that an application has to send.
#[derive(Debug, Clone)]
pub(super) enum Demand {
    /// Always more, from this time on.
    Bulk { from: Duration },
    /// This many bytes at once, at this interval, until a time; then always more.
    Ticks { bytes: u64, every: Duration, until: Duration },
}

/// The measurements of one flow.
pub(super) struct FlowResult {
    /// Bytes delivered in each [`SLICE`].
    slices: Vec<u64>,
    /// The time at which each small request was made, and its response time.
    small: Vec<(Duration, Duration)>,
    /// Greatest window within each slice.
    windows: Vec<u64>,
}

pub(super) struct Sim {
    start: Instant,
    link: Link,
    /// The other direction, where it is a bottleneck, too. Acknowledgements wait in its queue like everything
    /// else.
    back: Option<Link>,
    rng: super::rng::Rng,
    flows: Vec<Flow>,
    events: BinaryHeap<Reverse<(Duration, u64, Event)>>,
    packets: Vec<Option<InFlight>>,
    next_event: u64,
    queue_max: Vec<Duration>,
}

struct Flow {
    is_back: bool,
    sender: Sender,
    demand: Demand,
    receiver: Receiver,
    wakes_at: Option<Duration>,
    result: FlowResult,
}

#[derive(Default)]
struct Receiver {
    largest: Option<u64>,
    unacked: Vec<u64>,
    first_unacked_at: Option<Duration>,
    /// An acknowledgement has to leave, with data of the other direction or alone.
    is_due: bool,
    marked: bool,
}

enum InFlight {
    Data { flow: usize, packet: Packet, marked: bool },
    Acks { flow: usize, numbers: Vec<u64>, delay: Duration, marked: bool },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Arrives(usize),
    Wakes { flow: usize },
    AckDue { flow: usize },
    Small { flow: usize },
    Demands { flow: usize },
    Rate { from: u64, to: u64 },
}

impl Sim {
    pub(super) fn new(link: LinkSpec, seed: u64) -> Self {
        let mut sim = Self {
            start: Instant::now(),
            rng: super::rng::Rng::new(seed ^ 1),
            link: Link::new(link, seed),
            back: None,
            flows: Vec::new(),
            events: BinaryHeap::new(),
            packets: Vec::new(),
            next_event: 0,
            queue_max: Vec::new(),
        };
        let steps: Vec<_> =
            sim.link.spec.rates.windows(2).map(|two| (two[1].0, two[0].1, two[1].1)).collect();
        for (at, from, to) in steps {
            sim.at(at, Event::Rate { from, to });
        }
        sim
    }

    /// A link whose other direction is like this one.
    pub(super) fn both_ways(link: LinkSpec, seed: u64) -> Self {
        let back = Some(Link::new(link.clone(), seed ^ 2));
        Self { back, ..Self::new(link, seed) }
    }

    /// Adds a flow in the link's direction.
    pub(super) fn add(&mut self, control: Box<dyn CongestionControl>, demand: Demand) {
        self.add_flow(control, demand, false);
    }

    /// Adds a flow in the other direction.
    pub(super) fn add_back(&mut self, control: Box<dyn CongestionControl>, demand: Demand) {
        self.add_flow(control, demand, true);
    }

    fn add_flow(&mut self, control: Box<dyn CongestionControl>, demand: Demand, is_back: bool) {
        let flow = self.flows.len();
        let begins = match demand {
            Demand::Bulk { from } => from,
            Demand::Ticks { .. } => Duration::ZERO,
        };
        self.flows.push(Flow {
            is_back,
            sender: Sender::new(control, self.start),
            demand,
            receiver: Receiver::default(),
            wakes_at: None,
            result: FlowResult { slices: Vec::new(), small: Vec::new(), windows: Vec::new() },
        });
        self.at(begins, Event::Demands { flow });
        if !is_back {
            self.at(begins, Event::Small { flow });
        }
    }

    /// Runs the simulation for this time, and returns the measurements of each flow.
    pub(super) fn run(mut self, lasts: Duration) -> SimResult {
        while let Some(Reverse((now, _, event))) = self.events.pop() {
            if now > lasts {
                break;
            }
            self.handle(now, event);
        }
        SimResult {
            flows: self.flows.into_iter().map(|flow| flow.result).collect(),
            queue_max: self.queue_max,
            overflows: self.link.overflows,
        }
    }

    fn at(&mut self, at: Duration, event: Event) {
        self.next_event += 1;
        self.events.push(Reverse((at, self.next_event, event)));
    }

    fn handle(&mut self, now: Duration, event: Event) {
        match event {
            Event::Rate { from, to } => self.link.rate_changed(now, from, to),
            Event::Small { flow } => {
                let at = self.start + now;
                self.flows[flow].sender.small.push(at);
                self.flows[flow].sender.backlog += PACKET_BYTES / 8;
                self.at(now + SMALL_EVERY, event);
                self.send(now, flow);
            }
            Event::Demands { flow } => {
                self.demand(now, flow);
                self.send(now, flow);
            }
            Event::Wakes { flow } => {
                if self.flows[flow].wakes_at != Some(now) {
                    return;
                }
                self.flows[flow].sender.timeout(self.start + now);
                self.send(now, flow);
            }
            Event::AckDue { flow } => {
                let receiver = &mut self.flows[flow].receiver;
                if receiver.first_unacked_at.is_some_and(|at| at + ACK_DELAY <= now) {
                    receiver.is_due = true;
                    self.acknowledge_when_free(now, flow);
                }
            }
            Event::Arrives(index) => match self.packets[index].take() {
                Some(InFlight::Data { flow, packet, marked }) => self.data(now, flow, packet, marked),
                Some(InFlight::Acks { flow, numbers, delay, marked }) => {
                    self.flows[flow].sender.acked(self.start + now, &numbers, delay, marked);
                    self.send(now, flow);
                }
                None => {}
            },
        }
    }

    fn demand(&mut self, now: Duration, flow: usize) {
        let Flow { sender, demand, .. } = &mut self.flows[flow];
        match *demand {
            Demand::Ticks { bytes, every, until } if now < until => {
                sender.backlog += bytes;
                self.at(now + every, Event::Demands { flow });
            }
            Demand::Bulk { .. } | Demand::Ticks { .. } => sender.backlog = u64::MAX / 2,
        }
    }

    fn send(&mut self, now: Duration, flow: usize) {
        let leaving = self.flows[flow].sender.poll(self.start + now);
        self.acknowledge_with(now, flow, !leaving.is_empty());
        for packet in leaving {
            let slice = (now.as_nanos() / SLICE.as_nanos()) as usize;
            let link = direction(&mut self.link, &mut self.back, self.flows[flow].is_back);
            let waits = link.waits(now);
            grow(&mut self.queue_max, slice, |longest| *longest = waits.max(*longest));
            if let Some((at, marked)) = link.enter(now, PACKET_BYTES) {
                self.arrive(at, InFlight::Data { flow, packet, marked });
            }
        }
        let sender = &self.flows[flow].sender;
        let window = sender.control.window(self.start + now);
        let wakes =
            sender.wakes_at().saturating_duration_since(self.start).max(now + Duration::from_nanos(1));
        let slice = (now.as_nanos() / SLICE.as_nanos()) as usize;
        grow(&mut self.flows[flow].result.windows, slice, |greatest| *greatest = window.max(*greatest));
        if self.flows[flow].wakes_at != Some(wakes) {
            self.flows[flow].wakes_at = Some(wakes);
            self.at(wakes, Event::Wakes { flow });
        }
    }

    fn arrive(&mut self, at: Duration, what: InFlight) {
        self.packets.push(Some(what));
        self.at(at, Event::Arrives(self.packets.len() - 1));
    }

    fn data(&mut self, now: Duration, flow: usize, packet: Packet, marked: bool) {
        let slice = (now.as_nanos() / SLICE.as_nanos()) as usize;
        let Flow { receiver, result, .. } = &mut self.flows[flow];
        grow(&mut result.slices, slice, |bytes| *bytes += PACKET_BYTES);
        let in_order = receiver.largest.is_none_or(|largest| packet.number == largest + 1);
        receiver.largest = receiver.largest.max(Some(packet.number));
        receiver.unacked.push(packet.number);
        receiver.marked |= marked;
        let first = *receiver.first_unacked_at.get_or_insert(now);
        receiver.is_due |= receiver.unacked.len() >= 2 || !in_order;
        if receiver.is_due {
            self.acknowledge_when_free(now, flow);
        } else {
            self.at(first + ACK_DELAY, Event::AckDue { flow });
        }
        if !packet.small.is_empty() {
            self.small(now, flow, packet.small);
        }
    }

    /// Handles small requests that have arrived. They are answered by the flow of the other direction, if
    /// there is one, and else at once and past all queues.
    fn small(&mut self, now: Duration, flow: usize, made: Vec<Instant>) {
        let (start, delay) = (self.start, self.link.spec.delay);
        let is_back = self.flows[flow].is_back;
        match self.opposite(flow) {
            Some(answering) if !is_back => {
                let Flow { sender, .. } = &mut self.flows[answering];
                sender.backlog += made.len() as u64 * PACKET_BYTES / 8;
                sender.small.extend(made);
                self.send(now, answering);
            }
            Some(asking) => {
                let made = made.into_iter().map(|made| made - start);
                self.flows[asking].result.small.extend(made.map(|made| (made, now - made)));
            }
            None => {
                let made = made.into_iter().map(|made| made - start);
                self.flows[flow].result.small.extend(made.map(|made| (made, now + delay - made)));
            }
        }
    }

    /// The flow of the other direction, whose sender is the end that receives this one.
    fn opposite(&self, flow: usize) -> Option<usize> {
        let is_back = self.flows[flow].is_back;
        self.flows.iter().position(|other| other.is_back != is_back)
    }

    /// Sends a due acknowledgement with data of the same end, if there is some, and alone otherwise.
    fn acknowledge_when_free(&mut self, now: Duration, flow: usize) {
        match self.opposite(flow) {
            Some(other) => self.send(now, other),
            None => self.acknowledge(now, flow),
        }
    }

    /// quinn sends due acknowledgements with data, or alone where there is none: not while data waits for its
    /// window or its pace.
    fn acknowledge_with(&mut self, now: Duration, sender: usize, data_leaves: bool) {
        let Some(other) = self.opposite(sender) else { return };
        let has_nothing = self.flows[sender].sender.app_limited;
        let receiver = &self.flows[other].receiver;
        if receiver.is_due && (data_leaves || has_nothing) || data_leaves && !receiver.unacked.is_empty() {
            self.acknowledge(now, other);
        }
    }

    fn acknowledge(&mut self, now: Duration, flow: usize) {
        let spec = &self.link.spec;
        let dark = spec.dark.is_some_and(|(from, until)| (from..until).contains(&now));
        let lost = match spec.loss {
            Loss::Random(part) => self.rng.chance() < part,
            Loss::Bursts { .. } => false,
        };
        let mut at = now + spec.delay;
        if !spec.acks_every.is_zero() {
            let every = spec.acks_every.as_nanos();
            at = Duration::from_nanos((at.as_nanos().div_ceil(every) * every) as u64);
        }
        let Flow { receiver, is_back, .. } = &mut self.flows[flow];
        let Some(first) = receiver.first_unacked_at.take() else { return };
        receiver.is_due = false;
        if self.back.is_some() {
            let link = direction(&mut self.link, &mut self.back, !*is_back);
            let Some((arrives, _)) = link.enter(now, ACK_BYTES) else { return };
            at = arrives;
        }
        if dark || lost {
            // The next one names these packets as well: an acknowledgement lists ranges.
            return;
        }
        let numbers = std::mem::take(&mut receiver.unacked);
        let marked = std::mem::take(&mut receiver.marked);
        self.arrive(at, InFlight::Acks { flow, numbers, delay: now - first, marked });
    }
}

/// The measurements of a simulation.
pub(super) struct SimResult {
    pub(super) flows: Vec<FlowResult>,
    /// Longest wait in the queue, within each slice.
    queue_max: Vec<Duration>,
    overflows: Vec<Duration>,
}

impl SimResult {
    /// Packets that found the bottleneck's queue full within a time.
    pub(super) fn overflows(&self, within: Range<Duration>) -> usize {
        self.overflows.iter().filter(|at| within.contains(*at)).count()
    }

    /// Longest wait in the bottleneck's queue within a time.
    pub(super) fn longest_wait(&self, within: Range<Duration>) -> Duration {
        slices(&self.queue_max, within).max().unwrap_or_default()
    }
}

impl FlowResult {
    /// Delivered bytes a second within a time.
    pub(super) fn rate(&self, within: Range<Duration>) -> f64 {
        let lasts = within.end - within.start;
        slices(&self.slices, within).sum::<u64>() as f64 / lasts.as_secs_f64()
    }

    /// The time below which this part of the small requests made within a time were answered.
    pub(super) fn small(&self, part: f64, within: Range<Duration>) -> Duration {
        let mut took: Vec<_> =
            self.small.iter().filter(|(made, _)| within.contains(made)).map(|(_, took)| *took).collect();
        took.sort();
        let index = (took.len() as f64 * part) as usize;
        took.get(index.min(took.len().saturating_sub(1))).copied().unwrap_or(Duration::MAX)
    }

    /// The greatest window within a time.
    pub(super) fn window(&self, within: Range<Duration>) -> u64 {
        slices(&self.windows, within).max().unwrap_or(0)
    }
}

fn direction<'a>(link: &'a mut Link, back: &'a mut Option<Link>, is_back: bool) -> &'a mut Link {
    match back {
        Some(back) if is_back => back,
        _ => link,
    }
}

fn slices<T: Copy + Default>(of: &[T], within: Range<Duration>) -> impl Iterator<Item = T> {
    let index = |at: Duration| (at.as_nanos() / SLICE.as_nanos()) as usize;
    of.iter().copied().take(index(within.end)).skip(index(within.start))
}

fn grow<T: Default + Clone>(slices: &mut Vec<T>, index: usize, change: impl FnOnce(&mut T)) {
    if slices.len() <= index {
        slices.resize(index + 1, T::default());
    }
    change(&mut slices[index]);
}
