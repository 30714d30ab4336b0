//! Keeps a ClusterProfile in the host cluster for each cluster of the gateway.

mod access;
mod missing;
mod plan;
mod profile;
mod publish;

pub use access::Access;
pub use publish::{Profiles, ProfilesError};
