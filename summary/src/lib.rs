//! Summaries of lists of Kubernetes objects: questions, aggregates that merge, and a reader that takes a list in pieces.
//!
//! Pure: an agent reads the list and holds one object at a time, a server merges the aggregates of clusters. The order in which
//! aggregates are merged makes no difference, so that a region can merge those of its clusters first.

mod aggregate;
mod answer;
mod decimal;
mod encoding;
mod figure;
#[cfg(test)]
mod fuzz;
mod item;
mod list_reader;
mod path;
mod question;
mod row;
mod scalar;
#[cfg(test)]
mod tests;
mod unreadable;

pub use aggregate::{Aggregate, GROUPS_MAX};
pub use answer::{AnswerFault, EDGE_ANSWER_TYPE, EdgeAnswer, EdgeFailure};
pub use decimal::{Decimal, NotAQuantity};
pub use encoding::{ENCODED_BYTES_MAX, TooLarge};
pub use figure::{Figure, SumOverflow};
pub use list_reader::{ITEM_BYTES_MAX, ListHead, ListReader, NotAList, SKELETON_BYTES_MAX};
pub use path::{NotAPath, PATH_BYTES_MAX, Path};
pub use question::{
    Condition, Field, GROUP_BY_MAX, NotAQuestion, Operator, QUESTION_BYTES_MAX, Question, ROWS_MAX, TOP_MAX,
    VALUES_MAX, Value,
};
pub use row::{RankedItem, Row};
pub use scalar::{NotAScalar, Scalar};
pub use unreadable::Unreadable;
