//! Bootstrap tokens of Kubernetes: `ID.SECRET`, with which a machine proves that it may join, and an API server that it is the right one.

use std::fmt;
use std::str::FromStr;

use aws_lc_rs::rand;

/// Characters of the public part, and of the secret one.
const ID_CHARACTERS: usize = 6;
const SECRET_CHARACTERS: usize = 16;

/// The characters of both. Their number divides no power of two, so larger bytes are drawn again.
const ALPHABET: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";

/// A token of a cluster. The text is shown only by [`BootstrapToken::text`].
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct BootstrapToken {
    id: String,
    secret: String,
}

/// The text is no bootstrap token. It is not shown, because it may be one with a mistake.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a bootstrap token, which is six characters, a dot and sixteen characters, of a-z and 0-9")]
pub(crate) struct NotAToken;

/// The system has no random bytes.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("the system gives no random bytes")]
pub(crate) struct NoRandomBytes;

impl BootstrapToken {
    /// A new token that nobody can guess.
    ///
    /// # Errors
    /// [`NoRandomBytes`]
    pub(crate) fn generate() -> Result<Self, NoRandomBytes> {
        Ok(Self { id: characters(ID_CHARACTERS)?, secret: characters(SECRET_CHARACTERS)? })
    }

    /// The public part, by which the cluster finds the token.
    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// The part that only the cluster and the machine know.
    pub(crate) fn secret(&self) -> &str {
        &self.secret
    }

    /// The whole token, for a command line or a file.
    pub(crate) fn text(&self) -> String {
        format!("{}.{}", self.id, self.secret)
    }
}

impl fmt::Debug for BootstrapToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.****", self.id)
    }
}

impl FromStr for BootstrapToken {
    type Err = NotAToken;

    fn from_str(text: &str) -> Result<Self, NotAToken> {
        let (id, secret) = text.split_once('.').ok_or(NotAToken)?;
        let is_good =
            |part: &str, length| part.len() == length && part.bytes().all(|byte| ALPHABET.contains(&byte));
        if is_good(id, ID_CHARACTERS) && is_good(secret, SECRET_CHARACTERS) {
            Ok(Self { id: id.to_owned(), secret: secret.to_owned() })
        } else {
            Err(NotAToken)
        }
    }
}

fn characters(count: usize) -> Result<String, NoRandomBytes> {
    let largest = u8::MAX - u8::MAX % ALPHABET.len() as u8;
    let mut text = String::with_capacity(count);
    while text.len() < count {
        let mut byte = [0];
        rand::fill(&mut byte).map_err(|_| NoRandomBytes)?;
        if byte[0] < largest {
            text.push(char::from(ALPHABET[usize::from(byte[0]) % ALPHABET.len()]));
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_kubeadm_is_read_and_its_secret_is_not_shown() {
        let token: BootstrapToken = "abcdef.0123456789abcdef".parse().unwrap();

        assert_eq!((token.id(), token.secret()), ("abcdef", "0123456789abcdef"));
        assert_eq!(format!("{token:?}"), "abcdef.****");
        for text in
            ["", "abcdef", "abcdef.0123456789abcde", "ABCDEF.0123456789abcdef", "abcde.0123456789abcdef0"]
        {
            assert_eq!(text.parse::<BootstrapToken>(), Err(NotAToken), "{text}");
        }
    }

    #[test]
    fn a_new_token_is_one_and_no_two_are_the_same() {
        let [one, other] = [(); 2].map(|()| BootstrapToken::generate().unwrap());

        assert_eq!(one.text().parse::<BootstrapToken>().as_ref(), Ok(&one));
        assert_ne!(one, other);
    }
}
