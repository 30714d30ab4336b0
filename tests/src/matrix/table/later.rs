//! What befalls clocks, credentials and policy. Most of what it befalls is not built yet.

use crate::matrix::fault::Injection::{NotBuilt, NotHere};
use crate::matrix::fault::Row;

/// A machine's clock is not a trial's to change.
const CLOCK: &str = "nothing here lets one process alone see another wall clock";

/// Rows 52 to 64.
pub(super) const ROWS: &[Row] = &[
    Row::new("52", "the server's wall clock jumps by an hour, either way", NotHere(CLOCK)),
    Row::new("53", "the wall clock jumps by ten years", NotHere(CLOCK)),
    Row::new("54", "the agent's wall clock says 1970", NotHere(CLOCK)),
    Row::new("56", "the agent's certificate ends in mid-life", NotBuilt("renewal")),
    Row::new("57", "renewal is not possible until 90 % of a certificate's life", NotBuilt("renewal")),
    Row::new("58", "an agent's certificate is revoked", NotBuilt("revocation")),
    Row::new("59", "the authority is replaced by another, in two steps", NotBuilt("rotation of authorities")),
    Row::new("60", "a caller's token ends during a long watch", NotBuilt("OIDC")),
    Row::new("61", "policy comes to deny what runs", NotBuilt("ending what another policy forbids")),
    Row::new("62", "the issuer's keys cannot be fetched", NotBuilt("OIDC")),
    Row::new("63", "the issuer replaces its keys", NotBuilt("OIDC")),
    Row::new("64", "two agents bear the same certificate", NotBuilt("what is to be done with a copied key")),
];
