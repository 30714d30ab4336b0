//! The tunnel over links that fail: a cloud and sites in network namespaces, `linksim` between them.

mod addresses;
mod alternating;
mod by_address;
mod carriers;
mod egress;
mod exec;
mod lab;
mod lossy;
mod networks;
mod outage;
mod passthrough;
mod vip;
