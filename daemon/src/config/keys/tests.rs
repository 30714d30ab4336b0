//! Tests of error messages about values that are not allowed.

use std::path::PathBuf;

use super::*;

#[test]
fn a_number_out_of_range_is_named_with_its_key_and_the_range() {
    let error = seconds("drainGraceSeconds", 900, 1..=600).unwrap_err();

    assert_eq!(error.to_string(), "drainGraceSeconds: 900 is not allowed, use 1 to 600");
    assert_eq!(seconds("drainGraceSeconds", 600, 1..=600), Ok(Duration::from_secs(600)));
    assert!(bounded("x", 0, 1..=2).is_err());
}

#[test]
fn a_host_name_is_no_socket_address() {
    let error = socket_address("listen", "localhost:8443").unwrap_err();

    assert_eq!(
        error.to_string(),
        "listen: localhost:8443 is not allowed, use an IP address and a port such as 127.0.0.1:9090 or [::1]:9090"
    );
    assert!(socket_address("listen", "[::1]:8443").is_ok());
}

#[test]
fn a_file_is_read_up_to_its_limit() {
    let home = tempfile::tempdir().unwrap();
    let path = home.path().join("ca.pem");
    std::fs::write(&path, "0123456789").unwrap();

    assert_eq!(readable_file("ca", &path, 10).unwrap(), b"0123456789");
    let error = readable_file("ca", &path, 9).unwrap_err();
    assert!(error.to_string().ends_with("is not allowed, use a file of at most 9 bytes"), "{error}");
}

#[test]
fn a_missing_file_is_named_with_its_key_and_the_reason() {
    let error = readable_file("tls.key", &PathBuf::from("/nowhere/key.pem"), 10).unwrap_err();

    let text = error.to_string();
    assert!(text.starts_with("tls.key: /nowhere/key.pem is not allowed, use a file"), "{text}");
    assert!(text.contains("No such file"), "{text}");
}

#[test]
fn runtime_keys_name_a_layout_and_its_threads() {
    let keys: RawRuntime = serde_saphyr::from_str("layout: perCore\nthreads: 4\n").unwrap();
    assert_eq!(keys.layout(), Ok(Layout::PerCore { homes: 4 }));

    let keys: RawRuntime = serde_saphyr::from_str("threads: 0\n").unwrap();
    assert_eq!(keys.layout().unwrap_err().to_string(), "runtime.threads: 0 is not allowed, use 1 to 256");

    assert!(RawRuntime::default().layout().is_ok());
}
