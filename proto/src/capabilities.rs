//! The abilities of an agent beyond the protocol's version, as its greeting claims them.

/// The word of an agent that reduces lists.
const REDUCE: &str = "reduce";

/// Most words of a greeting that are read.
const WORDS_MAX: usize = 32;

/// The capabilities of an agent. Words that this build does not know are passed over.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Capabilities {
    /// The agent reads `HttpOpen.reduce`, and answers with the aggregate of a list.
    pub reduces: bool,
}

impl Capabilities {
    /// The capabilities of this build's agent.
    pub const OWN: Self = Self { reduces: true };

    /// Reads the words of a greeting.
    #[must_use]
    pub fn from_words(words: &[String]) -> Self {
        Self { reduces: words.iter().take(WORDS_MAX).any(|word| word == REDUCE) }
    }

    /// The words of a greeting.
    #[must_use]
    pub fn words(self) -> Vec<String> {
        let Self { reduces } = self;
        reduces.then(|| REDUCE.to_owned()).into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capabilities_are_read_as_they_were_written() {
        for capabilities in [Capabilities::OWN, Capabilities::default()] {
            assert_eq!(Capabilities::from_words(&capabilities.words()), capabilities);
        }
    }

    #[test]
    fn an_agent_of_an_earlier_version_has_no_capability() {
        assert_eq!(Capabilities::from_words(&[]), Capabilities { reduces: false });
    }

    #[test]
    fn unknown_words_are_passed_over_and_words_have_a_limit() {
        let mut words = vec!["later".to_owned(), REDUCE.to_owned()];
        assert!(Capabilities::from_words(&words).reduces);
        words.splice(0..0, vec![String::new(); WORDS_MAX]);
        assert!(!Capabilities::from_words(&words).reduces);
    }
}
