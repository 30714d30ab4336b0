//! `loadtest layout`: which runtime layout the daemons should have, on the thinnest path.

use std::error::Error;
use std::time::Duration;

use ::tests::rig::ApiServer;
use ::tests::scratch::Scratch;
use tokio::time::sleep;

use crate::args::{Layout, LayoutFlags};
use crate::report::{Heading, Report};
use crate::rig::Tunneled;
use crate::target::{BULK, SMALL, Target};
use crate::trial::{Load, compare};
use crate::way::Way;

/// How long daemons that have just started are left alone before their memory is looked at.
pub const SETTLE: Duration = Duration::from_secs(2);

/// Measures and reports.
///
/// # Errors
/// Any that stands in the way of a report.
pub async fn run(flags: &LayoutFlags) -> Result<(), Box<dyn Error>> {
    let scratch = Scratch::new("tombolo-loadtest-")?;
    let target = Target::start(scratch.path(), flags.bulk_mib).await;
    let kubeconfig = scratch.path().join("target.kubeconfig");
    target.write_kubeconfig(&kubeconfig)?;
    let api_server = ApiServer::Kubeconfig(kubeconfig);

    let mut ways = vec![direct(&target)];
    // Kept until the end: a rig that is dropped is stopped.
    let mut rigs = Vec::new();
    for layout in &flags.layouts {
        let mut rig = Tunneled::start(&api_server, flags.clusters, &layout.yaml()).await;
        ways.push(rig.way(layout.to_string(), SMALL, Some(BULK)).await);
        rigs.push(rig);
    }
    sleep(SETTLE).await;

    let heading = Heading::new("layout", None, &ways)?;
    let ledger = compare(&ways, &loads(flags), &flags.rounds).await?;
    Report::new(heading, &flags.rounds, &ledger).publish(flags.rounds.json.as_deref())?;
    drop(rigs);
    Ok(())
}

fn direct(target: &Target) -> Way {
    let door = target.door.clone();
    let (small, bulk) = (vec![door.uri(SMALL)], Some(door.uri(BULK)));
    Way { name: "direct".to_owned(), door, small, bulk, daemons: None }
}

fn loads(flags: &LayoutFlags) -> Vec<Load> {
    let small = flags.callers.iter().map(|&callers| Load::Small { callers });
    let bulk = (flags.bulk_mib > 0).then(|| Load::Bulk { bytes: u64::from(flags.bulk_mib) << 20 });
    small.chain(bulk).collect()
}

impl Layout {
    fn yaml(&self) -> String {
        format!("runtime: {{ layout: {}, threads: {} }}", self.name, self.threads)
    }
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}", self.name, self.threads)
    }
}
