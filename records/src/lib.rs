//! The records of servers on their way from one store to another.
//!
//! [`layout`] says where a record lies in a store. [`export`] is the text of all records at one moment, which both stores
//! write and take alike. [`mod@file`] makes the file that one server keeps its records in. None of them knows the kinds of
//! records: a field or a table that only a newer server knows moves like all others.

pub mod export;
pub mod file;
pub mod layout;

#[cfg(test)]
mod fuzz;
