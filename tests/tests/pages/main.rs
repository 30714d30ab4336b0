//! The commands in README.md and in the pages of docs/start are run by tests, or marked with a reason. Pictures are
//! up to date.

mod commands;
mod pictures;
mod without_kubernetes;
