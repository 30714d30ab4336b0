//! Claims about filters and what a scrape finds.

use super::*;

/// One test for all that a scrape shows: the recorder is the whole process' and can be installed once.
#[test]
fn a_scrape_finds_help_type_build_process_and_real_histograms() {
    let product = Product { name: "test", metrics_prefix: "tombolo_test", version: "1.2.3" };
    let installed = Metrics::install(&product).unwrap();
    metrics::describe_histogram!("tombolo_test_wait_seconds", "How long.");
    metrics::histogram!("tombolo_test_wait_seconds").record(0.02);

    let text = installed.render();

    for line in [
        "# HELP tombolo_test_build_info Always 1; which build this is.",
        "# TYPE tombolo_test_build_info gauge",
        "tombolo_test_build_info{version=\"1.2.3\"} 1",
        "# TYPE tombolo_test_process_resident_memory_bytes gauge",
        "# TYPE tombolo_test_wait_seconds histogram",
        "tombolo_test_wait_seconds_bucket{le=\"0.01\"} 0",
        "tombolo_test_wait_seconds_bucket{le=\"0.025\"} 1",
    ] {
        assert!(text.lines().any(|found| found == line), "no line {line:?} in:\n{text}");
    }
    assert!(matches!(Metrics::install(&product), Err(TelemetryError::Twice(_))));
}

#[test]
fn a_wrong_filter_is_a_configuration_error_that_quotes_it() {
    let error = filter("info,transport=loud").unwrap_err();

    assert!(error.to_string().starts_with("--log-level (TOMBOLO_LOG): \"info,transport=loud\""), "{error}");
    assert!(matches!(Failure::from(error), Failure::Misconfigured(_)));
    assert!(filter("info,transport=debug").is_ok());
}
