//! Shells in which lines are typed, with the echo time of each line.

use std::time::Duration;

use ::tests::caller::{UpgradedReader, UpgradedWriter, upgrade};
use ::tests::rig::Rig;
use ::tests::typing::{EchoTimes, TYPED_EVERY, typed};
use linksim::rng::SeededRng;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// A line of the size of a keystroke in a WebSocket or SPDY frame.
const LINE: [u8; 32] = [b'k'; 32];
/// Longest wait for an echo.
const ECHO_MAX: Duration = Duration::from_secs(30);

/// Upgraded connections to an API server that echoes everything.
pub(super) struct Shells(Vec<Shell>);

struct Shell {
    reader: UpgradedReader,
    writer: UpgradedWriter,
    /// The time of the first line in a turn, so that not all shells type at once.
    offset: Duration,
}

impl Shells {
    pub(super) async fn open(rig: &Rig, path: &str, count: u32, seed: u64) -> Self {
        let mut rng = SeededRng::new(seed);
        let mut shells = Vec::new();
        for _ in 0..count {
            let (reader, writer, first) = upgrade(rig, path).await;
            assert!(first.is_empty(), "a shell that says something by itself");
            let offset = Duration::from_micros(rng.below(TYPED_EVERY.as_micros() as u64));
            shells.push(Shell { reader, writer, offset });
        }
        Self(shells)
    }

    /// Types in all shells for this long, and returns the echo times.
    pub(super) async fn type_for(&mut self, lasts: Duration) -> EchoTimes {
        let lines = (lasts.as_secs_f64() / TYPED_EVERY.as_secs_f64()) as usize;
        let began = Instant::now();
        let mut typing = JoinSet::new();
        for mut shell in self.0.drain(..) {
            typing.spawn(async move {
                let ends = (&mut shell.reader, &mut shell.writer);
                let took = typed(ends, &LINE, began + shell.offset, ECHO_MAX, |typed| typed < lines).await;
                (shell, took)
            });
        }
        let (shells, took): (_, Vec<_>) = typing.join_all().await.into_iter().unzip();
        self.0 = shells;
        EchoTimes::of(took.concat())
    }
}
