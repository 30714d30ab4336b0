//! The target of one page of a list.

use http::uri::PathAndQuery;

use super::error::ActionError;
use super::query::Query;
use super::{CONTINUE, LIMIT, path};

/// The target of the page of a list that has at most `limit` objects, and begins where `token` says; an empty one means the first
/// page. Pages that the target itself names are left out.
///
/// # Errors
///
/// [`ActionError`]; the target cannot be read, or is too long with the token.
pub fn page_of(target: &PathAndQuery, limit: u32, token: &str) -> Result<PathAndQuery, ActionError> {
    let mut query = Query::parse(target.query().unwrap_or_default())?;
    query.take_one(LIMIT)?;
    query.take_one(CONTINUE)?;
    query.push(LIMIT, limit.to_string());
    if !token.is_empty() {
        query.push(CONTINUE, token.to_owned());
    }
    let target = PathAndQuery::try_from(target.path()).map_err(|_| ActionError::RawByte)?;
    path::with_query(target, &query.encoded())
}
