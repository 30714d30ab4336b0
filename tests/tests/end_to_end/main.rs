//! The programs as they ship, end to end: with real API servers, and with one that misbehaves.
//!
//! One test program, so that it is linked once and its trials, most of which wait, run beside each other.

mod admin;
mod admin_tcp;
mod asserting;
mod assuming;
mod audited;
mod bad_input;
mod browsers;
mod catalogue;
mod closing;
mod doctor;
mod ending;
mod enrollment;
mod fleet;
mod framing;
mod hangup;
mod headers;
mod kubectl;
mod limits;
mod metrics;
mod naming;
mod oidc;
mod outage;
mod outliving;
mod passing;
mod path_table;
mod paths;
mod policy;
mod profiles;
mod restart;
mod reviewed;
mod rogue_identities;
mod rogue_server;
mod roles;
mod rotation;
mod servers;
mod stalled;
mod stopping;
mod strangers;
mod streams;
mod three_messages;
mod truth;
mod upgrades;
mod users;
mod watch;
