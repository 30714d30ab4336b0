//! Tests of the policy file at the start and after changes.

use std::fs;
use std::time::Duration;

use tempfile::TempDir;
use tokio::time::timeout;

use super::*;

const HEAD: &str = "apiVersion: tombolo.dev/v1alpha1\nkind: Policy\n";
const RULE: &str = "effect: Allow, subjects: [{ method: token, user: alice }], clusters: { names: ['*'] }, mode: kube-api, \
                    actions: [{ verbs: [get], nonResourceURLs: ['*'] }]";

/// The file is read at least every ten seconds, even if the system has no inotify instance left.
const SOON: Duration = Duration::from_secs(40);

#[test]
fn an_invalid_file_at_the_start_is_an_error_with_its_position() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("policy.yaml");
    let error_of = |text: Option<&str>| {
        if let Some(text) = text {
            fs::write(&path, text).unwrap();
        }
        let error = PolicyFile::open(path.clone()).map(drop).unwrap_err();
        error_chain(&error).to_string()
    };
    for (text, parts) in [
        (None, &["there is no policy", "policy.yaml", "policy.file"][..]),
        (Some(""), &["apiVersion"]),
        (
            Some("apiVersion: tombolo.dev/v1alpha1\nkind: ServerConfig\n"),
            &["policy.yaml:2:7: kind: ServerConfig"],
        ),
        (Some(HEAD), &["rules"]),
        (Some(&format!("{HEAD}rules: []\n")), &["policy.yaml:3:8: rules: 0 rules"]),
        (
            Some(&format!("{HEAD}rules:\n- {{ name: A, {RULE} }}\n")),
            &["policy.yaml:4:11: rules[0].name: \"A\""],
        ),
        (Some(&format!("{HEAD}rules:\n- {{ nam: a, {RULE} }}\n")), &["policy.yaml:4:", "nam"]),
        (Some(&format!("{HEAD}rules:\n- {{ name: a, name: b, {RULE} }}\n")), &["policy.yaml:4:", "name"]),
        (Some(&"#".repeat(1 + 1024 * 1024)), &["larger than"]),
    ] {
        let error = error_of(text);
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    }
}

#[tokio::test]
async fn a_valid_change_takes_effect_and_an_invalid_one_does_not() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("policy.yaml");
    let write = |count: usize| {
        let rules: String = (0..count).map(|number| format!("- {{ name: r{number}, {RULE} }}\n")).collect();
        fs::write(&path, format!("{HEAD}rules:\n{rules}")).unwrap();
    };
    write(1);
    let (file, rules) = PolicyFile::open(path.clone()).unwrap();
    let policy = Policy::new(rules);
    let digest = file.digest();
    assert_eq!(*digest.borrow(), file_digest(&fs::read(&path).unwrap()));
    let mut snapshots = policy.subscribe();
    let changes = async {
        let mut expected = 1;
        for broken in ["", "rules", HEAD, "apiVersion: x\n", "\u{0}"] {
            expected += 1;
            fs::write(&path, broken).unwrap();
            write(expected);
            timeout(SOON, snapshots.wait_for(|snapshot| snapshot.rules.count() == expected))
                .await
                .unwrap()
                .unwrap();
        }
        let generation = policy.snapshot().generation();
        fs::remove_file(&path).unwrap();
        let moved = folder.path().join("moved.yaml");
        fs::write(&moved, format!("{HEAD}rules:\n- {{ name: last, {RULE} }}\n")).unwrap();
        fs::rename(&moved, &path).unwrap();
        timeout(SOON, snapshots.wait_for(|snapshot| snapshot.rules.count() == 1)).await.unwrap().unwrap();

        // Unchanged and invalid files do not count as generations.
        assert_eq!(policy.snapshot().generation(), generation + 1);
        let mut digest = digest;
        let last = file_digest(&fs::read(&path).unwrap());
        timeout(SOON, digest.wait_for(|digest| *digest == last)).await.unwrap().unwrap();
    };
    // Both arms continue where they were; the first never ends.
    tokio::select! {
        () = file.follow(policy.clone()) => panic!("the file is followed to the end"),
        () = changes => {}
    }
}

#[test]
fn an_invalid_file_is_reported_once_until_it_is_valid_again() {
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("policy.yaml");
    let good = format!("{HEAD}rules:\n- {{ name: a, {RULE} }}\n");
    fs::write(&path, &good).unwrap();
    let (mut file, _) = PolicyFile::open(path.clone()).unwrap();
    let steps: [(&dyn Fn(), Option<bool>); 8] = [
        (&|| {}, None),
        (&|| fs::write(&path, "rules: [").unwrap(), Some(false)),
        (&|| {}, None),
        (&|| fs::remove_file(&path).unwrap(), Some(false)),
        (&|| {}, None),
        (&|| fs::create_dir(&path).unwrap(), Some(false)),
        (&|| fs::remove_dir(&path).and_then(|()| fs::write(&path, &good)).unwrap(), Some(true)),
        (&|| fs::write(&path, &good).unwrap(), None),
    ];
    for (index, (change, expected)) in steps.iter().enumerate() {
        change();
        let (after, reread) = file.reread();
        file = after;
        assert_eq!(reread.map(|rules| rules.is_ok()), *expected, "step {index}");
    }
}
