//! A slice of the fault matrix that is quick and owes nothing to luck, and the page against the table. `make chaos` tries all.

mod page;
mod slice;
