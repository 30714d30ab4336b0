//! Configurations that are valid, and the errors of others.

use clap::CommandFactory;
use daemon::config::{KeyError, RawCommon};

use super::raw::RawConfig;
use super::*;

mod pages;

const WHOLE: &str = "
apiServers: ['192.168.1.11:6443', '[fd00::2]:6443', 'cp.example:443']
caFile: ca.crt
clientCertificateFile: /var/lib/kubelet/pki/kubelet-client-current.pem
clientKeyFile: kubelet.key
serverName: localhost
listen: ['127.0.0.1:8443', '127.0.0.2:8443']
stateDir: state
probes: { listen: '127.0.0.1:9999' }
drainGraceSeconds: 5
hostCluster: { apiServer: 'host.example:6443', caFile: host.crt, tokenFile: token, namespace: tenant-a, service: kube-apiserver }
pods: { networks: [10.244.0.0/16], kubernetesService: '10.96.0.1:443' }
runtime: { layout: shared, threads: 2 }
";

const LEAST: &str = "
apiServers: ['192.168.1.11:6443']
caFile: /etc/kubernetes/pki/ca.crt
";

#[test]
fn every_key_is_read_and_relative_paths_start_at_the_file() {
    let config = valid(WHOLE, &Flags::default()).unwrap();

    let expected = [
        Seed::Address("192.168.1.11:6443".parse().unwrap()),
        Seed::Address("[fd00::2]:6443".parse().unwrap()),
        Seed::Name("cp.example".to_owned(), 443),
    ];
    assert_eq!(config.seeds, expected);
    assert_eq!(config.tls.ca, Path::new("/etc/tombolo/ca.crt"));
    assert_eq!(config.tls.key.as_deref(), Some(Path::new("/etc/tombolo/kubelet.key")));
    assert_eq!(config.tls.server_name.to_str(), "localhost");
    assert!(config.listens_as_configured && config.listen.len() == 2);
    assert_eq!(config.state_dir, Path::new("/etc/tombolo/state"));
    assert_eq!((config.probes_listen.port(), config.drain_grace), (9999, Duration::from_secs(5)));
    assert_eq!(config.layout, Layout::Shared { workers: 2 });
    let host = config.host_cluster.unwrap();
    assert_eq!(
        (host.address, host.tls.server_name.to_str().as_ref()),
        (("host.example".to_owned(), 6443), "host.example")
    );
    assert_eq!([host.tls.ca, host.token], ["/etc/tombolo/host.crt", "/etc/tombolo/token"].map(PathBuf::from));
    assert_eq!([host.namespace, host.service], ["tenant-a", "kube-apiserver"]);
    let pods = config.pods.unwrap();
    assert_eq!(pods.address.to_string(), "169.254.10.21:7443");
    assert_eq!((pods.networks.len(), pods.service), (1, Some("10.96.0.1:443".parse().unwrap())));
}

#[test]
fn the_smallest_configuration_is_enough() {
    let config = valid(LEAST, &Flags::default()).unwrap();

    let listen: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    assert_eq!(listen, ["127.0.0.1:7443", "[::1]:7443"]);
    assert!(!config.listens_as_configured && config.tls.certificate.is_none() && config.pods.is_none());
    assert_eq!(config.tls.server_name.to_str(), "127.0.0.1");
    assert_eq!(config.probes_listen.to_string(), "127.0.0.1:9092");
    assert_eq!(config.state_dir, Path::new("/var/lib/tombolo/node-lb"));
    assert_eq!(config.layout, Layout::PerCore { homes: 1 });
}

#[test]
fn the_key_may_be_in_the_file_of_the_certificate() {
    let config = valid(&format!("{LEAST}clientCertificateFile: both.pem\n"), &Flags::default()).unwrap();

    assert_eq!(config.tls.key.as_deref(), Some(Path::new("/etc/tombolo/both.pem")));
    assert_eq!(config.tls.certificate, config.tls.key);
}

