//! `tombolo user revoke`: whose credentials a server takes from callers.

use prost_types::Timestamp;
use proto::admin::users::Users as Which;
use proto::admin::{Everyone, RevokeUserRequest, RevokedUsers, Users};

use crate::admin::{Admin, AdminError};
use crate::args::{UserList, UserRestore, UserRevoke};
use crate::print;
use crate::runtime::{self, NoRuntime};

/// Why nothing was shown or changed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UsersError {
    #[error(transparent)]
    Runtime(#[from] NoRuntime),
    #[error(transparent)]
    Admin(#[from] AdminError),
}

/// Refuses callers from now on.
pub(crate) fn revoke(order: UserRevoke) -> Result<Vec<String>, UsersError> {
    let UserRevoke { name, serial, issued_before, server } = order;
    let which = which(name, serial);
    let when = match issued_before {
        Some(before) => format!(", if it was issued before {before}"),
        None => String::new(),
    };
    let told = format!("the credential of {} is refused from now on{when}", named(&which));
    let request = RevokeUserRequest { users: Some(Users { users: Some(which) }), issued_before };
    runtime::run(async |scope| Admin::connect(server.place(), scope).await?.revoke_user(request).await)??;
    Ok(vec![told])
}

/// Takes a revocation back.
pub(crate) fn restore(order: UserRestore) -> Result<Vec<String>, UsersError> {
    let UserRestore { name, serial, everyone: _, server } = order;
    let which = which(name, serial);
    let told = format!("the revocation of {} is taken back", named(&which));
    let users = Users { users: Some(which) };
    runtime::run(async |scope| Admin::connect(server.place(), scope).await?.restore_user(users).await)??;
    Ok(vec![told])
}

/// The revocations of callers, one line each.
pub(crate) fn list(order: &UserList) -> Result<Vec<String>, UsersError> {
    let revoked = runtime::run(async |scope| {
        Admin::connect(order.server.place(), scope).await?.revoked_users().await
    })??;
    if revoked.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = vec![["REVOKED", "ISSUED BEFORE", "SINCE"].map(str::to_owned)];
    rows.extend(revoked.into_iter().map(|revoked| {
        let RevokedUsers { users, issued_before, revoked_at } = revoked;
        // Of a newer server, which this program does not know.
        let whom =
            users.and_then(|users| users.users).map_or_else(|| "<other>".to_owned(), |which| named(&which));
        let time = |time: Option<Timestamp>, none: &str| {
            time.map_or_else(|| none.to_owned(), |time| time.to_string())
        };
        [whom, time(issued_before, "<any time>"), time(revoked_at, "<unknown>")]
    }));
    Ok(print::columns(&rows))
}

/// Everyone, where neither is named.
fn which(name: Option<String>, serial: Option<String>) -> Which {
    match (name, serial) {
        (Some(name), _) => Which::Name(name),
        (None, Some(serial)) => Which::Serial(serial),
        (None, None) => Which::Everyone(Everyone {}),
    }
}

fn named(which: &Which) -> String {
    match which {
        Which::Name(name) => format!("user {}", print::visible(name)),
        Which::Serial(serial) => format!("serial {serial}"),
        Which::Everyone(Everyone {}) => "everyone".to_owned(),
    }
}
