//! `tombolo user token`: bearer tokens of callers. The server's token file holds only their digests.

use trust::user_token::{TokenDigest, generate};

use crate::args::{UserTokenCreate, UserTokenHash};
use crate::files::{self, ReadError, WriteError};
use crate::names::NoRandomness;

/// The error if no token was created, or no file was converted to digests.
#[derive(Debug, thiserror::Error)]
pub(crate) enum UserTokenError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    NoRandomness(#[from] NoRandomness),
    #[error("the group {0} has a comma in it, which splits groups in a token file; choose another name")]
    Comma(String),
    #[error("line {0} does not begin with a token and a comma; write token,user,uid,\"group1,group2\"")]
    Line(usize),
    #[error(
        "the token in line {line} has fewer than {TOKEN_BYTES_MIN} characters, so it could be guessed from its digest; make \
         another by `tombolo user token create`"
    )]
    Weak { line: usize },
}

/// Shortest token that is hashed: 128 random bits in base64.
const TOKEN_BYTES_MIN: usize = 22;

/// Writes a new token to a private file, and returns the line for the server's token file.
pub(crate) fn create(args: &UserTokenCreate) -> Result<String, UserTokenError> {
    let UserTokenCreate { user, groups, out, force } = args;
    if let Some(group) = groups.iter().find(|group| group.as_str().contains(',')) {
        return Err(UserTokenError::Comma(group.as_str().to_owned()));
    }
    let token = generate().ok_or(NoRandomness)?;
    files::write_private(out, &format!("{token}\n"), *force)?;
    let groups: Vec<&str> = groups.iter().map(|group| group.as_str()).collect();
    let groups = if groups.is_empty() { String::new() } else { format!(",{}", quoted(&groups.join(","))) };
    Ok(format!("{},{},{groups}", TokenDigest::of(token.as_bytes()), quoted(user.as_str())))
}

/// Converts a server's token file: each plain token is replaced by its digest.
pub(crate) fn hash(args: &UserTokenHash) -> Result<Vec<String>, UserTokenError> {
    let text = files::read(&args.file)?;
    text.lines().enumerate().map(|(index, line)| hash_line(line, index + 1)).collect()
}

fn hash_line(line: &str, number: usize) -> Result<String, UserTokenError> {
    if line.is_empty() {
        return Ok(String::new());
    }
    let (token, rest) = match line.strip_prefix('"') {
        Some(quoted) => quoted.split_once("\",").ok_or(UserTokenError::Line(number))?,
        None => line.split_once(',').ok_or(UserTokenError::Line(number))?,
    };
    if token.parse::<TokenDigest>().is_ok() {
        return Ok(line.to_owned());
    }
    if token.len() < TOKEN_BYTES_MIN {
        return Err(UserTokenError::Weak { line: number });
    }
    Ok(format!("{},{rest}", TokenDigest::of(token.as_bytes())))
}

/// Quotes a column of CSV (RFC 4180, section 2).
fn quoted(text: &str) -> String {
    format!("\"{}\"", text.replace('"', "\"\""))
}
