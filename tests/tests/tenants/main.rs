//! Control planes of tenants as pods of a real host cluster of three nodes.

mod backup;
mod certificates;
mod control_plane;
mod demo;
mod from_cloud;
mod registered;
mod workers;
