//! Warnings while the agent's certificate is not valid by this machine's clock.

use std::time::{Duration, SystemTime};

use tokio::time::sleep;
use tracing::{info, warn};

use crate::server_trust::ServerTrust;

/// Pause between two looks at the clock and at the certificate.
const LOOK_EVERY: Duration = Duration::from_secs(5);

/// The same warning is logged again after so many looks: once a minute.
const LOOKS_PER_WARNING: u32 = 12;

/// Warns until the certificate that `trust` shows is valid: until somebody has set the clock, or replaced the
/// certificate's file.
pub(super) async fn warn_until_valid(trust: ServerTrust) {
    let mut looks = 0;
    while let Some(outside) = trust.outside_validity(SystemTime::now()) {
        if looks % LOOKS_PER_WARNING == 0 {
            let reason = outside.to_string();
            warn!(
                reason,
                "the agent's certificate is not valid by this machine's clock; the agent goes on dialing"
            );
        }
        looks += 1;
        sleep(LOOK_EVERY).await;
    }
    info!("the agent's certificate is valid by this machine's clock");
}
