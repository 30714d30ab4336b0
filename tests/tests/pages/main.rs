//! The commands in README.md and in the pages of docs/start: each one is run by a test, or marked with a reason.

mod commands;
mod without_kubernetes;
