//! Fields of a kubeconfig that are read, and others that are refused by name.

use std::fs;

use super::*;

#[test]
fn a_kubeconfig_with_data_is_read() {
    let home = tempfile::tempdir().unwrap();

    let material = read_with(&home, "", "token: abc").unwrap();

    assert_eq!((material.target.host.as_str(), material.target.port), ("10.0.0.1", 6443));
    assert_eq!(material.ca, b"CA");
    assert_eq!(material.authorization.unwrap(), "Bearer abc");
    assert!(material.client_certificate.is_none());
}

#[test]
fn files_are_looked_for_beside_the_kubeconfig() {
    let home = tempfile::tempdir().unwrap();
    for (name, content) in [("t", "from-file\n"), ("c", "CERT"), ("k", "KEY")] {
        fs::write(home.path().join(name), content).unwrap();
    }

    let user = "{token: ignored, tokenFile: t, client-certificate: c, client-key: k}";
    let material = read_with(&home, "", user).unwrap();

    assert_eq!(material.authorization.unwrap(), "Bearer from-file");
    let certificate = material.client_certificate.unwrap();
    assert_eq!((certificate.chain.as_slice(), certificate.key.as_slice()), (&b"CERT"[..], &b"KEY"[..]));
}

#[test]
fn the_name_in_the_servers_certificate_may_differ_from_its_host() {
    let home = tempfile::tempdir().unwrap();

    let material = read_with(&home, "tls-server-name: kubernetes.default", "{token: abc}").unwrap();

    assert_eq!(material.target.authority, "10.0.0.1:6443");
    assert_eq!(material.target.server_name.to_str(), "kubernetes.default");
}

#[test]
fn every_field_that_cannot_be_honoured_is_refused_by_name() {
    let home = tempfile::tempdir().unwrap();
    for (cluster, user, field) in [
        ("", "{exec: {command: aws, apiVersion: v1}}", "exec"),
        ("", "{auth-provider: {name: gcp}}", "auth-provider"),
        ("", "{username: u, token: t}", "username"),
        ("", "{password: p, token: t}", "password"),
        ("", "{as: root, token: t}", "as"),
        ("", "{as-uid: 0, token: t}", "as-uid"),
        ("", "{as-groups: [a], token: t}", "as-groups"),
        ("", "{as-user-extra: {a: [b]}, token: t}", "as-user-extra"),
        ("insecure-skip-tls-verify: true", "{token: t}", "insecure-skip-tls-verify"),
        ("proxy-url: http://proxy", "{token: t}", "proxy-url"),
    ] {
        let Err(CredentialError::Kubeconfig(error)) = read_with(&home, cluster, user) else {
            panic!("{field} was taken");
        };
        let message = error.to_string();
        assert!(message.contains(&format!(": {field} is not supported; ")), "{message}");
    }
}

#[test]
fn verifying_the_server_explicitly_is_allowed() {
    let home = tempfile::tempdir().unwrap();

    assert!(read_with(&home, "insecure-skip-tls-verify: false", "{token: t}").is_ok());
}

#[test]
fn a_server_that_is_not_an_https_host_is_refused() {
    for server in [
        "http://10.0.0.1",
        "https://u:p@10.0.0.1",
        "https://host/k8s/../c-1",
        "https://host/k8s/./c-1",
        "https://host/?c=1",
        "https://host/k8s#c",
        "10.0.0.1:6443",
        "",
    ] {
        let home = tempfile::tempdir().unwrap();
        let refused = read_text(&home, &text(server, "certificate-authority-data: Q0E=", "{token: t}"), None);
        assert!(
            matches!(refused, Err(CredentialError::Kubeconfig(KubeconfigError::Server(_)))),
            "{server:?}"
        );
    }
}

