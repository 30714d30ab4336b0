//! Tests of `tombolo user token`: the token, and its digest in the server's file.

use trust::user_token::TokenDigest;

use crate::workdir::{WorkDir, assert_says};

#[test]
fn a_token_goes_to_its_own_file_and_its_digest_to_the_servers() {
    let workdir = WorkDir::new();
    let line =
        workdir.succeeds("user token create --user tess --group tombolo:admins --group ops --out tess.token");
    let token = workdir.text("tess.token");

    let digest = TokenDigest::of(token.trim_end().as_bytes());
    assert_eq!(line.trim_end(), format!("{digest},\"tess\",,\"tombolo:admins,ops\""));
    assert!(token.starts_with("tombolo-user-") && !line.contains(token.trim_end()), "{line}");
    assert_eq!(workdir.mode("tess.token"), 0o600);

    let again = workdir.fails("user token create --user tess --out tess.token");
    assert_says(&again, "--force");
    assert_eq!(workdir.text("tess.token"), token);
    workdir.succeeds("user token create --user tess --out tess.token --force");
    assert_ne!(workdir.text("tess.token"), token);
    assert_says(&workdir.fails("user token create --user tess --group a,b --out other.token"), "comma");
}

#[test]
fn a_file_of_plain_tokens_becomes_one_of_digests() {
    let workdir = WorkDir::new();
    let (one, two) = ("a-token-of-enough-characters-1", "a-token-of-enough-characters-2");
    let digest = |token: &str| TokenDigest::of(token.as_bytes()).to_string();
    workdir.write("tokens.csv", format!("{one},tess,1,\"a,b\"\n\n\"{two}\",bob,2\n"));

    let hashed = workdir.succeeds("user token hash tokens.csv");

    assert_eq!(hashed, format!("{},tess,1,\"a,b\"\n\n{},bob,2\n", digest(one), digest(two)));
    workdir.write("hashed.csv", hashed.clone());
    assert_eq!(workdir.succeeds("user token hash hashed.csv"), hashed);
    workdir.write("weak.csv", "sesame,tess,1\n");
    let weak = workdir.fails("user token hash weak.csv");
    assert_says(&weak, "line 1");
    assert!(!weak.contains("sesame"), "{weak}");
}
