//! Properties for every sequence of events: limits hold, no flow starves, and no seat is idle that a waiter
//! may have.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Spreads small numbers over all bits, as a hash does.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

const LIMITS: SeatLimits = SeatLimits { seats: 4, per_queue: 5, waiting: 12 };

/// The events that happen to the queues.
#[derive(Debug, Clone)]
enum Event {
    Enter(u64),
    /// One of the waiters leaves.
    Leave(Index),
    /// One of the holders releases its seat.
    Release(Index),
}

/// The queues, and the expected state of every arrival.
struct Model {
    queues: FairQueues<u64>,
    seated: Vec<SeatGrant>,
    waiting: BTreeMap<u64, Ticket>,
    came: u64,
}

proptest! {
    #[test]
    fn limits_hold_and_no_waiter_is_left_beside_a_seat_it_may_take(
        events in vec(event(), 0..400)
    ) {
        let mut model = Model::new(LIMITS);
        for event in events {
            model.apply(event)?;
            let queues = &model.queues;
            prop_assert!(queues.taken() <= LIMITS.seats && queues.waiting() <= LIMITS.waiting);
            prop_assert!(queues.queues.iter().all(|queue| queue.waiting.len() <= LIMITS.per_queue));
            for first in queues.queues.iter().filter_map(|queue| queue.waiting.front()) {
                prop_assert!(!queues.may_take_seat(first.flow), "a seat is free, and the waiter may take it");
            }
            prop_assert_eq!(queues.held.values().sum::<usize>(), queues.taken());
            prop_assert!(queues.held.values().all(|held| *held > 0), "flows without seats are removed");
            let lengths = queues.queues.iter().map(|queue| queue.waiting.len());
            let taken = queues.queues.iter().map(|queue| queue.taken);
            prop_assert_eq!((lengths.sum::<usize>(), taken.sum::<usize>()), (model.waiting.len(), model.seated.len()));
            prop_assert_eq!((queues.waiting(), queues.taken()), (model.waiting.len(), model.seated.len()));
        }
    }

    /// Holders release their seats in any order.
    #[test]
    fn a_modest_flow_waits_for_at_most_one_grant_per_greedy_queue(
        greedy in vec(any::<u64>(), 1..6),
        modest: u64,
        seats in 1_usize..40,
        order in vec(any::<Index>(), HAND_SIZE * 6),
    ) {
        let others: BTreeSet<usize> = greedy.iter().flat_map(|&flow| hand(flow)).collect();
        prop_assume!(hand(modest).iter().any(|queue| !others.contains(queue)));
        let mut model = Model::new(SeatLimits { seats, per_queue: 50, waiting: 3_000 });
        // More requests than they may have seats for.
        for flow in greedy.iter().cycle().take(greedy.len() * HAND_SIZE * 60 + seats) {
            model.enter(*flow)?;
        }

        let me = model.enter(modest)?;

        prop_assert!(me.is_some(), "a modest flow is never refused");
        let me = me.unwrap_or_default();
        let mut grants = 0;
        while model.waiting.contains_key(&me) {
            model.apply(Event::Release(order[grants % order.len()]))?;
            grants += 1;
        }
        // Each queue of the others once, if those hold no seat, and then its own.
        prop_assert!(grants <= others.len() + 1, "{grants} grants, {} queues of others", others.len());
        if seats > 2 * greedy.len() {
            prop_assert!(grants <= 1, "if all others hold seats it is the next");
        }
    }

    /// Holds for two flows whose hands differ.
    #[test]
    fn a_greedy_flow_cannot_have_a_modest_one_rejected(greedy: u64, modest: u64) {
        let others = hand(greedy);
        prop_assume!(hand(modest).iter().any(|queue| !others.contains(queue)));
        let mut model = Model::new(SeatLimits { seats: 2, per_queue: 50, waiting: 20 });
        for _ in 0..100 {
            model.enter(greedy)?;
        }
        prop_assert_eq!(model.queues.waiting(), 20);

        for _ in 0..2 {
            let came = model.enter(modest)?;
            prop_assert!(came.is_some_and(|me| model.waiting.contains_key(&me)));
        }

        prop_assert_eq!(model.queues.waiting(), 20, "waiters of others were displaced");
    }

    /// Holds for any number of other flows and their seats.
    #[test]
    fn a_flow_without_seats_waits_only_if_none_is_free(
        flows in vec(0_u64..20, 0..200), seats in 1_usize..40, newest in 20_u64..40
    ) {
        let mut model = Model::new(SeatLimits { seats, per_queue: 50, waiting: 3_000 });
        for flow in flows {
            model.enter(flow.wrapping_mul(SPREAD))?;
        }
        let free = seats - model.queues.taken();

        let me = model.enter(newest.wrapping_mul(SPREAD))?;

        prop_assert_eq!(me.is_some_and(|me| model.waiting.contains_key(&me)), free == 0);
    }

    /// Several flows want more seats than there are: each gets its share to within a seat, in any order of
    /// arrival.
    #[test]
    fn greedy_flows_get_equal_shares_and_some_seats_stay_free(
        count in 1_usize..6, seats in 30_usize..120, order in vec(any::<Index>(), 120)
    ) {
        let flows: Vec<u64> = (1..=count as u64).map(|flow| flow.wrapping_mul(SPREAD)).collect();
        let mut model = Model::new(SeatLimits { seats, per_queue: 1_000, waiting: 100_000 });
        for &flow in flows.iter().flat_map(|flow| std::iter::repeat_n(flow, seats)) {
            model.enter(flow)?;
        }
        // Early flows have more than their share until they release it. Each release is followed by a new request.
        for which in order.iter().cycle().take(10 * seats) {
            let flow = model.seated[which.index(model.seated.len())].flow;
            model.apply(Event::Release(*which))?;
            model.enter(flow)?;
        }

        let share = SHARE * seats / (1 + SHARE * count);
        let held: Vec<usize> = flows.iter().map(|flow| model.queues.held[flow]).collect();
        prop_assert!(held.iter().all(|held| held.abs_diff(share) <= SHARE), "{held:?}, share {share}");
    }

    #[test]
    fn a_hand_is_always_the_same_and_holds_no_queue_twice(flow: u64) {
        let dealt: BTreeSet<usize> = hand(flow).into();
        prop_assert_eq!((dealt.len(), hand(flow)), (HAND_SIZE, hand(flow)));
        prop_assert!(dealt.iter().all(|queue| *queue < QUEUES));
    }
}

