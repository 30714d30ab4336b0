//! Tests of waiting for a seat: grants, rejections, timeouts and cancellation.

use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::sleep;

use super::*;

const WAIT_MAX: Duration = Duration::from_secs(1);
const LIMITS: SeatLimits = SeatLimits { seats: 2, per_queue: 50, waiting: 3 };

#[tokio::test(start_paused = true)]
async fn a_waiter_gets_the_seat_that_becomes_free() {
    let seats = Seats::new(LIMITS);
    let (first, _second) =
        (seats.take("ann", WAIT_MAX).await.unwrap(), seats.take("ann", WAIT_MAX).await.unwrap());
    let mut waits = Box::pin(seats.take("ben", WAIT_MAX));
    assert!(waits.as_mut().now_or_never().is_none(), "all seats are taken");
    assert_eq!(seats.figures(), SeatFigures { taken: 2, waiting: 1 });

    drop(first);

    let seat = waits.await.unwrap();
    assert_eq!(seats.figures(), SeatFigures { taken: 2, waiting: 0 });
    drop(seat);
    assert_eq!(seats.figures().taken, 1);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_times_out_and_a_full_queue_rejects_at_once() {
    let seats = Seats::new(LIMITS);
    let _held = [seats.take("ann", WAIT_MAX).await.unwrap(), seats.take("ann", WAIT_MAX).await.unwrap()];
    let began = Instant::now();
    let mut waiting: Vec<_> = (0..LIMITS.waiting).map(|_| Box::pin(seats.take("ann", WAIT_MAX))).collect();
    assert!(waiting.iter_mut().all(|waits| waits.as_mut().now_or_never().is_none()));

    assert_eq!(seats.take("ann", WAIT_MAX).await.unwrap_err(), NoSeat::QueueFull);
    assert_eq!(Instant::now(), began, "at once");
    for waits in waiting {
        assert_eq!(waits.await.unwrap_err(), NoSeat::TimedOut);
    }
    assert_eq!(began.elapsed(), WAIT_MAX);
    assert_eq!(seats.figures(), SeatFigures { taken: 2, waiting: 0 });
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_waiter_leaves_its_queue_and_its_granted_seat() {
    let seats = Seats::new(LIMITS);
    let (first, second) =
        (seats.take("ann", WAIT_MAX).await.unwrap(), seats.take("ann", WAIT_MAX).await.unwrap());
    let (mut cancelled, mut waiting) =
        (Box::pin(seats.take("ben", WAIT_MAX)), Box::pin(seats.take("cid", WAIT_MAX)));
    assert!(cancelled.as_mut().now_or_never().is_none() && waiting.as_mut().now_or_never().is_none());

    drop(cancelled);
    assert_eq!(seats.figures().waiting, 1, "its slot");
    drop(first);
    // The seat is granted, but the waiter was not polled.
    assert_eq!(seats.figures(), SeatFigures { taken: 2, waiting: 0 });
    drop(waiting);
    assert_eq!(seats.figures().taken, 1, "its seat");
    drop(second);
    assert_eq!(seats.figures(), SeatFigures::default());
}

/// Uses two flows with the same hand: the hash has more digits than a hand is dealt by.
#[tokio::test(start_paused = true)]
async fn a_cancelled_waiter_lets_an_admissible_one_behind_it_pass() {
    let seats = Seats::new(SeatLimits { seats: 3, per_queue: 50, waiting: 100 });
    let hands: u64 = (0..HAND_SIZE).map(|dealt| (QUEUES - dealt) as u64).product();
    let (slow, other, quick) = (0, 1, hands);
    let _held =
        [seats.take_hashed(slow, WAIT_MAX).await.unwrap(), seats.take_hashed(slow, WAIT_MAX).await.unwrap()];
    let mut before: Vec<_> = (0..HAND_SIZE).map(|_| Box::pin(seats.take_hashed(slow, WAIT_MAX))).collect();
    assert!(before.iter_mut().all(|waits| waits.as_mut().now_or_never().is_none()));
    let last = seats.take_hashed(other, WAIT_MAX).await.unwrap();
    let mut behind = Box::pin(seats.take_hashed(quick, 2 * WAIT_MAX));
    assert!(behind.as_mut().now_or_never().is_none(), "all seats are taken");
    drop(last);
    assert!(behind.as_mut().now_or_never().is_none(), "the waiter in front may not take the seat");

    drop(before);

    assert!(behind.now_or_never().is_some_and(|seat| seat.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn a_flow_that_fills_the_queues_is_displaced_by_modest_ones() {
    let seats = Seats::new(SeatLimits { seats: 1, per_queue: 50, waiting: 3 * HAND_SIZE });
    let _held = seats.take("ann", WAIT_MAX).await.unwrap();
    let mut greedy: Vec<_> = (0..3 * HAND_SIZE).map(|_| Box::pin(seats.take("ann", WAIT_MAX))).collect();
    assert!(greedy.iter_mut().all(|waits| waits.as_mut().now_or_never().is_none()));
    // Flows whose hands differ from ann's; the random key of each pool decides which these are.
    let mut modest: Vec<_> = (0..3).map(|n| Box::pin(seats.take(("ben", n), WAIT_MAX))).collect();

    let refused = modest.iter_mut().filter_map(|waits| waits.as_mut().now_or_never()).count();

    assert_eq!(refused, 0);
    let displaced = greedy.iter_mut().filter_map(|waits| waits.as_mut().now_or_never()).count();
    assert_eq!(displaced, 3);
}

/// Of 300 requests that take a second each, 200 have a seat at a time.
#[tokio::test(start_paused = true)]
async fn requests_that_started_together_spread_out_with_all_seats_used() {
    let seats = Seats::new(SeatLimits { seats: 300, per_queue: 50, waiting: 300 });
    let ends = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let asks = (0..300).map(|_| {
        let (seats, ends) = (seats.clone(), Arc::clone(&ends));
        async move {
            for _ in 0..10 {
                let seat = seats.take("ann", 10 * WAIT_MAX).await.unwrap();
                sleep(Duration::from_secs(1)).await;
                ends.lock().unwrap().push(began.elapsed());
                drop(seat);
            }
        }
    });

    join_all(asks).await;

    let ends = ends.lock().unwrap();
    let within = |millis: u64| {
        let since = Duration::from_millis(millis);
        ends.iter().filter(|end| **end >= since && **end < since + Duration::from_millis(100)).count()
    };
    assert_eq!(within(1000), 200, "those of the first second, together");
    for tenth in 20..120 {
        assert!(within(tenth * 100) <= 60, "{} at {tenth}", within(tenth * 100));
    }
    assert!(*ends.last().unwrap() < Duration::from_secs(17), "15 s is what 3,000 seconds take 200: {ends:?}");
}

#[tokio::test(start_paused = true)]
async fn pacing_delays_a_start_for_no_longer_than_the_wait_limit() {
    let seats = Seats::new(SeatLimits { seats: 600, per_queue: 100, waiting: 600 });
    let take_all = async |wait_max| join_all((0..500).map(|_| seats.take("ann", wait_max))).await;
    let mut first: Vec<_> = take_all(WAIT_MAX / 10).await.into_iter().filter_map(Result::ok).collect();
    sleep(WAIT_MAX).await;
    let last = first.pop();
    drop(first);
    let began = Instant::now();

    let second = take_all(WAIT_MAX / 10).await;

    assert_eq!(second.iter().filter(|seat| seat.is_ok()).count(), 399);
    assert_eq!(began.elapsed(), WAIT_MAX / 10);
    drop(last);
}
