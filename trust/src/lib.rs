//! The PKI of Tombolo: roles, roots, intermediates, and the certificates that they issue.
//!
//! Pure but for [`sealed::load`]: time comes in as an argument.

pub mod bundle;
mod ca;
#[cfg(test)]
mod fixtures;
#[cfg(test)]
mod fuzz;
mod hash;
pub mod identity;
mod intermediate;
mod key;
pub mod names;
mod organizations;
mod outside_validity;
mod pin;
pub mod proof;
mod role;
mod root;
pub mod sealed;
mod serial;
mod signer;
mod subject;
pub mod user_token;

pub use bundle::{Anchors, BundleError, TrustBundle};
pub use ca::{MakeError, NotACa};
pub use intermediate::{CERTIFICATES_MAX, INTERMEDIATE_VALIDITY, Intermediate};
pub use key::{CSR_BYTES_MAX, CsrError, ProvenKey};
pub use outside_validity::{OutsideValidity, validity};
pub use pin::{NotAPin, Pin};
pub use role::{NotARole, Role};
pub use root::Root;
pub use serial::{NotASerial, NotSerialText, Serial, parse_serial_text, serial_text};
pub use signer::{BACKDATED, Issued, Issuing, Order, SignError, Signer};
pub use subject::{SERVER_NAMES_MAX, Subject, SubjectError};