#[test]
fn the_waiters_of_a_queue_and_of_all_queues_are_bounded() {
    let mut one_queue = FairQueues::new(SeatLimits { seats: 0, per_queue: 3, waiting: 1_000 });
    let waits =
        |queues: &mut FairQueues<()>, flow| matches!(queues.enter(flow, ()), Admission::Queued { .. });
    assert_eq!((0..100).filter(|_| waits(&mut one_queue, 7)).count(), 3 * HAND_SIZE);

    let mut all = FairQueues::new(SeatLimits { seats: 0, per_queue: 50, waiting: 10 });
    assert_eq!((0..100).filter(|_| waits(&mut all, 7)).count(), 10);
    assert_eq!(all.waiting(), 10);
}

#[test]
fn a_single_flow_gets_two_thirds_of_the_seats() {
    for seats in 1..=600 {
        let mut queues = FairQueues::new(SeatLimits { seats, per_queue: 1_000, waiting: 1_000 });
        let seated = (0..seats).filter(|_| matches!(queues.enter(7, ()), Admission::Seated(_))).count();
        assert_eq!(seated, (2 * seats).div_ceil(3), "of {seats}");
    }
}

#[test]
fn a_leaving_waiter_lets_an_admissible_one_behind_it_pass() {
    let (slow, quick) = of_one_hand();
    let (_, other) = disjoint();
    let mut model = Model::new(SeatLimits { seats: 3, per_queue: 50, waiting: 100 });
    let mut enter = |flow| model.enter(flow).unwrap().unwrap();
    // Two have seats, and one waits in each queue.
    let slow: Vec<u64> = (0..2 + HAND_SIZE).map(|_| enter(slow)).collect();
    enter(other);
    let quick = enter(quick);
    let other = model.seated.pop().unwrap();
    model.release(other);
    assert!(model.waiting.contains_key(&quick), "a seat is free, and who stands before it may not have it");

    for before in slow {
        if let Some(ticket) = model.waiting.remove(&before) {
            model.queues.leave(ticket);
            model.seat_who_may();
        }
    }

    assert!(!model.waiting.contains_key(&quick) && model.seated.len() == 3);
}

#[test]
fn seats_are_shared_and_not_turns() {
    let (slow, quick) = disjoint();
    let mut model = Model::new(SeatLimits { seats: 2, per_queue: 50, waiting: 1_000 });
    for _ in 0..100 {
        model.enter(slow).unwrap();
    }
    // Both of its seats, until one of them is free. From then on each has one, and the releasing flow has none.
    let slows = model.seated.pop().unwrap();
    let mut me = model.enter(quick).unwrap().unwrap();
    model.release(slows);
    for _ in 0..1_000 {
        assert!(!model.waiting.contains_key(&me), "it is next, however often it was before");
        me = model.enter(quick).unwrap().unwrap();
        assert!(model.waiting.contains_key(&me), "no seat is free");
        let mine = model.seated.pop().unwrap();
        assert_eq!(mine.flow, quick);
        model.release(mine);
    }
}

