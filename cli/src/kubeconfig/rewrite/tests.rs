//! Checks that a rewritten kubeconfig differs only in its proxy or server, and that unsuitable kubeconfigs are refused.

use super::*;

const ADMIN_CONF: &str = "
apiVersion: v1
kind: Config
clusters:
- name: kubernetes
  cluster: { server: 'https://192.168.1.10:6443', certificate-authority: pki/ca.crt }
- name: other
  cluster: { server: 'https://[2001:db8::1]' }
contexts:
- name: admin
  context: { cluster: kubernetes, user: admin }
- name: other
  context: { cluster: other, user: admin }
current-context: admin
users:
- name: admin
  user: { client-certificate: /etc/admin.crt, client-key-data: 'MTIz' }
";

fn rewritten(context: Option<&str>) -> (Value, String) {
    let ProxiedKubeconfig { text, target } =
        with_proxy(ADMIN_CONF, Path::new("/here"), context, "http://u:s@127.0.0.1:1", None).unwrap();
    (serde_saphyr::from_str(&text).unwrap(), target.to_string())
}

#[test]
fn only_the_proxy_of_the_selected_cluster_and_relative_paths_change() {
    let (document, target) = rewritten(None);

    let mut expected: Value = serde_saphyr::from_str(ADMIN_CONF).unwrap();
    expected["clusters"][0]["cluster"]["proxy-url"] = "http://u:s@127.0.0.1:1".into();
    expected["clusters"][0]["cluster"]["certificate-authority"] = "/here/pki/ca.crt".into();
    assert_eq!(document, expected);
    assert_eq!(target, "192.168.1.10:6443");
}

/// There is none if the kubeconfig skips verification.
#[test]
fn the_name_to_verify_is_the_host_or_the_given_server_name() {
    let with = |more: &str| ADMIN_CONF.replace("pki/ca.crt", &format!("pki/ca.crt, {more}"));
    for (text, context, expected) in [
        (ADMIN_CONF.to_owned(), None, Some("192.168.1.10")),
        (ADMIN_CONF.to_owned(), Some("other"), Some("2001:db8::1")),
        (with("tls-server-name: kubernetes"), None, Some("kubernetes")),
        (with("tls-server-name: ''"), None, Some("192.168.1.10")),
        (with("insecure-skip-tls-verify: true"), None, None),
    ] {
        assert_eq!(verified_name(&text, context).unwrap().as_deref(), expected, "{text}");
    }
}

#[test]
fn a_named_context_becomes_the_current_one() {
    let (document, target) = rewritten(Some("other"));

    assert_eq!(document["current-context"], "other");
    assert_eq!(document["clusters"][0]["cluster"].get("proxy-url"), None);
    assert_eq!(document["clusters"][1]["cluster"]["proxy-url"], "http://u:s@127.0.0.1:1");
    assert_eq!(target, "[2001:db8::1]:443");
}

/// A cluster that has a proxy keeps it, and a cluster without https gets none.
#[test]
fn for_a_network_every_https_cluster_without_a_proxy_gets_one() {
    let more = "- name: plain\n  cluster: { server: 'http://192.168.1.12' }\n\
                - name: proxied\n  cluster: { server: 'https://192.168.1.13', proxy-url: 'http://other' }\ncontexts:";
    let text = ADMIN_CONF.replacen("contexts:", more, 1);

    let ProxiedKubeconfig { text: written, target } =
        with_proxy_for_all(&text, Path::new("/here"), Some("other"), "http://u:s@127.0.0.1:1").unwrap();

    let mut expected = parsed(&text);
    expected["current-context"] = "other".into();
    expected["clusters"][0]["cluster"]["certificate-authority"] = "/here/pki/ca.crt".into();
    for number in [0, 1] {
        expected["clusters"][number]["cluster"]["proxy-url"] = "http://u:s@127.0.0.1:1".into();
    }
    assert_eq!((parsed(&written), target.as_str()), (expected, "[2001:db8::1]:443"));
    let refused = with_proxy_for_all(
        &text.replace("context: { cluster: other", "context: { cluster: plain"),
        Path::new(""),
        Some("other"),
        "http://p",
    );
    assert!(refused.unwrap_err().to_string().contains("no https URL"));
}

#[test]
fn what_cannot_be_used_is_refused_with_its_reason() {
    let plain = ADMIN_CONF.replace("https://192", "http://192");
    let proxied = ADMIN_CONF.replace("pki/ca.crt", "pki/ca.crt, proxy-url: 'http://other'");
    for (text, context, expected) in [
        (plain.as_str(), None, "no https URL"),
        (proxied.as_str(), None, "a proxy-url already"),
        (ADMIN_CONF, Some("third"), "no context \"third\""),
        ("a: b", None, "no current-context"),
        ("[", None, "not a kubeconfig"),
    ] {
        let refused = with_proxy(text, Path::new(""), context, "http://p", None).unwrap_err();
        assert!(refused.to_string().contains(expected), "{refused} {expected}");
    }
}

fn with_https_proxy(text: &str, trust: &ProxyTrust) -> Result<String, RewriteError> {
    let proxy = "https://u:t@gateway.example:8445";
    with_proxy(text, Path::new(""), None, proxy, Some(trust)).map(|rewritten| rewritten.text)
}

fn parsed(text: &str) -> Value {
    serde_saphyr::from_str(text).unwrap()
}

fn constrained() -> ProxyTrust {
    ProxyTrust::Constrained(ConstrainedCa {
        pem: "PROXY\n".to_owned(),
        names: vec!["gateway.example".to_owned()],
    })
}

