//! Removal of expired records, every hour. Of servers that share their records the elected one does it.

use std::time::{Duration, Instant, SystemTime};

use daemon::{Scope, error_chain};
use tokio::time::{MissedTickBehavior, interval};
use tracing::warn;

use crate::directory::{Directory, Election};
use crate::metrics::{self, ElectionName};

/// The time between two removals. An expired record is of no use to anybody in the meantime.
const EVERY: Duration = Duration::from_secs(60 * 60);

/// The time between two looks at the election.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// Removes expired records until the end was requested, first as soon as this server leads.
pub(super) async fn run(directory: Directory, mut election: Election, scope: Scope) {
    // Both arms are cancel-safe: the next janitor goes on where a removal ended.
    tokio::select! {
        () = sweep(&directory, &mut election) => {}
        () = scope.stopping() => {}
    }
    if let Err(error) = election.resign().await {
        warn!(error = %error_chain(&error), "another server removes expired records some seconds later");
    }
    metrics::leads(ElectionName::Janitor, false);
}

async fn sweep(directory: &Directory, election: &mut Election) {
    let mut looks = interval(LOOK_EVERY);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last: Option<Instant> = None;
    loop {
        looks.tick().await;
        // Without etcd nothing expires that matters.
        let leads = election.campaign().await.unwrap_or(false);
        metrics::leads(ElectionName::Janitor, leads);
        let is_due = last.is_none_or(|last| last.elapsed() >= EVERY);
        let Some(until) = election.leads_until().filter(|_| leads && is_due) else { continue };
        let may_go_on = move || Instant::now() < until;
        match directory.remove_expired(SystemTime::now(), may_go_on).await {
            // What was left is removed at one of the next looks.
            Ok(()) if !may_go_on() => {}
            Ok(()) => last = Some(Instant::now()),
            Err(error) => {
                last = Some(Instant::now());
                warn!(error = %error_chain(&error), "expired records were not removed from the store; the next try is in an hour");
            }
        }
    }
}
