//! Compares this machine's clock with that of a server.

use std::time::{Duration, SystemTime};

use super::check::Check;
use super::report::Report;

/// Largest difference that counts as none: an HTTP date has whole seconds, and a response takes time.
const SKEW_OK: Duration = Duration::from_secs(5);

/// Largest difference that gets a warning only. Certificates are dated back by as much, so a new one is valid within it.
pub(crate) const SKEW_MAX: Duration = Duration::from_secs(5 * 60);

/// Compares `now` with the `Date` header of the server that `whose` names.
pub(super) fn compare(report: &mut Report, whose: &str, date: Option<SystemTime>, now: SystemTime) {
    const CHECK: Check = Check::Clock;
    let Some(date) = date else {
        report.warn(CHECK, format!("{whose} says no time"), "compare the clocks by hand: date -u");
        return;
    };
    let (skew, side) = skew(date, now);
    let found = format!("this machine's clock is {} s {side} {whose}'s", skew.as_secs());
    let advice = "set both by NTP: certificates and tokens are checked by these clocks";
    if skew <= SKEW_OK {
        report.ok(CHECK, format!("agrees with {whose}'s"));
    } else if skew <= SKEW_MAX {
        report.warn(CHECK, found, advice);
    } else {
        report.fail(CHECK, found, advice);
    }
}

/// The difference of this machine's clock, which says `now`, from one that says `date`, and its direction.
pub(crate) fn skew(date: SystemTime, now: SystemTime) -> (Duration, &'static str) {
    match now.duration_since(date) {
        Ok(ahead) => (ahead, "ahead of"),
        Err(behind) => (behind.duration(), "behind"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_is_off_is_named_with_its_side() {
        let lines = |ahead: i64| {
            let mut report = Report::default();
            let base = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000);
            let now =
                SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_u64.saturating_add_signed(ahead));
            compare(&mut report, "the gateway", Some(base), now);
            report.lines().remove(0)
        };
        assert!(lines(0).starts_with("ok "));
        assert!(lines(-5).starts_with("ok "));
        assert!(
            lines(6)
                .contains("warning   clock   this machine's clock is 6 s ahead of the gateway's; set both")
        );
        assert!(lines(-300).starts_with("warning"));
        assert!(lines(-301).contains("failed    clock   this machine's clock is 301 s behind the gateway's"));
    }
}
