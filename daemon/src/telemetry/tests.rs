//! Tests of the filters of the log.

use super::*;

#[test]
fn a_wrong_filter_is_a_configuration_error_that_quotes_it() {
    let error = filter("info,transport=loud").unwrap_err();

    assert!(error.to_string().starts_with("--log-level (TOMBOLO_LOG): \"info,transport=loud\""), "{error}");
    assert!(matches!(Failure::from(error), Failure::Misconfigured(_)));
    assert!(filter("info,transport=debug").is_ok());
}
