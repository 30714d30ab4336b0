//! The table: every fault, its injection, and the outcomes that each kind of request may see. Edit it only
//! here.
//!
//! The columns are get, watch, exec, apply, download. The expectations are what the product promises with its
//! defaults: requests in flight are kept for 5 minutes, new ones wait for 15 s, a watch with a resume point
//! outlives its tunnel.

use super::fault::Row;

mod apiserver;
mod credentials;
mod network;
mod process;
mod servers;

/// A part of the table.
#[derive(Debug, Clone, Copy)]
pub struct Section {
    /// The title on the page.
    pub title: &'static str,
    /// The rows of the section.
    pub rows: &'static [Row],
}

/// All sections of the table.
pub const SECTIONS: &[Section] = &[
    Section { title: "Between agent and server", rows: network::ROWS },
    Section { title: "Processes, hosts and resources", rows: process::ROWS },
    Section { title: "Time, credentials and policy", rows: credentials::ROWS },
    Section { title: "The API server and the caller", rows: apiserver::ROWS },
    Section { title: "Several servers and their etcd", rows: servers::ROWS },
];

/// No request notices the fault.
const UNNOTICED: [&str; 5] = ["G0", "W0", "E0", "A0", "G0"];

/// Waited for `park-limit`, then refused by a `Status`.
const REFUSED: [&str; 5] = ["G2", "W2", "E2", "A2", "G2"];

/// All rows of the table.
pub fn rows() -> impl Iterator<Item = &'static Row> {
    SECTIONS.iter().flat_map(|section| section.rows)
}

/// The row of an id.
pub fn row(id: &str) -> Option<&'static Row> {
    rows().find(|row| row.id == id)
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::matrix::code::{Request, Timing};

    #[test]
    fn each_id_is_unique_and_each_code_parses() {
        let mut ids = BTreeSet::new();
        for row in rows() {
            assert!(ids.insert(row.id), "{} stands twice", row.id);
            for request in Request::ALL {
                for timing in Timing::ALL {
                    row.expected(request, timing).unwrap_or_else(|error| panic!("{}: {error}", row.id));
                }
            }
        }
    }

    #[test]
    fn a_tried_row_expects_something_at_each_of_its_timings() {
        for row in rows().filter(|row| row.is_tried()) {
            assert!(!row.timings.is_empty(), "{}", row.id);
            for timing in row.timings {
                let asked = Request::ALL
                    .iter()
                    .filter(|request| !row.expected(**request, *timing).unwrap().is_empty());
                assert!(asked.count() > 0, "{} at {timing:?}", row.id);
            }
        }
    }

    #[test]
    fn a_row_of_another_test_expects_nothing_here() {
        for row in rows().filter(|row| !row.is_tried()) {
            assert_eq!(row.in_flight, ["-"; 5], "{}", row.id);
        }
    }
}