#[test]
fn only_the_server_changes_for_a_passthrough() {
    let own = ADMIN_CONF.replace("certificate-authority: pki/ca.crt", "certificate-authority-data: T1dOCg==");
    let with = |text: &str| with_server(text, Path::new("/here"), None, "https://api.edge-a.example:6443");

    let ReaddressedKubeconfig { text, ca_pem } = with(&own).unwrap();

    let mut expected = parsed(&own);
    expected["clusters"][0]["cluster"]["server"] = "https://api.edge-a.example:6443".into();
    assert_eq!((parsed(&text), ca_pem.as_str()), (expected, "OWN\n"));
    let more = |more: &str| own.replace("T1dOCg==", &format!("T1dOCg==, {more}"));
    for (text, expected) in [
        (more("tls-server-name: kubernetes"), "take it out"),
        (more("insecure-skip-tls-verify: true"), "add its certificate-authority"),
        (more("proxy-url: 'http://p'"), "a proxy-url already"),
        (ADMIN_CONF.replace(", certificate-authority: pki/ca.crt", ""), "add its certificate-authority"),
    ] {
        let refused = with(&text).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused} {expected}");
    }
}

/// The API server has to prove the name that it had before: its tls-server-name, or its old host.
#[test]
fn at_a_vip_the_old_name_is_verified_and_only_the_server_changes() {
    let own = ADMIN_CONF.replace("certificate-authority: pki/ca.crt", "certificate-authority-data: T1dOCg==");
    let with =
        |text: &str| with_server_and_old_name(text, Path::new("/here"), None, "https://edge-a.tombolo.svc");
    for (old, name) in [
        ("https://192.168.1.10:6443", "192.168.1.10"),
        ("https://[2001:db8::7]:6443", "2001:db8::7"),
        ("https://api.edge-a.example/", "api.edge-a.example"),
    ] {
        let text = own.replace("https://192.168.1.10:6443", old);

        let renamed = with(&text).unwrap();

        let mut expected = parsed(&text);
        expected["clusters"][0]["cluster"]["server"] = "https://edge-a.tombolo.svc".into();
        expected["clusters"][0]["cluster"]["tls-server-name"] = name.into();
        assert_eq!((parsed(&renamed.text), renamed.name.as_str()), (expected, name));
        assert_eq!(renamed.ca_pem, "OWN\n");
    }
    let more = |more: &str| own.replace("T1dOCg==", &format!("T1dOCg==, {more}"));
    let named = with(&more("tls-server-name: kubernetes")).unwrap();
    assert_eq!(parsed(&named.text)["clusters"][0]["cluster"]["tls-server-name"], "kubernetes");
    assert_eq!(named.name, "kubernetes");
    for (text, expected) in [
        (more("insecure-skip-tls-verify: true"), "add its certificate-authority"),
        (more("proxy-url: 'http://p'"), "a proxy-url already"),
        (ADMIN_CONF.replace(", certificate-authority: pki/ca.crt", ""), "add its certificate-authority"),
        (own.replace("192.168.1.10:6443", "rancher.example/k8s/clusters/c-1"), "has a path"),
        (own.replace("https://192", "http://192"), "no https URL"),
    ] {
        let refused = with(&text).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused} {expected}");
    }
}

#[test]
fn the_ca_of_the_proxy_is_added_to_that_of_the_cluster() {
    let embedded =
        ADMIN_CONF.replace("certificate-authority: pki/ca.crt", "certificate-authority-data: T1dOCg==");
    let document = parsed(&with_https_proxy(&embedded, &constrained()).unwrap());
    let cluster = &document["clusters"][0]["cluster"];
    let bundle = BASE64.decode(cluster["certificate-authority-data"].as_str().unwrap()).unwrap();
    assert_eq!(bundle, b"OWN\nPROXY\n");
    assert_eq!(cluster["proxy-url"], "https://u:t@gateway.example:8445");
    assert!(document["clusters"][1]["cluster"].get("certificate-authority-data").is_none());

    let public = ADMIN_CONF.replace(", certificate-authority: pki/ca.crt", "");
    let document = parsed(&with_https_proxy(&public, &ProxyTrust::System).unwrap());
    assert!(document["clusters"][0]["cluster"].get("certificate-authority-data").is_none());
}

#[test]
fn an_https_proxy_is_refused_where_the_wrong_ca_could_sign_for_it() {
    let own = ADMIN_CONF.replace("certificate-authority: pki/ca.crt", "certificate-authority-data: T1dOCg==");
    let with = |more: &str| own.replace("T1dOCg==", &format!("T1dOCg==, {more}"));
    let named = own.replace("192.168.1.10", "api.gateway.example");
    let public = ADMIN_CONF.replace(", certificate-authority: pki/ca.crt", "");
    for (text, trust, expected) in [
        (with("tls-server-name: kubernetes").as_str(), constrained(), "a tls-server-name"),
        (&with("insecure-skip-tls-verify: true"), constrained(), "insecure-skip-tls-verify"),
        (&own, ProxyTrust::System, "by --ca"),
        (&public, constrained(), "leave --ca out"),
        (&named, constrained(), "below a name"),
        (&own.replace("T1dOCg==", "'!'"), constrained(), "not PEM"),
        (ADMIN_CONF, constrained(), "pki/ca.crt"),
    ] {
        let refused = with_https_proxy(text, &trust).unwrap_err().to_string();
        assert!(refused.contains(expected), "{refused} {expected}");
    }
    assert!(
        is_within("a.gateway.example", "gateway.example") && is_within("Gateway.Example.", "gateway.example")
    );
    assert!(!is_within("agateway.example", "gateway.example") && !is_within("example", "gateway.example"));
}
