//! Certificates: four roots, the intermediates below them, what those issue, and what a certificate says.

mod bundle;
mod init;
mod intermediate;
mod issue;
mod leaf;
mod place;
mod proxy;
mod record;
mod root;
mod rotate;
mod show;

pub(crate) use init::init;
pub(crate) use intermediate::intermediate;
pub(crate) use issue::{issue_admin, issue_agent, issue_caller, issue_server};
pub(crate) use proxy::issue_proxy;
pub(crate) use rotate::rotate;
pub(crate) use show::show;