#[test]
fn waiters_of_one_queue_are_served_in_order() {
    let mut queues = FairQueues::new(SeatLimits { seats: 1, per_queue: 50, waiting: 100 });
    let Admission::Seated(mut seat) = queues.enter(7, 0) else { panic!("a seat is free") };
    let mut queue_of = BTreeMap::new();
    for me in 1..=3 * HAND_SIZE {
        let Admission::Queued { ticket, .. } = queues.enter(7, me) else { panic!("there is room") };
        queue_of.insert(me, ticket.queue);
    }
    let mut served: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
    while let Some((granted, me)) = {
        queues.release(seat);
        queues.next()
    } {
        served.entry(queue_of[&me]).or_default().push(me);
        seat = granted;
    }
    assert_eq!(served.values().map(Vec::len).collect::<Vec<_>>(), [3; HAND_SIZE]);
    assert!(served.values().all(|of_queue| of_queue.is_sorted()), "{served:?}");
}

#[test]
fn hands_are_dealt_as_evenly_as_cards() {
    let mut dealt = [0_u32; QUEUES];
    for n in 0..8_000_u64 {
        for queue in hand(n.wrapping_mul(SPREAD)) {
            dealt[queue] += 1;
        }
    }
    // 1,000 on average.
    assert!(dealt.iter().all(|&count| (800..1_200).contains(&count)), "{dealt:?}");
}

impl Model {
    fn new(limits: SeatLimits) -> Self {
        Self { queues: FairQueues::new(limits), seated: Vec::new(), waiting: BTreeMap::new(), came: 0 }
    }

    fn apply(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Enter(flow) => {
                self.enter(flow)?;
            }
            Event::Leave(which) if !self.waiting.is_empty() => {
                let me = *which.get(&self.waiting.keys().copied().collect::<Vec<_>>());
                let ticket = self.waiting.remove(&me).expect("it waits");
                prop_assert_eq!(self.queues.leave(ticket), Some(me));
                prop_assert_eq!(self.queues.leave(ticket), None, "nobody leaves twice");
                self.seat_who_may();
            }
            Event::Release(which) if !self.seated.is_empty() => {
                let seat = self.seated.swap_remove(which.index(self.seated.len()));
                self.release(seat);
            }
            Event::Leave(_) | Event::Release(_) => {}
        }
        Ok(())
    }

    /// The number of the arrival, unless it was rejected.
    fn enter(&mut self, flow: u64) -> Result<Option<u64>, TestCaseError> {
        self.came += 1;
        let me = self.came;
        match self.queues.enter(flow, me) {
            Admission::Seated(seat) => self.seated.push(seat),
            Admission::Queued { ticket, displaced } => {
                if let Some(displaced) = displaced {
                    prop_assert!(self.waiting.remove(&displaced).is_some(), "only who waits is displaced");
                }
                self.waiting.insert(me, ticket);
            }
            Admission::Rejected(who) => {
                prop_assert_eq!(who, me);
                return Ok(None);
            }
        }
        Ok(Some(me))
    }

    fn release(&mut self, seat: SeatGrant) {
        self.queues.release(seat);
        self.seat_who_may();
    }

    fn seat_who_may(&mut self) {
        while let Some((seat, who)) = self.queues.next() {
            assert!(self.waiting.remove(&who).is_some(), "only who waits is given a seat");
            self.seated.push(seat);
        }
    }
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        // Few flows, so that some have many seats.
        3 => (0_u64..6).prop_map(|flow| Event::Enter(flow.wrapping_mul(SPREAD))),
        1 => any::<Index>().prop_map(Event::Leave),
        2 => any::<Index>().prop_map(Event::Release),
    ]
}

/// Two flows whose hands share no queue.
fn disjoint() -> (u64, u64) {
    let taken = hand(SPREAD);
    let mut others = (2..1_000_u64).map(|n| n.wrapping_mul(SPREAD));
    let other = others.find(|&flow| hand(flow).iter().all(|queue| !taken.contains(queue)));
    (SPREAD, other.expect("there are many"))
}

/// Two flows with the same hand: the hash has more digits than a hand is dealt by.
fn of_one_hand() -> (u64, u64) {
    let hands: u64 = (0..HAND_SIZE as u64).map(|dealt| QUEUES as u64 - dealt).product();
    let flow = SPREAD % hands;
    assert_eq!(hand(flow), hand(flow + hands));
    (flow, flow + hands)
}
