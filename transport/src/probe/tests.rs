//! A wrapped controller, called as quinn would call it.

use std::any::Any;

use super::*;

/// The window that the wrapped controller gives.
const WINDOW: u64 = 10_000;
const PACKET: u64 = 1200;

#[test]
fn without_an_allowance_the_window_is_the_controllers_own() {
    let (_, controller, _) = controller();
    assert_eq!(controller.window(), WINDOW);
}

#[test]
fn an_allowance_lets_one_full_packet_pass_a_full_window_and_not_two() {
    let (probe, mut controller, began) = controller();
    controller.on_sent(began, WINDOW, 1);

    probe.allow_probe();

    let mut in_flight = WINDOW;
    assert!(in_flight + PACKET < controller.window(), "quinn sends where this holds");
    controller.on_sent(began, PACKET, 2);
    in_flight += PACKET;
    assert!(in_flight + PACKET >= controller.window(), "and is blocked where it does not");
}

#[test]
fn an_unused_allowance_is_followed_by_one_that_the_pacer_passes() {
    let (probe, mut controller, began) = controller();
    probe.allow_probe();
    probe.allow_probe();
    assert!(controller.window() > u64::from(u32::MAX), "quinn's pacer is off beyond this");
    controller.on_sent(began, 60, 1);
    assert_eq!(controller.window(), WINDOW);
}

#[test]
fn an_answer_is_an_acknowledgement_of_the_ping_or_a_later_packet() {
    let (probe, mut controller, began) = controller();
    controller.on_sent(began, PACKET, 4);
    probe.allow_probe();
    let sent = began + Duration::from_secs(1);
    controller.on_sent(sent, 60, 5);
    let later = sent + Duration::from_millis(300);

    controller.on_end_acks(later, 0, true, Some(4));
    assert_eq!(probe.take_answer(), None, "an older packet was acknowledged");
    controller.on_sent(later, 60, 6);
    controller.on_end_acks(later, 0, true, Some(6));

    let answer = Answer { at: later, round_trip: Duration::from_millis(300) };
    assert_eq!((probe.take_answer(), probe.take_answer()), (Some(answer), None));
}

/// It does not measure the outage.
#[test]
fn an_answer_after_an_outage_measures_the_last_ping() {
    let (probe, mut controller, began) = controller();
    let mut now = began;
    for packet in 0..1000 {
        probe.allow_probe();
        controller.on_sent(now, 60, packet);
        now += Duration::from_millis(250);
    }
    controller.on_end_acks(now, 0, true, Some(998));
    let answer = probe.take_answer().map(|answer| answer.round_trip);
    assert_eq!(answer, Some(Duration::from_millis(500)));
}

#[test]
fn a_pace_is_corrected_as_long_as_the_window_is_not_full() {
    let (probe, mut controller, began) = controller();
    probe.correct_pace(7);
    assert_eq!(controller.window(), WINDOW * 7);
    controller.on_sent(began, WINDOW - PACKET, 1);
    assert_eq!(controller.window(), WINDOW);
    probe.correct_pace(1);
    controller.on_end_acks(began, 0, true, Some(1));
    assert_eq!(controller.window(), WINDOW);
}

#[test]
fn a_pace_is_not_corrected_where_the_window_is_full() {
    let (probe, mut controller, began) = controller();
    probe.correct_pace(7);
    // The controller says that there is room for one more, and a corrected pace would let a whole batch go.
    controller.on_sent(began, WINDOW - 2 * PACKET, 1);
    assert_eq!(controller.window(), WINDOW);
    controller.on_end_acks(began, WINDOW - 2 * PACKET - 1, false, Some(1));
    assert_eq!(controller.window(), WINDOW * 7);
}

#[test]
fn an_answer_takes_the_allowance_back() {
    let (probe, mut controller, began) = controller();
    probe.allow_probe();
    controller.on_sent(began, 60, 1);
    assert!(controller.window() > 60 + PACKET);
    controller.on_end_acks(began, 0, true, Some(1));
    assert_eq!(controller.window(), WINDOW);
}

#[test]
fn lost_bytes_are_not_in_flight() {
    let (probe, mut controller, began) = controller();
    controller.on_sent(began, WINDOW * 3, 1);
    controller.on_congestion_event(began, began, false, WINDOW * 2);
    probe.allow_probe();
    assert_eq!(controller.window(), WINDOW + ALLOWANCE_PACKETS * PACKET);
}

#[test]
fn a_new_path_begins_with_nothing_in_flight_and_the_same_probe() {
    let (probe, mut controller, began) = controller();
    for path in 1..3 {
        controller.on_sent(began, WINDOW * 5, path * 10);
        let mut after = if path == 1 { controller.clone_box() } else { factory(&probe).build(began, 1200) };
        probe.allow_probe();
        assert_eq!(after.window(), WINDOW, "path {path}: the permit fits into an empty window");
        after.on_sent(began, 60, path * 10 + 1);
        after.on_end_acks(began, 0, true, Some(path * 10 + 1));
        assert!(probe.take_answer().is_some(), "path {path}");
    }
}

fn controller() -> (Probe, Box<dyn Controller>, Instant) {
    let (probe, began) = (Probe::new(), Instant::now());
    let controller = factory(&probe).build(began, u16::try_from(PACKET).unwrap());
    (probe, controller, began)
}

fn factory(probe: &Probe) -> Arc<ProbingFactory> {
    Arc::new(probe.factory(Arc::new(Fixed)))
}

/// A controller whose window never changes.
#[derive(Clone)]
struct Fixed;

impl ControllerFactory for Fixed {
    fn build(self: Arc<Self>, _: Instant, _: u16) -> Box<dyn Controller> {
        Box::new(Self)
    }
}

impl Controller for Fixed {
    fn on_congestion_event(&mut self, _: Instant, _: Instant, _: bool, _: u64) {}

    fn on_mtu_update(&mut self, _: u16) {}

    fn window(&self) -> u64 {
        WINDOW
    }

    fn clone_box(&self) -> Box<dyn Controller> {
        Box::new(self.clone())
    }

    fn initial_window(&self) -> u64 {
        WINDOW
    }

    fn into_any(self: Box<Self>) -> Box<dyn Any> {
        self
    }
}