#[test]
fn up_to_32_api_servers_are_named_and_flags_win() {
    let with = |count: usize| {
        let servers: Vec<String> = (0..count).map(|last| format!("'10.0.0.{last}:6443'")).collect();
        valid(&format!("apiServers: [{}]\ncaFile: a\n", servers.join(", ")), &Flags::default())
    };

    assert_eq!(with(SEEDS_MAX).unwrap().seeds.len(), 32);
    let error = with(SEEDS_MAX + 1).unwrap_err().to_string();
    assert_eq!(error, "apiServers: a list of 33 is not allowed, use 1 to 32 of the form host:port");
    assert_eq!(with(0).unwrap_err().key, "apiServers");
    let flags = Flags { api_servers: vec!["other:1".to_owned()], ..Flags::default() };
    assert_eq!(valid(LEAST, &flags).unwrap().seeds, [Seed::Name("other".to_owned(), 1)]);
}

#[test]
fn values_that_are_not_allowed_are_named() {
    for (more, key) in [
        ("apiServers: ['10.0.0.1']", "apiServers"),
        ("apiServers: ['10.0.0.1:0']", "apiServers"),
        ("apiServers: [':6443']", "apiServers"),
        ("apiServers: ['a b:6443']", "apiServers"),
        ("apiServers: ['https://a:6443']", "apiServers"),
        ("caFile: ''", "caFile"),
        ("clientKeyFile: a", "clientKeyFile"),
        ("serverName: 'a b'", "serverName"),
        ("listen: []", "listen"),
        ("listen: ['0.0.0.0:7443']", "listen"),
        ("listen: ['192.168.1.5:7443']", "listen"),
        ("listen: ['localhost:7443']", "listen"),
        ("hostCluster: { apiServer: 'host:6443' }", "hostCluster.caFile"),
        (
            "hostCluster: { apiServer: 'host', caFile: a, tokenFile: b, namespace: c, service: d }",
            "hostCluster.apiServer",
        ),
        (
            "hostCluster: { apiServer: 'host:1', caFile: a, tokenFile: b, namespace: 'c/d', service: d }",
            "hostCluster.namespace",
        ),
        (
            "hostCluster: { apiServer: 'host:1', caFile: a, tokenFile: b, namespace: c, service: '' }",
            "hostCluster.service",
        ),
        ("pods: {}", "pods.networks"),
        ("pods: { networks: ['10.244.0.1/16'] }", "pods.networks"),
        ("pods: { networks: [10.244.0.0/16], address: '10.0.0.1:7443' }", "pods.address"),
        ("pods: { networks: [10.244.0.0/16], address: '169.254.10.21' }", "pods.address"),
        ("pods: { networks: [10.244.0.0/16], kubernetesService: '[fd00::1]:443' }", "pods.kubernetesService"),
        ("pods: { networks: [10.244.0.0/16], kubernetesService: '10.96.0.1:0' }", "pods.kubernetesService"),
    ] {
        let name = more.split(':').next().unwrap();
        let text: String =
            LEAST.lines().filter(|line| !line.starts_with(name)).map(|line| format!("{line}\n")).collect();

        let error = valid(&format!("{text}{more}\n"), &Flags::default()).unwrap_err();

        assert_eq!(error.key, key, "{more}");
    }
}

#[test]
fn an_unknown_key_is_refused() {
    let text = headed(&format!("{LEAST}apiServer: x\n"));
    let error =
        daemon::config::parse_with_common::<RawConfig>(&text, Path::new("node-lb.yaml"), KIND).unwrap_err();

    let error = error.to_string();
    assert!(error.contains("apiServer") && error.contains("node-lb.yaml:6"), "{error}");
}

#[test]
fn the_example_of_the_help_is_valid() {
    let help = Flags::command().render_long_help().to_string();
    let (_, example) = help.split_once("has to contain:\n").unwrap();
    let lines = example.lines().take_while(|line| !line.trim().is_empty());
    let text: String = lines.map(|line| format!("{}\n", line.trim_start())).collect();

    let (common, own) = daemon::config::parse_with_common(&text, Path::new("node-lb.yaml"), KIND).unwrap();

    validate::config(common, own, &Flags::default(), Path::new("/etc/tombolo")).unwrap();
}

fn valid(text: &str, flags: &Flags) -> Result<Config, KeyError> {
    let (common, own) = raw(text);
    validate::config(common, own, flags, Path::new("/etc/tombolo"))
}

fn raw(text: &str) -> (RawCommon, RawConfig) {
    daemon::config::parse_with_common(&headed(text), Path::new("node-lb.yaml"), KIND).unwrap()
}

fn headed(text: &str) -> String {
    format!("apiVersion: tombolo.dev/v1alpha1\nkind: {KIND}\n{text}")
}
