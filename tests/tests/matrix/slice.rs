//! A few rows at a few moments, shortened where only the length is what makes them long.

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

#[test]
fn what_ran_on_a_killed_agent_ends_honestly_and_no_write_comes_twice() {
    holds("31", Timing::MidBody, 1, &[Get, Exec, Apply, Download]);
}

#[test]
fn what_ran_on_a_killed_server_breaks_off_and_a_watch_goes_on_where_it_was() {
    holds("34", Timing::MidBody, 1, &Request::ALL);
}

#[test]
fn an_api_server_that_dies_unanswered_is_named_and_nothing_is_sent_again_that_writes() {
    holds("65", Timing::BeforeHead, 1, &[Get, Watch, Exec, Apply]);
}

#[test]
fn half_an_answer_is_never_taken_for_a_whole_one() {
    for id in ["70", "70c", "70b"] {
        holds(id, Timing::New, 1, &Request::ALL);
    }
}

#[test]
fn what_the_api_server_says_is_passed_on_as_it_is() {
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
