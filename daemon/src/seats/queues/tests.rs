//! What holds for whatever comes and goes: no limit is passed, nobody starves, and no seat is idle that somebody waits for and may have.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::Index;

use super::*;

/// Spreads small numbers as a hash does.
const SPREAD: u64 = 0x9e37_79b9_7f4a_7c15;

const LIMITS: SeatLimits = SeatLimits { seats: 4, per_queue: 5, waiting: 12 };

/// What happens to the queues, one thing after another.
#[derive(Debug, Clone)]
enum Event {
    Enter(u64),
    /// One of those who wait.
    Leave(Index),
    /// One of those who have a seat.
    Release(Index),
}

/// The queues, and what is known of everybody who came.
struct Model {
    queues: FairQueues<u64>,
    seated: Vec<Granted>,
    waiting: BTreeMap<u64, Ticket>,
    came: u64,
}

proptest! {
    #[test]
    fn whatever_happens_no_limit_is_passed_nobody_waits_for_a_free_seat_of_its_share_and_everybody_is_somewhere_once(
        events in vec(event(), 0..400)
    ) {
        let mut model = Model::new(LIMITS);
        for event in events {
            model.apply(event)?;
            let queues = &model.queues;
            prop_assert!(queues.taken() <= LIMITS.seats && queues.waiting() <= LIMITS.waiting);
            prop_assert!(queues.queues.iter().all(|queue| queue.waiting.len() <= LIMITS.per_queue));
            for first in queues.queues.iter().filter_map(|queue| queue.waiting.front()) {
                prop_assert!(!queues.may_hold_one_more(first.flow), "a seat is free, and it may have it");
            }
            prop_assert_eq!(queues.held.values().sum::<usize>(), queues.taken());
            prop_assert!(queues.held.values().all(|held| *held > 0), "who has none is forgotten");
            let lengths = queues.queues.iter().map(|queue| queue.waiting.len());
            let taken = queues.queues.iter().map(|queue| queue.taken);
            prop_assert_eq!((lengths.sum::<usize>(), taken.sum::<usize>()), (model.waiting.len(), model.seated.len()));
            prop_assert_eq!((queues.waiting(), queues.taken()), (model.waiting.len(), model.seated.len()));
        }
    }

    /// Whoever has seats lets go of them in whatever order.
    #[test]
    fn with_so_many_greedy_flows_a_modest_one_waits_for_at_most_a_seat_for_each_of_their_queues(
        greedy in vec(any::<u64>(), 1..6),
        modest: u64,
        seats in 1_usize..40,
        order in vec(any::<Index>(), HAND * 6),
    ) {
        let others: BTreeSet<usize> = greedy.iter().flat_map(|&flow| hand(flow)).collect();
        prop_assume!(hand(modest).iter().any(|queue| !others.contains(queue)));
        let mut model = Model::new(SeatLimits { seats, per_queue: 50, waiting: 3_000 });
        // Beyond all that they may have.
        for flow in greedy.iter().cycle().take(greedy.len() * HAND * 60 + seats) {
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
        // The others' queues, where those hold no seat, each once, and then its own.
        prop_assert!(grants <= others.len() + 1, "{grants} grants, {} queues of others", others.len());
        if seats > 2 * greedy.len() {
            prop_assert!(grants <= 1, "where all others hold seats it is the next");
        }
    }

    /// Among flows that share no queue.
    #[test]
    fn nobody_who_fills_all_queues_has_a_modest_flow_turned_away(greedy: u64, modest: u64) {
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

        prop_assert_eq!(model.queues.waiting(), 20, "others made place");
    }

    /// However many come, and whatever each of them already has.
    #[test]
    fn whoever_has_no_seat_waits_only_where_none_is_free(
        flows in vec(0_u64..20, 0..200), seats in 1_usize..40, newcomer in 20_u64..40
    ) {
        let mut model = Model::new(SeatLimits { seats, per_queue: 50, waiting: 3_000 });
        for flow in flows {
            model.enter(flow.wrapping_mul(SPREAD))?;
        }
        let free = seats - model.queues.taken();

        let me = model.enter(newcomer.wrapping_mul(SPREAD))?;

        prop_assert_eq!(me.is_some_and(|me| model.waiting.contains_key(&me)), free == 0);
    }

    /// Of so many that all want more: each has its share to a seat, in whatever order they came.
    #[test]
    fn those_who_want_more_have_about_as_many_seats_each_and_some_stay_free(
        count in 1_usize..6, seats in 30_usize..120, order in vec(any::<Index>(), 120)
    ) {
        let flows: Vec<u64> = (1..=count as u64).map(|flow| flow.wrapping_mul(SPREAD)).collect();
        let mut model = Model::new(SeatLimits { seats, per_queue: 1_000, waiting: 100_000 });
        for &flow in flows.iter().flat_map(|flow| std::iter::repeat_n(flow, seats)) {
            model.enter(flow)?;
        }
        // Who came early has more than its share, until it has let go of that; and whoever has let go wants another.
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
        prop_assert_eq!((dealt.len(), hand(flow)), (HAND, hand(flow)));
        prop_assert!(dealt.iter().all(|queue| *queue < QUEUES));
    }
}

#[test]
fn as_many_wait_in_a_queue_and_in_all_as_may_and_not_one_more() {
    let mut one_queue = FairQueues::new(SeatLimits { seats: 0, per_queue: 3, waiting: 1_000 });
    let waits = |queues: &mut FairQueues<()>, flow| matches!(queues.enter(flow, ()), Entered::Waits { .. });
    assert_eq!((0..100).filter(|_| waits(&mut one_queue, 7)).count(), 3 * HAND);

    let mut all = FairQueues::new(SeatLimits { seats: 0, per_queue: 50, waiting: 10 });
    assert_eq!((0..100).filter(|_| waits(&mut all, 7)).count(), 10);
    assert_eq!(all.waiting(), 10);
}

#[test]
fn one_who_is_alone_has_two_thirds_of_the_seats_and_leaves_one_free_of_three() {
    for seats in 1..=600 {
        let mut queues = FairQueues::new(SeatLimits { seats, per_queue: 1_000, waiting: 1_000 });
        let seated = (0..seats).filter(|_| matches!(queues.enter(7, ()), Entered::Seated(_))).count();
        assert_eq!(seated, (2 * seats).div_ceil(3), "of {seats}");
    }
}

#[test]
fn who_leaves_a_queue_makes_way_for_who_stood_behind_it_and_may_sit() {
    let (slow, quick) = of_one_hand();
    let (_, other) = disjoint();
    let mut model = Model::new(SeatLimits { seats: 3, per_queue: 50, waiting: 100 });
    let mut enter = |flow| model.enter(flow).unwrap().unwrap();
    // Two sit, and in each queue one waits.
    let slow: Vec<u64> = (0..2 + HAND).map(|_| enter(slow)).collect();
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
    // Both of its seats, until one of them is free. From then on each has one, and whoever has just let go has none.
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
fn in_a_queue_the_first_is_the_first() {
    let mut queues = FairQueues::new(SeatLimits { seats: 1, per_queue: 50, waiting: 100 });
    let Entered::Seated(mut seat) = queues.enter(7, 0) else { panic!("a seat is free") };
    let mut queue_of = BTreeMap::new();
    for me in 1..=3 * HAND {
        let Entered::Waits { ticket, .. } = queues.enter(7, me) else { panic!("there is room") };
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
    assert_eq!(served.values().map(Vec::len).collect::<Vec<_>>(), [3; HAND]);
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

    /// The newcomer, unless it was refused.
    fn enter(&mut self, flow: u64) -> Result<Option<u64>, TestCaseError> {
        self.came += 1;
        let me = self.came;
        match self.queues.enter(flow, me) {
            Entered::Seated(seat) => self.seated.push(seat),
            Entered::Waits { ticket, displaced } => {
                if let Some(displaced) = displaced {
                    prop_assert!(self.waiting.remove(&displaced).is_some(), "only who waits is displaced");
                }
                self.waiting.insert(me, ticket);
            }
            Entered::Crowded(who) => {
                prop_assert_eq!(who, me);
                return Ok(None);
            }
        }
        Ok(Some(me))
    }

    fn release(&mut self, seat: Granted) {
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
        // Few flows, so that some have much.
        3 => (0_u64..6).prop_map(|flow| Event::Enter(flow.wrapping_mul(SPREAD))),
        1 => any::<Index>().prop_map(Event::Leave),
        2 => any::<Index>().prop_map(Event::Release),
    ]
}

/// Two flows that share no queue.
fn disjoint() -> (u64, u64) {
    let taken = hand(SPREAD);
    let mut others = (2..1_000_u64).map(|n| n.wrapping_mul(SPREAD));
    let other = others.find(|&flow| hand(flow).iter().all(|queue| !taken.contains(queue)));
    (SPREAD, other.expect("there are many"))
}

/// Two flows that share every queue: the hash has more digits than a hand is dealt by.
fn of_one_hand() -> (u64, u64) {
    let hands: u64 = (0..HAND as u64).map(|dealt| QUEUES as u64 - dealt).product();
    let flow = SPREAD % hands;
    assert_eq!(hand(flow), hand(flow + hands));
    (flow, flow + hands)
}
