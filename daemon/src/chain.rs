//! An error with all its causes, for one line of a log.

use std::error::Error;
use std::fmt;

/// `error` with all its sources in one line: `cannot write X: no space left on device`. A source that its error
/// quotes already, as some foreign errors do, is not repeated.
pub fn chain(error: &dyn Error) -> impl fmt::Display + use<'_> {
    fmt::from_fn(move |f| {
        let mut said = error.to_string();
        f.write_str(&said)?;
        let mut next = error.source();
        while let Some(source) = next {
            let text = source.to_string();
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            said = text;
            next = source.source();
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use std::io;

    use super::*;

    #[test]
    fn a_chain_has_every_source_once_in_one_line() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot write the key")]
        struct Outer(#[source] Inner);
        #[derive(Debug, thiserror::Error)]
        #[error("the disk refused")]
        struct Inner(#[source] io::Error);

        let error = Outer(Inner(io::Error::other("no space")));

        assert_eq!(chain(&error).to_string(), "cannot write the key: the disk refused: no space");

        #[derive(Debug, thiserror::Error)]
        #[error("it failed: {0}")]
        struct Quoting(#[source] io::Error);
        assert_eq!(chain(&Quoting(io::Error::other("no space"))).to_string(), "it failed: no space");
    }
}
