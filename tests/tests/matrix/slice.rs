//! A few rows at a few moments, shortened where only the duration makes them long.

use std::time::Duration;

use tests::matrix::code::Request::{Apply, Download, Exec, Get, Watch};
use tests::matrix::code::{Request, Timing};
use tests::matrix::fault::Row;
use tests::matrix::page::verdict;
use tests::matrix::run::{Cell, attempt};
use tests::matrix::table::row;

/// An even seed asks in HTTP/1.1, an odd one in HTTP/2.
const SEEDS: [u64; 2] = [4, 7];

#[test]
fn nobody_notices_a_link_that_is_dark_for_three_seconds() {
    holds("15", Timing::MidBody, 3, &Request::ALL);
}

#[test]
fn nobody_notices_another_port_of_the_nat() {
    holds("20", Timing::MidBody, 1, &Request::ALL);
}

#[test]
fn nobody_notices_packets_that_come_twice() {
    holds("8", Timing::New, 1, &Request::ALL);
}

/// No broken stream looks complete.
#[test]
fn a_killed_agents_streams_end_with_an_error_and_no_write_repeats() {
    holds("31", Timing::MidBody, 1, &[Get, Exec, Apply, Download]);
}

#[test]
fn a_killed_servers_streams_break_off_and_its_watches_continue() {
    holds("34", Timing::MidBody, 1, &Request::ALL);
}

/// No write is sent again.
#[test]
fn an_api_server_that_dies_before_its_answer_is_named_as_the_cause() {
    holds("65", Timing::BeforeHead, 1, &[Get, Watch, Exec, Apply]);
}

#[test]
fn half_an_answer_never_looks_complete() {
    for id in ["70", "70c", "70b"] {
        holds(id, Timing::New, 1, &Request::ALL);
    }
}

#[test]
fn the_api_servers_answers_pass_unchanged() {
    holds("71", Timing::New, 1, &Request::ALL);
}

/// Tries a row in both versions of HTTP.
fn holds(id: &str, timing: Timing, seconds: u64, requests: &[Request]) {
    let row = row(id).unwrap_or_else(|| panic!("there is no row {id}"));
    let row = Row { lasts: Duration::from_secs(seconds), ..*row };
    for seed in SEEDS {
        let mut cell = Cell::of(row, timing, seed, false);
        cell.requests.retain(|request| requests.contains(request));
        let verdict = verdict(&cell, &attempt(&cell));
        assert!(!verdict.is_failure(), "{verdict}");
    }
}
