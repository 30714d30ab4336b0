//! A slice of the fault matrix that is quick and independent of chance, and the page against the table. `make
//! chaos` tries all.

mod page;
mod slice;
