//! Tests of sealing, opening, damaged files and file permissions.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use super::*;
use crate::fixtures;

#[test]
fn a_sealed_intermediate_opens_and_signs_as_before() {
    let (intermediate, key) = (intermediate(), SealingKey::generate().unwrap());

    let opened = open(&seal(&intermediate, &key).unwrap(), &key).unwrap();

    assert_eq!(opened.role(), Role::Agent);
    assert_eq!(opened.trust_domain(), intermediate.trust_domain());
    assert_eq!(opened.certificates(), intermediate.certificates());
    assert_eq!(opened.not_after(), intermediate.not_after());
}

#[test]
fn another_key_opens_nothing() {
    let sealed = seal(&intermediate(), &SealingKey::generate().unwrap()).unwrap();
    let opened = open(&sealed, &SealingKey::generate().unwrap());
    assert!(matches!(opened, Err(OpenError::Refused)), "{opened:?}");
}

#[test]
fn no_part_of_the_file_can_be_replaced() {
    let key = SealingKey::generate().unwrap();
    let (sealed, other) = (seal(&intermediate(), &key).unwrap(), seal(&intermediate(), &key).unwrap());
    let certificate = |text: &str| serde_json::from_str::<SealedFile>(text).unwrap().certificates.remove(0);
    for (from, to) in [
        ("\"agent\"", "\"caller\""),
        ("\"tombolo\"", "\"evil\""),
        (certificate(&sealed).as_str(), certificate(&other).as_str()),
    ] {
        assert!(sealed.contains(from), "{from}");
        let opened = open(&sealed.replace(from, to), &key);
        assert!(matches!(opened, Err(OpenError::Refused)), "{to}: {opened:?}");
    }
}

#[test]
fn a_malformed_file_is_refused_with_a_reason() {
    let key = SealingKey::generate().unwrap();
    let sealed = seal(&intermediate(), &key).unwrap();
    for text in [
        String::new(),
        "{}".to_owned(),
        sealed.replace("\"version\": 1", "\"version\": 2"),
        sealed.replace("\"version\": 1", "\"version\": 1, \"more\": 1"),
        sealed.replace("\"sealedKey\": \"", "\"sealedKey\": \"!"),
    ] {
        assert!(matches!(open(&text, &key), Err(OpenError::Malformed)), "{text}");
    }
}

#[test]
fn the_key_is_neither_in_the_file_nor_in_a_log() {
    let (intermediate, key) = (intermediate(), SealingKey::generate().unwrap());
    let sealed = seal(&intermediate, &key).unwrap();
    let SealedFile { certificates, sealed_key, .. } = serde_json::from_str(&sealed).unwrap();
    // Behind the names of the algorithms (RFC 5208), before the public half.
    let secret = &intermediate.key().serialize_der()[36..68];
    for part in certificates.iter().chain([&sealed_key]) {
        let bytes = BASE64.decode(part).unwrap();
        assert!(!bytes.windows(secret.len()).any(|window| window == secret));
    }
    assert_eq!(format!("{key:?}"), "SealingKey { .. }");
    assert!(!format!("{intermediate:?}").contains("issuer"));
}

#[test]
fn files_open_to_others_are_refused_with_the_remedy() {
    let home = tempfile::tempdir().unwrap();
    let key = SealingKey::generate().unwrap();
    let written = |name: &str, text: &str, mode| -> PathBuf {
        let path = home.path().join(name);
        fs::write(&path, text).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        path
    };
    let sealed = seal(&intermediate(), &key).unwrap();
    let (file, key_file) = (written("signer", &sealed, 0o600), written("key", &key.to_text(), 0o600));
    assert!(load(&file, &key_file).is_ok());

    let open_key = load(&file, &written("open", &key.to_text(), 0o644)).unwrap_err().to_string();
    assert!(open_key.contains("chmod 600") && open_key.contains("open"), "{open_key}");
    let open_file = load(&written("wide", &sealed, 0o666), &key_file).unwrap_err().to_string();
    assert!(open_file.contains("chmod 600") && open_file.contains("wide"), "{open_file}");
    let absent = load(&home.path().join("absent"), &key_file).unwrap_err().to_string();
    assert!(absent.contains("cannot read") && absent.contains("absent"), "{absent}");
    let wrong = load(&file, &written("wrong", "no key\n", 0o600)).unwrap_err().to_string();
    assert!(wrong.contains("wrong holds no sealing key"), "{wrong}");
    let large = load(&written("large", &" ".repeat(70_000), 0o600), &key_file).unwrap_err().to_string();
    assert!(large.contains("larger than"), "{large}");
}

fn intermediate() -> Intermediate {
    fixtures::intermediate(Role::Agent)
}
