//! Faults of clocks, credentials and policy. Most of the features that they affect are not built yet.

use super::{REFUSED, UNNOTICED};
use crate::matrix::code::Timing;
use crate::matrix::fault::Injection::{Clock, Elsewhere};
use crate::matrix::fault::{Row, Victim};

const HOUR: i64 = 3600;
const YEAR: i64 = 365 * 24 * HOUR;

/// The rows 52 to 64.
pub(super) const ROWS: &[Row] = &[
    Row::new("52", "the server's wall clock jumps an hour ahead, and back", clock(Victim::Server, HOUR, false)).always(UNNOTICED),
    Row::new("52b", "the server's wall clock jumps an hour back, and ahead", clock(Victim::Server, -HOUR, false))
        .always(UNNOTICED),
    Row::new("53", "the server's wall clock jumps ten years ahead, and back", clock(Victim::Server, 10 * YEAR, false))
        .always(UNNOTICED)
        .note("authenticated tunnels stay, and so do static tokens; row 53n has the ones that are verified meanwhile"),
    Row::new("53n", "the same, and the agent restarts meanwhile", clock(Victim::Server, 10 * YEAR, true))
        .begun_during(REFUSED)
        .at(&[Timing::New])
        .new_after(10)
        .seconds(30)
        .waiting(150)
        .logging("agent", "certificate has expired")
        .note("the agent presents a refused certificate again after a minute at most: until then the cluster is away"),
    Row::new("54", "an agent starts while its wall clock shows 1970", clock(Victim::Agent, -56 * YEAR, true))
        .begun_during(UNNOTICED)
        .at(&[Timing::New])
        .new_after(10)
        .seconds(30)
        .logging("agent", "clock is behind by")
        .note("it goes by the begin of its own certificate, which is certainly past"),
    Row::new("56", "the agent's certificate expires while its tunnel is open", Elsewhere("a_timely_renewal_extends_the_live_tunnel_and_drops_no_stream")),
    Row::new("57", "renewal is not possible until 90 % of a certificate's life", Elsewhere("a_site_that_was_off_for_days_renews_by_its_recorded_key_and_comes_back")),
    Row::new("58", "an agent's certificate is revoked", Elsewhere("a_revoked_agent_is_disconnected_for_good_and_another_serves_on")),
    Row::new("59", "the authority is replaced by another, in two steps", Elsewhere("a_site_that_is_off_during_a_root_rotation_comes_back")),
    Row::new("60", "a caller's token expires during a long watch", Elsewhere("a_watch_resumes_while_its_callers_token_is_valid")),
    Row::new("61", "policy is changed to deny running exchanges", Elsewhere("a_new_policy_ends_what_it_forbids_and_nothing_else")),
    Row::new("62", "the issuer's keys cannot be fetched", Elsewhere("an_unreachable_issuer_affects_only_its_own_tokens")),
    Row::new("63", "the issuer replaces its keys", Elsewhere("an_issuers_new_keys_are_fetched_once_for_many_tokens")),
    Row::new(
        "64",
        "two agents have the same certificate",
        Elsewhere("a_second_process_with_a_certificate_in_use_is_refused"),
    ),
];

const fn clock(victim: Victim, ahead_seconds: i64, again: bool) -> crate::matrix::fault::Injection {
    Clock { victim, ahead_seconds, again }
}
