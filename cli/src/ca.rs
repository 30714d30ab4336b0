//! `tombolo ca`: a certificate authority of five roots with an intermediate each, and the certificates that they issue.

mod bundle;
mod init;
mod intermediate;
mod issue;
mod leaf;
mod metadata;
mod paths;
mod proxy;
mod root;
mod rotate;
mod secrets;
mod show;

pub(crate) use init::init;
pub(crate) use intermediate::intermediate;
pub(crate) use issue::{issue_admin, issue_agent, issue_caller, issue_peer, issue_server};
pub(crate) use proxy::issue_proxy;
pub(crate) use rotate::rotate;
pub(crate) use secrets::secrets;
pub(crate) use show::show;
