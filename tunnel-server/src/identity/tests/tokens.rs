//! Tokens of the file: their holders, their validity, and errors in the file.

use super::*;

#[test]
fn a_token_has_an_id_of_its_own_that_is_no_part_of_its_digest() {
    let credentials = ["sesame", "mellon", "sesame"]
        .map(|token| by_header(&[&format!("Bearer {token}")]).unwrap().credential().clone());
    assert_eq!(credentials[0], credentials[2]);
    assert_ne!(credentials[0].id, credentials[1].id);
    assert_eq!((credentials[0].issued, credentials[0].expires), (None, None));
    assert!(!digest("sesame").contains(&*credentials[0].id));
}

#[test]
fn a_token_names_user_and_groups() {
    let caller = by_header(&["Bearer sesame"]).unwrap();

    assert_eq!(caller.method(), &Method::StaticToken);
    assert_eq!(caller.user(), "token:alice");
    assert_eq!(caller.groups(), ["token:ops", "token:dev"]);
    assert_eq!(by_header(&["bEARER mellon"]).unwrap().groups(), [""; 0]);
    assert_eq!(by_header(&["Bearer quoted"]).unwrap().user(), "token:the \"cook\"");
}

#[test]
fn a_caller_is_known_until_its_token_is_removed_or_anothers() {
    let parsed = |file: &str| StaticTokens::parse(file.as_bytes(), token_prefixes()).unwrap();
    let book = SharedTokens::new(parsed(&tokens()));
    let methods = AuthMethods { tokens: Some(book.clone()), ..AuthMethods::default() };
    let authenticator = Authenticator::new("tombolo".to_owned(), methods);
    let sent = headers(&["Bearer sesame"]);
    let asked = authenticator.authenticate(None, &sent, SystemTime::now());
    let alice = at_once(asked).unwrap().require_single_credential().unwrap().clone();
    let (sesame, other) = (digest("sesame"), digest("other"));
    for (file, is_known) in [
        (format!("{sesame},alice,1,\"ops,dev\""), true),
        (format!("{other},alice,1,\"ops,dev\""), false),
        (format!("{sesame},bob,1,\"ops,dev\""), false),
        (format!("{sesame},alice,1,ops"), false),
    ] {
        let mut changes = authenticator.changes();
        assert!(Authenticator::changed(&mut changes).now_or_never().is_none(), "nothing has changed");
        book.replace(parsed(&file));
        at_once(Authenticator::changed(&mut changes));
        assert_eq!(authenticator.is_still_valid(&alice), is_known, "{file}");
    }
    let by_certificate = authenticator_of_certificates();
    assert!(by_certificate.changes().is_none() && by_certificate.is_still_valid(&alice));
    assert!(Authenticator::changed(&mut None).now_or_never().is_none());
}

#[test]
fn a_token_has_only_letters_of_a_b64token_and_padding_at_its_end() {
    for text in ["a", "a=", "a==", "-._~+/aZ09"] {
        assert!(static_tokens::is_token(text.as_bytes()), "{text}");
    }
    for text in ["", "=", "==", "a=b", "=a", "a b", "a,b", "a:b", "\u{e4}"] {
        assert!(!static_tokens::is_token(text.as_bytes()), "{text}");
    }
}

/// One wrong line makes the complete file invalid.
#[test]
fn a_wrong_line_refuses_the_token_file_and_is_named_without_its_token() {
    use TokenLineError::{Columns, Digest, Duplicate, Name, None, Plain, Quote, Text};

    let good = digest("secret");
    for (line, fault) in [
        ("SECRET", Columns),
        ("SECRET,alice", Columns),
        ("SECRET,alice,1,ops,dev", Columns),
        (",alice,1", Plain),
        ("secret,alice,1", Plain),
        ("\"secret\",alice,1", Plain),
        ("sec ret,alice,1", Plain),
        (&good[7..], Columns),
        (&format!("{},alice,1", &good[7..]), Plain),
        (&format!("{}0,alice,1", good), Digest),
        (&format!("{},alice,1", &good[..70]), Digest),
        (&format!("sha512:{},alice,1", &good[7..]), Digest),
        ("SECRET,,1", Name(NameError::Empty)),
        ("SECRET,system:admin,1", Name(NameError::System)),
        ("SECRET,alice,1,system:masters", Name(NameError::System)),
        ("SECRET,alice,1,\"ops,\"", Name(NameError::Empty)),
        ("SECRET,alice,1,\"ops, dev\"", Name(NameError::Invisible)),
        ("SECRET,al\u{200b}ice,1", Name(NameError::Invisible)),
        ("SECRET,alice,1,o\u{2060}ps", Name(NameError::Invisible)),
        ("SECRET,\"alice,1", Quote),
        ("SECRET,\"alice\"x,1", Quote),
        ("SECRET,al\"ice\",1", Quote),
        (&format!("{},mallory,9", digest("sesame")), Duplicate),
        (&format!("{},mallory,9", digest("sesame").to_uppercase().replace("SHA", "sha")), Duplicate),
    ] {
        let file = format!("{}{}\n", tokens(), line.replace("SECRET", &good));
        let error = StaticTokens::parse(file.as_bytes(), token_prefixes()).unwrap_err();
        assert_eq!(error, TokenFileError { line: 5, fault }, "{line}");
        assert!(!error.to_string().contains("sec") && !error.to_string().contains(&good[7..]), "{error}");
    }
    let parsed = |file: &str, more: &[u8]| {
        StaticTokens::parse(&[file.as_bytes(), more].concat(), token_prefixes()).map(drop)
    };
    let line = format!("{good},b,c\n");
    assert_eq!(parsed(&line, b"\xff,b,c"), Err(TokenFileError { line: 2, fault: Text }));
    assert_eq!(parsed("", b"\n\n"), Err(TokenFileError { line: 3, fault: None }));
}

#[test]
fn debug_shows_no_token() {
    let shown = format!("{:?}", both());
    assert!(!shown.contains("sesame") && !shown.contains("alice"), "{shown}");
}

fn authenticator_of_certificates() -> Authenticator {
    authenticator(Some(Prefixes { username: String::new(), groups: String::new() }), None)
}
