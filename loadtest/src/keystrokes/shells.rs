//! Shells in which lines are typed, and how long each took to come back.

use std::time::Duration;

use ::tests::caller::{Reader, Writer, upgrade};
use ::tests::rig::Rig;
use ::tests::typing::{TYPED_EVERY, Took, typed};
use linksim::dice::Dice;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// As long as a keystroke in the frame of a WebSocket, or of SPDY.
const LINE: [u8; 32] = [b'k'; 32];
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
        let mut rng = Dice::new(seed);
        let mut shells = Vec::new();
        for _ in 0..count {
            let (reader, writer, first) = upgrade(rig, path).await;
            assert!(first.is_empty(), "a shell that says something by itself");
            let offset = Duration::from_micros(rng.below(TYPED_EVERY.as_micros() as u64));
            shells.push(Shell { reader, writer, offset });
        }
        Self(shells)
    }

    /// Types for so long.
    pub(super) async fn typed(&mut self, lasts: Duration) -> Took {
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
        Took::of(took.concat())
    }
}
