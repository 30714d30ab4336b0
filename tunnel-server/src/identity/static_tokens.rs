//! Static bearer tokens, of which the server has only digests.
//!
//! The file is Kubernetes' static token file with digests in place of the tokens, parsed more strictly:
//! <https://kubernetes.io/docs/reference/access-authn-authz/authentication/#static-token-file>

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use trust::user_token::TokenDigest;

use super::Caller;
use super::credential::{Credential, token_id};
use super::name::{NameError, Prefixes};

/// Most tokens in a file.
pub const TOKENS_MAX: usize = 10_000;

/// The tokens of a file. It has only digests of the tokens, and its `Debug` shows not even those.
#[derive(Clone)]
pub struct StaticTokens {
    holders: HashMap<TokenDigest, TokenHolder>,
    /// The digests by the IDs of their credentials.
    ids: HashMap<Arc<str>, TokenDigest>,
    prefixes: Prefixes,
}

/// The holder of a token, with prefixed names.
#[derive(Clone)]
pub(super) struct TokenHolder {
    pub(super) user: String,
    pub(super) groups: Vec<String>,
    pub(super) credential: Credential,
}

/// The error in a token file, and its line.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}: {fault}")]
pub struct TokenFileError {
    /// The number of the line, from 1.
    pub line: usize,
    /// The error in that line, without any text of it.
    pub fault: TokenLineError,
}

/// The error in a line of a token file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenLineError {
    /// The bytes are not UTF-8 text.
    #[error("not UTF-8")]
    Text,
    /// A quotation mark is not closed, or stands in the middle of a column.
    #[error("a quotation mark stands where none may stand, or is not closed")]
    Quote,
    /// The columns are not `digest,user,uid` or `digest,user,uid,groups`.
    #[error("there must be 3 or 4 columns: sha256:DIGEST,user,uid,\"group1,group2\"")]
    Columns,
    /// The token is in plain text, so that readers of the file could use it.
    #[error(
        "the first column is a token in plain text, and only its digest may stand there: `tombolo user token hash FILE` \
         prints the file with digests"
    )]
    Plain,
    /// The digest is cut off, for example.
    #[error("the first column is not a digest: sha256: and 64 hexadecimal digits")]
    Digest,
    /// The token already stands in an earlier line.
    #[error("the token already stands in an earlier line")]
    Duplicate,
    /// A user or group name is invalid.
    #[error(transparent)]
    Name(#[from] NameError),
    /// There are more than [`TOKENS_MAX`].
    #[error("there are more than {max} tokens", max = TOKENS_MAX)]
    TooMany,
    /// The file has no token at all.
    #[error("there is no token in the file; `tombolo user token create` prints a line for it")]
    None,
}

impl StaticTokens {
    /// Parses the lines of a token file.
    ///
    /// # Errors
    ///
    /// [`TokenFileError`]; one wrong line makes the whole file wrong.
    pub fn parse(file: &[u8], prefixes: Prefixes) -> Result<Self, TokenFileError> {
        let mut tokens = Self { holders: HashMap::new(), ids: HashMap::new(), prefixes };
        let mut last = 1;
        for (index, line) in file.split(|byte| *byte == b'\n').enumerate() {
            last = index + 1;
            tokens.take(line).map_err(|fault| TokenFileError { line: last, fault })?;
        }
        if tokens.holders.is_empty() {
            return Err(TokenFileError { line: last, fault: TokenLineError::None });
        }
        Ok(tokens)
    }

    pub(super) fn prefixes(&self) -> &Prefixes {
        &self.prefixes
    }

    /// The holder of `token`. Digests are compared, so that the time of the comparison tells nothing about a
    /// token.
    pub(super) fn holder(&self, token: &str) -> Option<&TokenHolder> {
        self.holders.get(&TokenDigest::of(token.as_bytes()))
    }

    /// Returns true if the token by which the caller authenticated is still in the file, for the same user
    /// and groups.
    pub(super) fn has_token_of(&self, caller: &Caller) -> bool {
        let holder = self.ids.get(&caller.credential.id).and_then(|digest| self.holders.get(digest));
        holder.is_some_and(|holder| holder.user == caller.user && holder.groups == caller.groups)
    }

    fn take(&mut self, line: &[u8]) -> Result<(), TokenLineError> {
        let line = std::str::from_utf8(line).map_err(|_| TokenLineError::Text)?;
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            return Ok(());
        }
        let columns = columns(line)?;
        let (digest, user, groups) = match columns.as_slice() {
            [digest, user, _uid] => (digest, user, ""),
            [digest, user, _uid, groups] => (digest, user, groups.as_str()),
            _ => return Err(TokenLineError::Columns),
        };
        // No token has a colon in it.
        let fault = if digest.contains(':') { TokenLineError::Digest } else { TokenLineError::Plain };
        let digest: TokenDigest = digest.parse().map_err(|_| fault)?;
        let groups: Vec<&str> = if groups.is_empty() { Vec::new() } else { groups.split(',').collect() };
        let (user, groups) = self.prefixes.apply(user, &groups)?;
        if self.holders.len() == TOKENS_MAX {
            return Err(TokenLineError::TooMany);
        }
        match self.holders.entry(digest) {
            Entry::Occupied(_) => Err(TokenLineError::Duplicate),
            Entry::Vacant(vacant) => {
                let id = token_id(&digest);
                self.ids.insert(Arc::clone(&id), *vacant.key());
                let credential = Credential { id, issued: None, expires: None };
                vacant.insert(TokenHolder { user, groups, credential });
                Ok(())
            }
        }
    }
}

impl std::fmt::Debug for StaticTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "StaticTokens({} tokens)", self.holders.len())
    }
}

/// Returns true if `text` is a `b64token` (RFC 6750, section 2.1), which every header can carry.
pub(super) fn is_token(text: &[u8]) -> bool {
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    let (body, _) = text.split_at(text.len() - padding);
    !body.is_empty() && body.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~+/".contains(byte))
}

/// The columns of a line of CSV (RFC 4180). No column spans lines.
fn columns(line: &str) -> Result<Vec<String>, TokenLineError> {
    let mut columns = Vec::new();
    let mut rest = line;
    loop {
        let column;
        (column, rest) = match rest.strip_prefix('"') {
            Some(quoted) => unquoted(quoted)?,
            None => {
                let (column, rest) = rest.split_at(rest.find(',').unwrap_or(rest.len()));
                if column.contains('"') {
                    return Err(TokenLineError::Quote);
                }
                (column.to_owned(), rest)
            }
        };
        columns.push(column);
        if rest.is_empty() {
            return Ok(columns);
        }
        rest = rest.strip_prefix(',').ok_or(TokenLineError::Quote)?;
    }
}

/// The text up to the closing quotation mark, and the rest behind it. Two marks in a row are one mark of the
/// text.
fn unquoted(text: &str) -> Result<(String, &str), TokenLineError> {
    let mut column = String::new();
    let mut rest = text;
    loop {
        let (part, after) = rest.split_once('"').ok_or(TokenLineError::Quote)?;
        column.push_str(part);
        let Some(further) = after.strip_prefix('"') else {
            return Ok((column, after));
        };
        column.push('"');
        rest = further;
    }
}
