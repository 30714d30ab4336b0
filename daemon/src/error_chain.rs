//! Formats an error with all its sources in one line, for the log.

use std::error::Error;
use std::fmt;

/// Displays `error` with all its sources in one line: `cannot write X: no space left on device`. A source
/// that its error quotes already, as some foreign errors do, is not repeated.
pub fn error_chain(error: &dyn Error) -> impl fmt::Display + use<'_> {
    fmt::from_fn(move |f| {
        let mut last = error.to_string();
        f.write_str(&last)?;
        let mut next = error.source();
        while let Some(source) = next {
            let text = source.to_string();
            if !last.ends_with(&text) {
                write!(f, ": {text}")?;
            }
            last = text;
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
    fn every_source_is_displayed_once_in_one_line() {
        #[derive(Debug, thiserror::Error)]
        #[error("cannot write the key")]
        struct Outer(#[source] DiskError);
        #[derive(Debug, thiserror::Error)]
        #[error("the disk refused")]
        struct DiskError(#[source] io::Error);

        let error = Outer(DiskError(io::Error::other("no space")));

        assert_eq!(error_chain(&error).to_string(), "cannot write the key: the disk refused: no space");

        #[derive(Debug, thiserror::Error)]
        #[error("it failed: {0}")]
        struct Quoting(#[source] io::Error);
        assert_eq!(error_chain(&Quoting(io::Error::other("no space"))).to_string(), "it failed: no space");
    }
}
