//! Waiting for a seat: who gets it, who does not, and who was dropped meanwhile.

use std::time::Duration;

use futures::FutureExt;
use futures::future::join_all;
use tokio::time::sleep;

use super::*;

const PATIENCE: Duration = Duration::from_secs(1);
const LIMITS: SeatLimits = SeatLimits { seats: 2, per_queue: 50, waiting: 3 };

#[tokio::test(start_paused = true)]
async fn whoever_waits_gets_the_seat_that_comes_free() {
    let seats = Seats::new(LIMITS);
    let (first, _second) =
        (seats.take("ann", PATIENCE).await.unwrap(), seats.take("ann", PATIENCE).await.unwrap());
    let mut waits = Box::pin(seats.take("ben", PATIENCE));
    assert!(waits.as_mut().now_or_never().is_none(), "all seats are taken");
    assert_eq!(seats.figures(), SeatFigures { taken: 2, waiting: 1 });

    drop(first);

    let seat = waits.await.unwrap();
    assert_eq!(seats.figures(), SeatFigures { taken: 2, waiting: 0 });
    drop(seat);
    assert_eq!(seats.figures().taken, 1);
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_longer_than_it_wants_or_where_there_is_no_room() {
    let seats = Seats::new(LIMITS);
    let _held = [seats.take("ann", PATIENCE).await.unwrap(), seats.take("ann", PATIENCE).await.unwrap()];
    let began = Instant::now();
    let mut waiting: Vec<_> = (0..LIMITS.waiting).map(|_| Box::pin(seats.take("ann", PATIENCE))).collect();
    assert!(waiting.iter_mut().all(|waits| waits.as_mut().now_or_never().is_none()));

    assert_eq!(seats.take("ann", PATIENCE).await.unwrap_err(), NoSeat::Crowded);
    assert_eq!(Instant::now(), began, "at once");
    for waits in waiting {
        assert_eq!(waits.await.unwrap_err(), NoSeat::TooLong);
    }
    assert_eq!(began.elapsed(), PATIENCE);
    assert_eq!(seats.figures(), SeatFigures { taken: 2, waiting: 0 });
}

#[tokio::test(start_paused = true)]
async fn whoever_is_dropped_while_it_waits_leaves_its_place_and_the_seat_that_came_meanwhile() {
    let seats = Seats::new(LIMITS);
    let (first, second) =
        (seats.take("ann", PATIENCE).await.unwrap(), seats.take("ann", PATIENCE).await.unwrap());
    let (mut gone, mut stays) =
        (Box::pin(seats.take("ben", PATIENCE)), Box::pin(seats.take("cid", PATIENCE)));
    assert!(gone.as_mut().now_or_never().is_none() && stays.as_mut().now_or_never().is_none());

    drop(gone);
    assert_eq!(seats.figures().waiting, 1, "its place");
    drop(first);
    // Granted, and nobody has looked.
    assert_eq!(seats.figures(), SeatFigures { taken: 2, waiting: 0 });
    drop(stays);
    assert_eq!(seats.figures().taken, 1, "its seat");
    drop(second);
    assert_eq!(seats.figures(), SeatFigures::default());
}

/// Two flows that share every queue, the hash having more digits than a hand is dealt by.
#[tokio::test(start_paused = true)]
async fn whoever_gives_up_waiting_makes_way_for_who_stood_behind_it_and_may_sit() {
    let seats = Seats::new(SeatLimits { seats: 3, per_queue: 50, waiting: 100 });
    let hands: u64 = (0..HAND).map(|dealt| (QUEUES - dealt) as u64).product();
    let (slow, other, quick) = (0, 1, hands);
    let _held =
        [seats.take_hashed(slow, PATIENCE).await.unwrap(), seats.take_hashed(slow, PATIENCE).await.unwrap()];
    let mut before: Vec<_> = (0..HAND).map(|_| Box::pin(seats.take_hashed(slow, PATIENCE))).collect();
    assert!(before.iter_mut().all(|waits| waits.as_mut().now_or_never().is_none()));
    let last = seats.take_hashed(other, PATIENCE).await.unwrap();
    let mut behind = Box::pin(seats.take_hashed(quick, 2 * PATIENCE));
    assert!(behind.as_mut().now_or_never().is_none(), "all seats are taken");
    drop(last);
    assert!(behind.as_mut().now_or_never().is_none(), "who stands before it may not have the seat");

    drop(before);

    assert!(behind.now_or_never().is_some_and(|seat| seat.is_ok()));
}

#[tokio::test(start_paused = true)]
async fn whoever_fills_the_room_makes_place_for_who_does_not() {
    let seats = Seats::new(SeatLimits { seats: 1, per_queue: 50, waiting: 3 * HAND });
    let _held = seats.take("ann", PATIENCE).await.unwrap();
    let mut greedy: Vec<_> = (0..3 * HAND).map(|_| Box::pin(seats.take("ann", PATIENCE))).collect();
    assert!(greedy.iter_mut().all(|waits| waits.as_mut().now_or_never().is_none()));
    // One whose hand is not all ann's; which names these are is drawn anew for each pool.
    let mut modest: Vec<_> = (0..3).map(|n| Box::pin(seats.take(("ben", n), PATIENCE))).collect();

    let refused = modest.iter_mut().filter_map(|waits| waits.as_mut().now_or_never()).count();

    assert_eq!(refused, 0);
    let displaced = greedy.iter_mut().filter_map(|waits| waits.as_mut().now_or_never()).count();
    assert_eq!(displaced, 3);
}

/// Of 300 that all take a second, 200 sit at a time.
#[tokio::test(start_paused = true)]
async fn requests_of_a_flow_that_began_together_soon_end_apart_and_all_of_its_seats_stay_in_use() {
    let seats = Seats::new(SeatLimits { seats: 300, per_queue: 50, waiting: 300 });
    let ends = Arc::new(Mutex::new(Vec::new()));
    let began = Instant::now();
    let asks = (0..300).map(|_| {
        let (seats, ends) = (seats.clone(), Arc::clone(&ends));
        async move {
            for _ in 0..10 {
                let seat = seats.take("ann", 10 * PATIENCE).await.unwrap();
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
async fn a_seats_beginning_is_put_off_for_no_longer_than_its_holder_waits() {
    let seats = Seats::new(SeatLimits { seats: 600, per_queue: 100, waiting: 600 });
    let take_all = async |patience| join_all((0..500).map(|_| seats.take("ann", patience))).await;
    let mut first: Vec<_> = take_all(PATIENCE / 10).await.into_iter().filter_map(Result::ok).collect();
    sleep(PATIENCE).await;
    let last = first.pop();
    drop(first);
    let began = Instant::now();

    let second = take_all(PATIENCE / 10).await;

    assert_eq!(second.iter().filter(|seat| seat.is_ok()).count(), 399);
    assert_eq!(began.elapsed(), PATIENCE / 10);
    drop(last);
}
