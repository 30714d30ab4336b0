//! Describes errors of a PEM file without quoting it. The library's own messages quote a line, which may be a
//! key.

use rustls_pki_types::pem::Error;

/// Describes the error of the PEM parser.
#[must_use]
pub fn describe_pem_error(error: &Error) -> &'static str {
    #[expect(clippy::wildcard_enum_match_arm, reason = "pem::Error is foreign and non-exhaustive")]
    match error {
        Error::MissingSectionEnd { .. } => {
            "a block has no END line; each BEGIN and END needs a line of its own"
        }
        Error::IllegalSectionStart { .. } => "a BEGIN line does not end behind its name",
        Error::Base64Decode(_) => "what stands between BEGIN and END is not base64",
        Error::NoItemsFound => "no items found",
        Error::SectionTooLarge => "a block is too large",
        _ => "it cannot be read",
    }
}

#[cfg(test)]
mod tests {
    use rustls_pki_types::PrivateKeyDer;
    use rustls_pki_types::pem::PemObject as _;

    use super::*;

    #[test]
    fn a_key_whose_lines_were_joined_is_not_quoted() {
        for (text, words) in [
            ("-----BEGIN PRIVATE KEY----- MC4CAQAw -----END PRIVATE KEY-----", "no END line"),
            ("-----BEGIN PRIVATE KEY----- MC4CAQAw", "does not end behind its name"),
            ("-----BEGIN PRIVATE KEY-----\nMC4C!AQAw\n-----END PRIVATE KEY-----\n", "not base64"),
            ("MC4CAQAw", "no items found"),
        ] {
            let error = PrivateKeyDer::from_pem_slice(text.as_bytes()).expect_err("it is no key");
            assert!(describe_pem_error(&error).contains(words), "{text}: {}", describe_pem_error(&error));
        }
    }
}
