//! Shells in which lines are typed, and how long each took to come back.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use ::tests::caller::{Reader, Writer, upgrade};
use ::tests::rig::Rig;
use linksim::dice::Dice;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval_at, sleep, timeout};

const TYPED_EVERY: Duration = Duration::from_millis(100);
/// As long as a keystroke in the frame of a WebSocket, or of SPDY.
const LINE_BYTES: usize = 32;
/// What has not come back by then never does.
const ECHO_MAX: Duration = Duration::from_secs(30);

/// Upgraded connections behind which everything is echoed.
pub(super) struct Shells(Vec<Shell>);

struct Shell {
    reader: Reader,
    writer: Writer,
    /// When its first line of a turn is typed, so that not all type at once.
    offset: Duration,
}

impl Shells {
    pub(super) async fn open(rig: &Rig, path: &str, count: u32, seed: u64) -> Self {
        let mut dice = Dice::new(seed);
        let mut shells = Vec::new();
        for _ in 0..count {
            let (reader, writer, first) = upgrade(rig, path).await;
            assert!(first.is_empty(), "a shell that says something by itself");
            let offset = Duration::from_micros(dice.below(TYPED_EVERY.as_micros() as u64));
            shells.push(Shell { reader, writer, offset });
        }
        Self(shells)
    }

    /// Types for so long, and returns how long each line took, in milliseconds.
    pub(super) async fn typed(&mut self, lasts: Duration) -> Vec<f64> {
        let mut typing = JoinSet::new();
        for shell in self.0.drain(..) {
            typing.spawn(shell.typed(lasts));
        }
        let mut all = Vec::new();
        for (shell, took) in typing.join_all().await {
            self.0.push(shell);
            all.extend(took.iter().map(|took| took.as_secs_f64() * 1e3));
        }
        all
    }
}

impl Shell {
    async fn typed(mut self, lasts: Duration) -> (Self, Vec<Duration>) {
        sleep(self.offset).await;
        let lines = (lasts.as_secs_f64() / TYPED_EVERY.as_secs_f64()) as usize;
        let typed = Arc::<Mutex<VecDeque<Instant>>>::default();
        let (writer, noted) = (&mut self.writer, Arc::clone(&typed));
        let write = async move {
            let mut ticks = interval_at(tokio::time::Instant::now(), TYPED_EVERY);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            for _ in 0..lines {
                // When it should have been typed: a machine that is late makes no echo look quick.
                let due = ticks.tick().await;
                noted.lock().unwrap_or_else(PoisonError::into_inner).push_back(due.into_std());
                writer.write_all(&[b'k'; LINE_BYTES]).await.expect("the gateway reads");
                writer.flush().await.expect("the gateway reads");
            }
        };
        let reader = &mut self.reader;
        let read = async {
            let mut took = Vec::with_capacity(lines);
            for _ in 0..lines {
                let mut line = [0; LINE_BYTES];
                let read = timeout(ECHO_MAX, reader.read_exact(&mut line)).await;
                read.expect("an echo in time").expect("an echo");
                let typed = typed.lock().unwrap_or_else(PoisonError::into_inner).pop_front();
                took.push(typed.expect("it was typed").elapsed());
            }
            took
        };
        let ((), took) = tokio::join!(write, read);
        (self, took)
    }
}
