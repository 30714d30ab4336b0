//! End-to-end tests against real Kubernetes, and the floor plan as a test.

pub mod admin;
pub mod binaries;
pub mod caller;
pub mod cbor;
pub mod check;
pub mod demo;
pub mod dial;
pub mod dice;
pub mod fake_api;
pub mod fake_edge;
pub mod floor_plan;
pub mod kube;
pub mod lab;
pub mod matrix;
pub mod network;
pub mod pki;
pub mod process;
pub mod prometheus;
pub mod raw_http2;
pub mod real_edge;
pub mod rig;
pub mod rogue;
pub mod scratch;
pub mod skip;
pub mod sockets;
pub mod ways;