#[test]
fn a_server_may_have_a_base_path() {
    for (server, expected) in [
        ("https://host", "/api"),
        ("https://host/", "/api"),
        ("https://host/k8s/clusters/c-1", "/k8s/clusters/c-1/api"),
        ("https://host/k8s//clusters/c-1/", "/k8s/clusters/c-1/api"),
        ("https://host/%61", "/%61/api"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let text = text(server, "certificate-authority-data: Q0E=", "{token: t}");
        let target = read_text(&home, &text, None).unwrap_or_else(|error| panic!("{error}")).target;
        assert_eq!(target.path(&"/api".parse().unwrap()), expected, "{server}");
    }
}

#[test]
fn a_user_without_a_value_lacks_a_credential_as_for_kubectl() {
    let home = tempfile::tempdir().unwrap();
    for user in ["null", "", "{}", "{token: null, exec: null, username: ''}"] {
        let refused =
            read_text(&home, &text("https://10.0.0.1", "certificate-authority-data: Q0E=", user), None);
        let Err(CredentialError::Kubeconfig(KubeconfigError::Incomplete { field, .. })) = refused else {
            panic!("{user:?} was taken for a credential, or for a syntax error");
        };
        assert_eq!(field, "a credential", "{user:?}");
    }
}

#[test]
fn only_the_first_document_of_a_kubeconfig_counts_as_for_kubectl() {
    let home = tempfile::tempdir().unwrap();
    let first = text("https://10.0.0.1", "certificate-authority-data: Q0E=", "{token: t}");
    let second = text("https://10.0.0.2", "certificate-authority-data: Q0E=", "{token: t}");

    for file in [format!("---\n{first}---\n{second}"), format!("{first}---\n- something else\n")] {
        let material = read_text(&home, &file, None).unwrap_or_else(|error| panic!("{error}: {file}"));
        assert_eq!(material.target.host, "10.0.0.1");
    }
}

#[test]
fn ipv6_and_the_default_port_are_understood() {
    let home = tempfile::tempdir().unwrap();

    let text = text("https://[fd00::1]", "certificate-authority-data: Q0E=", "{token: t}");
    let target = read_text(&home, &text, None).unwrap_or_else(|error| panic!("{error}")).target;

    assert_eq!((target.host.as_str(), target.port), ("fd00::1", 443));
    assert_eq!(target.authority, "[fd00::1]:443");
}

#[test]
fn a_configured_context_wins_over_the_current_one() {
    let home = tempfile::tempdir().unwrap();
    let text = text("https://10.0.0.1", "certificate-authority-data: Q0E=", "{token: t}");

    assert!(read_text(&home, &text, Some("here")).is_ok());
    let refused = read_text(&home, &text, Some("there"));
    let Err(CredentialError::Kubeconfig(KubeconfigError::Missing { what, name, .. })) = refused else {
        panic!("a context that is not there was taken");
    };
    assert_eq!((what, name.as_str()), ("context", "there"));
}

#[test]
fn an_incomplete_kubeconfig_is_refused_by_the_missing_field() {
    let home = tempfile::tempdir().unwrap();
    for (ca, user, field) in [
        ("", "{token: t}", "certificate-authority"),
        ("certificate-authority-data: Q0E=", "{}", "a credential"),
        ("certificate-authority-data: Q0E=", "{client-certificate-data: Q0E=}", "client-key"),
        ("certificate-authority-data: Q0E=", "{client-key-data: Q0E=}", "client-certificate"),
    ] {
        let refused = read_text(&home, &text("https://10.0.0.1", ca, user), None);
        let Err(CredentialError::Kubeconfig(KubeconfigError::Incomplete { field: named, .. })) = refused
        else {
            panic!("{field} was not missed");
        };
        assert_eq!(named, field);
    }
}

#[test]
fn no_error_quotes_a_secret() {
    let home = tempfile::tempdir().unwrap();
    for broken in [
        text("https://10.0.0.1", "certificate-authority-data: s3cret!", "{token: t}"),
        text("https://10.0.0.1", "certificate-authority-data: Q0E=", "{token: \"s3cret s3cret\"}"),
        text("https://10.0.0.1", "certificate-authority-data: Q0E=", "{token: [s3cret"),
        text("https://10.0.0.1", "certificate-authority-data: Q0E=", "{token: {s3cret: s3cret}}"),
        text(
            "https://10.0.0.1",
            "certificate-authority-data: Q0E=",
            "{token: t, client-key-data: 's3cret!'}",
        ),
    ] {
        let Err(error) = read_text(&home, &broken, None) else {
            panic!("it was taken: {broken}");
        };
        assert!(!format!("{error} {error:?}").contains("s3cret"), "{error} {error:?}");
    }
}

fn read_with(home: &tempfile::TempDir, cluster: &str, user: &str) -> Result<Material, CredentialError> {
    let cluster = format!("certificate-authority-data: Q0E=\n    {cluster}");
    let user = if user.starts_with('{') { user.to_owned() } else { format!("{{{user}}}") };
    read_text(home, &text("https://10.0.0.1:6443", &cluster, &user), None)
}

fn read_text(
    home: &tempfile::TempDir,
    text: &str,
    context: Option<&str>,
) -> Result<Material, CredentialError> {
    read(&put(home, text), context)
}

fn put(home: &tempfile::TempDir, text: &str) -> PathBuf {
    let path = home.path().join("kubeconfig");
    fs::write(&path, text).unwrap();
    path
}

fn text(server: &str, cluster: &str, user: &str) -> String {
    format!(
        "apiVersion: v1
kind: Config
preferences: {{}}
current-context: here
contexts:
- name: here
  context: {{cluster: c, user: u, namespace: n}}
clusters:
- name: c
  cluster:
    server: '{server}'
    {cluster}
users:
- name: u
  user: {user}
"
    )
}
