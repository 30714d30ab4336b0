//! Lines that are typed at a steady pace, and the times until their echoes.

use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::time::{Instant, interval_at, timeout};

/// The interval between two lines.
pub const TYPED_EVERY: Duration = Duration::from_millis(100);
/// Lines that may be under way: more than are typed until a wait for the first of them is given up.
const IN_FLIGHT_MAX: usize = 4096;

/// The echo times of lines.
#[derive(Debug, Clone, Copy)]
pub struct EchoTimes {
    /// Number of lines that came back.
    pub lines: usize,
    /// Half of them were back within this time.
    pub p50: Duration,
    /// Of a hundred of them 99 were.
    pub p99: Duration,
    /// The longest time until an echo.
    pub longest: Duration,
}

impl EchoTimes {
    /// Sums up the echo times of lines.
    ///
    /// # Panics
    /// If there are none.
    pub fn of(mut took: Vec<Duration>) -> Self {
        took.sort();
        let part = |part: f64| took[((took.len() - 1) as f64 * part).ceil() as usize];
        Self { lines: took.len(), p50: part(0.5), p99: part(0.99), longest: part(1.0) }
    }
}

/// Types a line from `from` on, repeatedly, while `goes_on` returns true for their number. Returns the time
/// until each echo, counted from when the line was due, so that a slow machine cannot make it look faster.
///
/// # Panics
/// If something else comes back, or nothing within `echo_max`.
pub async fn typed(
    (reader, writer): (&mut (impl AsyncRead + Unpin), &mut (impl AsyncWrite + Unpin)),
    line: &[u8],
    from: Instant,
    echo_max: Duration,
    goes_on: impl Fn(usize) -> bool,
) -> Vec<Duration> {
    let (typed, mut in_flight) = mpsc::channel::<Instant>(IN_FLIGHT_MAX);
    let write = async move {
        let mut ticks = interval_at(from, TYPED_EVERY);
        let mut lines = 0;
        while goes_on(lines) {
            let due = ticks.tick().await;
            writer.write_all(line).await.expect("it is taken");
            writer.flush().await.expect("it is taken");
            typed.send(due).await.expect("somebody reads");
            lines += 1;
        }
    };
    let read = async {
        let mut took = Vec::new();
        while let Some(due) = in_flight.recv().await {
            echoes(reader, line, echo_max).await;
            took.push(due.elapsed());
        }
        took
    };
    tokio::join!(write, read).1
}

/// Waits until a line has come back.
///
/// # Panics
/// If something else does, or nothing within `echo_max`.
pub async fn echoes(reader: &mut (impl AsyncRead + Unpin), line: &[u8], echo_max: Duration) {
    let mut back = vec![0; line.len()];
    timeout(echo_max, reader.read_exact(&mut back)).await.expect("it comes back").expect("all of it");
    assert_eq!(back, line);
}
