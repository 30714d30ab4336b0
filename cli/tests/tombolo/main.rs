//! Tests of the `tombolo` binary as a person uses it.

#![expect(
    clippy::unwrap_used,
    clippy::unwrap_in_result,
    reason = "a test stops where something is not as it must be"
)]

mod audit;
mod ca_init;
mod ca_intermediate;
mod ca_issue;
mod ca_rotate;
mod ca_secrets;
mod ca_show;
mod certificate;
mod credential;
mod doctor;
mod help;
mod import;
mod kubeconfig;
mod policy;
mod rbac;
mod settings;
mod user_tokens;
mod workdir;
mod wrong_inputs;
