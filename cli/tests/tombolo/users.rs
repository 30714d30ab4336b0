//! Tokens of callers, and what of them a server's file holds.

use trust::user_token::TokenDigest;

use crate::bench::{Bench, assert_says};

#[test]
fn a_token_goes_to_its_own_file_and_its_digest_to_the_servers() {
    let bench = Bench::new();
    let line =
        bench.done("user token create --user tess --group tombolo:admins --group ops --out tess.token");
    let token = bench.text("tess.token");

    let digest = TokenDigest::of(token.trim_end().as_bytes());
    assert_eq!(line.trim_end(), format!("{digest},\"tess\",,\"tombolo:admins,ops\""));
    assert!(token.starts_with("tombolo-user-") && !line.contains(token.trim_end()), "{line}");
    assert_eq!(bench.mode("tess.token"), 0o600);

    let again = bench.failed("user token create --user tess --out tess.token");
    assert_says(&again, "--force");
    assert_eq!(bench.text("tess.token"), token);
    bench.done("user token create --user tess --out tess.token --force");
    assert_ne!(bench.text("tess.token"), token);
    assert_says(&bench.failed("user token create --user tess --group a,b --out other.token"), "comma");
}

#[test]
fn a_file_of_plain_tokens_becomes_one_of_digests() {
    let bench = Bench::new();
    let (one, two) = ("a-token-of-enough-characters-1", "a-token-of-enough-characters-2");
    let digest = |token: &str| TokenDigest::of(token.as_bytes()).to_string();
    bench.write("tokens.csv", format!("{one},tess,1,\"a,b\"\n\n\"{two}\",bob,2\n"));

    let hashed = bench.done("user token hash tokens.csv");

    assert_eq!(hashed, format!("{},tess,1,\"a,b\"\n\n{},bob,2\n", digest(one), digest(two)));
    bench.write("hashed.csv", hashed.clone());
    assert_eq!(bench.done("user token hash hashed.csv"), hashed);
    bench.write("weak.csv", "sesame,tess,1\n");
    let weak = bench.failed("user token hash weak.csv");
    assert_says(&weak, "line 1");
    assert!(!weak.contains("sesame"), "{weak}");
}
