//! The control plane's address in kubeadm's ConfigMaps `cluster-info` and `kubeadm-config`, which is also the
//! one in an admin.conf.

use http::Uri;
use http::uri::Scheme;
use policy::Target;
use serde::Deserialize;

/// Port of a server in a kubeconfig without one.
const HTTPS_PORT: u16 = 443;

/// Port of a `controlPlaneEndpoint` without one. Nodes may bind another one, which the ConfigMap does not
/// tell.
const BIND_PORT: u16 = 6443;

#[derive(Deserialize)]
struct ConfigMap<D> {
    data: Option<D>,
}

#[derive(Deserialize)]
struct ClusterInfo {
    kubeconfig: Option<String>,
}

#[derive(Deserialize)]
struct ClusterInfoKubeconfig {
    #[serde(default)]
    clusters: Vec<ClusterInfoEntry>,
}

#[derive(Deserialize)]
struct ClusterInfoEntry {
    cluster: ClusterInfoServer,
}

#[derive(Deserialize)]
struct ClusterInfoServer {
    server: Option<String>,
}

#[derive(Deserialize)]
struct KubeadmConfig {
    #[serde(rename = "ClusterConfiguration")]
    cluster_configuration: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClusterConfiguration {
    control_plane_endpoint: Option<String>,
}

/// The servers of the kubeconfig in `cluster-info`, `host:port` each. Content that cannot be parsed gives
/// none: the cluster may write what it likes there.
pub(super) fn servers(answer: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let ConfigMap::<ClusterInfo> { data } = serde_json::from_slice(answer)?;
    let kubeconfig = data.and_then(|data| data.kubeconfig);
    let parsed = kubeconfig.and_then(|text| serde_saphyr::from_str::<ClusterInfoKubeconfig>(&text).ok());
    let clusters = parsed.map(|parsed| parsed.clusters).unwrap_or_default();
    Ok(clusters.iter().filter_map(|named| server(named.cluster.server.as_deref()?)).collect())
}

/// The `controlPlaneEndpoint` in `kubeadm-config`, as `host:port`, if there is one.
pub(super) fn control_plane_endpoint(answer: &[u8]) -> Result<Vec<String>, serde_json::Error> {
    let ConfigMap::<KubeadmConfig> { data } = serde_json::from_slice(answer)?;
    let configuration = data.and_then(|data| data.cluster_configuration);
    let parsed = configuration.and_then(|text| serde_saphyr::from_str::<ClusterConfiguration>(&text).ok());
    let endpoint = parsed.and_then(|parsed| parsed.control_plane_endpoint);
    Ok(endpoint.and_then(|endpoint| target(&endpoint, BIND_PORT)).into_iter().collect())
}

fn server(url: &str) -> Option<String> {
    let url: Uri = url.parse().ok()?;
    let authority = url.authority().filter(|_| url.scheme() == Some(&Scheme::HTTPS))?;
    target(authority.as_str(), HTTPS_PORT)
}

/// `host:port` of a text, with this port where it has none.
fn target(text: &str, port: u16) -> Option<String> {
    let with_port = format!("{text}:{port}");
    // An IPv6 address without brackets is no target either way.
    let parsed: Result<Target, _> = text.parse().or_else(|_| with_port.parse());
    parsed.ok().map(|target| target.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn info(server: &str) -> Vec<String> {
        let kubeconfig = format!(
            "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: QQ==\n    server: {server}\n  name: \"\"\n\
             contexts: null\nkind: Config\nusers: null\n"
        );
        servers(
            json!({ "data": { "jws-kubeconfig-x": "y", "kubeconfig": kubeconfig } }).to_string().as_bytes(),
        )
        .unwrap()
    }

    fn endpoint(text: &str) -> Vec<String> {
        let configuration = format!(
            "apiServer: {{}}\napiVersion: kubeadm.k8s.io/v1beta4\ncontrolPlaneEndpoint: {text}\nkind: ClusterConfiguration\n"
        );
        let answer = json!({ "data": { "ClusterConfiguration": configuration } });
        control_plane_endpoint(answer.to_string().as_bytes()).unwrap()
    }

    #[test]
    fn the_server_of_an_admin_conf_is_found_by_name_or_address() {
        for (server, expected) in [
            ("https://192.168.1.10:6443", "192.168.1.10:6443"),
            ("https://api.site.example:6443", "api.site.example:6443"),
            ("https://api.site.example", "api.site.example:443"),
            ("https://[fd00::a]:6443", "[fd00::a]:6443"),
        ] {
            assert_eq!(info(server), [expected], "{server}");
        }
        for (text, expected) in [
            ("api.site.example:6443", "api.site.example:6443"),
            ("api.site.example", "api.site.example:6443"),
            ("10.0.0.5:443", "10.0.0.5:443"),
            ("\"[fd00::a]\"", "[fd00::a]:6443"),
        ] {
            assert_eq!(endpoint(text), [expected], "{text}");
        }
    }

    #[test]
    fn a_text_that_is_no_server_gives_nothing_and_no_error() {
        for server in
            ["http://192.168.1.10:6443", "https://user@api.example:6443", "''", "{}", "https://127.1:6443"]
        {
            assert_eq!(info(server), Vec::<String>::new(), "{server}");
        }
        for text in ["''", "fd00::a", "\"a b\"", "127.1", "null"] {
            assert_eq!(endpoint(text), Vec::<String>::new(), "{text}");
        }
        for answer in ["{}", r#"{"data":null}"#, r#"{"data":{}}"#, r#"{"data":{"kubeconfig":"["}}"#] {
            assert_eq!(servers(answer.as_bytes()).unwrap(), Vec::<String>::new(), "{answer}");
            assert_eq!(control_plane_endpoint(answer.as_bytes()).unwrap(), Vec::<String>::new(), "{answer}");
        }
    }

    proptest! {
        #[test]
        fn any_text_of_a_cluster_gives_a_target_or_nothing(text in ".{0,64}") {
            for found in info(&text).into_iter().chain(endpoint(&text)) {
                prop_assert!(found.parse::<Target>().is_ok(), "{found}");
            }
        }
    }
}
