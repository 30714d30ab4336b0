//! `tombolo user revoke`, `list` and `restore`: which callers and credentials a server refuses.

use prost_types::Timestamp;
use proto::admin::users::Users as Selection;
use proto::admin::{Everyone, RevokeUserRequest, RevokedUsers, Users};

use crate::admin::{Admin, AdminError};
use crate::args::{UserList, UserRestore, UserRevoke};
use crate::in_force::RevokeOutput;
use crate::print;
use crate::runtime::{self, RuntimeError};

/// The error if no revocation was shown or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum RevocationsError {
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// Revokes a user, a certificate, or credentials that were issued before a time.
pub(crate) fn revoke(args: UserRevoke) -> Result<RevokeOutput, RevocationsError> {
    let UserRevoke { name, serial, issued_before, server } = args;
    let selection = selection(name, serial);
    let when = match issued_before {
        Some(before) => format!(", if it was issued before {before}"),
        None => String::new(),
    };
    let message = format!("the credential of {} is refused from now on{when}", describe(&selection));
    let request = RevokeUserRequest { users: Some(Users { users: Some(selection) }), issued_before };
    let servers = runtime::run(async |scope| {
        Admin::connect(server.endpoint(), scope).await?.revoke_user(request).await
    })??;
    Ok(RevokeOutput::new(message, &servers))
}

/// Withdraws a revocation of a user, a certificate, or everyone.
pub(crate) fn restore(args: UserRestore) -> Result<Vec<String>, RevocationsError> {
    let UserRestore { name, serial, everyone: _, server } = args;
    let selection = selection(name, serial);
    let message = format!("the revocation of {} is withdrawn", describe(&selection));
    let users = Users { users: Some(selection) };
    runtime::run(async |scope| Admin::connect(server.endpoint(), scope).await?.restore_user(users).await)??;
    Ok(vec![message])
}

/// A table of the revocations.
pub(crate) fn list(args: &UserList) -> Result<Vec<String>, RevocationsError> {
    let revoked = runtime::run(async |scope| {
        Admin::connect(args.server.endpoint(), scope).await?.revoked_users().await
    })??;
    if revoked.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = vec![["REVOKED", "ISSUED BEFORE", "SINCE"].map(str::to_owned)];
    rows.extend(revoked.into_iter().map(|revoked| {
        let RevokedUsers { users, issued_before, revoked_at } = revoked;
        // A newer server may have kinds of revocations that this program does not know.
        let whom = users
            .and_then(|users| users.users)
            .map_or_else(|| "<other>".to_owned(), |selection| describe(&selection));
        let time = |time: Option<Timestamp>, none: &str| {
            time.map_or_else(|| none.to_owned(), |time| time.to_string())
        };
        [whom, time(issued_before, "<any time>"), time(revoked_at, "<unknown>")]
    }));
    Ok(print::columns(&rows))
}

/// The users that the flags name; everyone if they name none.
fn selection(name: Option<String>, serial: Option<String>) -> Selection {
    match (name, serial) {
        (Some(name), _) => Selection::Name(name),
        (None, Some(serial)) => Selection::Serial(serial),
        (None, None) => Selection::Everyone(Everyone {}),
    }
}

fn describe(selection: &Selection) -> String {
    match selection {
        Selection::Name(name) => format!("user {}", print::visible(name)),
        Selection::Serial(serial) => format!("serial {serial}"),
        Selection::Everyone(Everyone {}) => "everyone".to_owned(),
    }
}
