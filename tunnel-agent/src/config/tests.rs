//! Configurations that are valid, and the errors of others.

use clap::CommandFactory;

use daemon::config::{KeyError, RawCommon};

use super::raw::RawConfig;
use super::*;

mod pages;

const WHOLE: &str = "
cluster: edge-a
servers: ['gateway.example:8443', '[2001:db8::1]:443']
serverName: gateway.example
serverIds: [west, east]
tunnels: 3
carrier: http2
proxy: { url: 'http://me:secret@proxy.example:3128', noProxy: ['.local'] }
tunnel: { outageLimitSeconds: 120 }
trustDomain: tombolo
tls: { certificateFile: agent.crt, keyFile: /keys/agent.key, serverCAFile: server-ca.crt }
apiServer: { kubeconfig: admin.conf, context: here }
passThrough: true
impersonation: { users: ['*'], groups: ['tombolo:*'], systemNames: ['system:serviceaccount:ci:deployer'] }
advertise: ['192.168.1.10:6443']
targets: ['10.96.0.0/12:443', 'db.shop.svc:5432']
serviceNetworks: ['10.42.0.0/16', 'fd00:42::/32']
stateDir: state
probes: { listen: '127.0.0.1:9999' }
drainGraceSeconds: 5
log: { format: text, level: debug }
runtime: { layout: shared, threads: 2 }
";

const LEAST: &str = "
cluster: edge-a
servers: ['gateway.example:8443']
tls: { certificateFile: agent.crt, keyFile: agent.key, serverCAFile: server-ca.crt }
";

#[test]
fn every_key_is_read_and_relative_paths_start_at_the_file() {
    let config = valid(WHOLE, &Flags::default()).unwrap();

    assert_eq!(config.cluster.as_str(), "edge-a");
    let servers: Vec<String> = config.servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["gateway.example:8443", "[2001:db8::1]:443"]);
    assert_eq!(config.server_name.as_deref(), Some("gateway.example"));
    assert_eq!(config.server_ids, ["west", "east"]);
    assert_eq!(config.tunnels, 3);
    assert_eq!(config.carrier, CarrierChoice::Only(Carrier::Http2));
    let proxy = config.proxies.to("gateway.example", 8443).map(ToString::to_string);
    assert_eq!(proxy.as_deref(), Some("http://proxy.example:3128"));
    assert!(!format!("{config:?} {:?}", raw(WHOLE)).contains("secret"));
    assert_eq!(config.outage_limit, Some(Duration::from_secs(120)));
    let CredentialSource::Files(tls) = &config.credential else { panic!("{:?}", config.credential) };
    assert_eq!(tls.certificate, Path::new("/etc/tombolo/agent.crt"));
    assert_eq!(tls.key, Path::new("/keys/agent.key"));
    let kubeconfig =
        ApiServerSource::Kubeconfig { path: "/etc/tombolo/admin.conf".into(), context: Some("here".into()) };
    assert_eq!(config.api_server, kubeconfig);
    assert_eq!(config.impersonation.system_names(), ["system:serviceaccount:ci:deployer"]);
    assert!(config.pass_through);
    assert_eq!(config.advertise, ["192.168.1.10:6443"]);
    let dialed: Vec<String> = config.targets_to_dial().iter().map(ToString::to_string).collect();
    assert_eq!(dialed, ["192.168.1.10:6443", "10.96.0.0/12:443", "db.shop.svc:5432"]);
    let networks: Vec<_> = config.service_networks.iter().map(Network::to_string).collect();
    assert_eq!(networks, ["10.42.0.0/16", "fd00:42::/32"]);
    assert_eq!(config.drain_grace, Duration::from_secs(5));
    assert_eq!(config.layout, Layout::Shared { workers: 2 });
    assert_eq!(config.state_dir, Path::new("/etc/tombolo/state"));
    assert_eq!(config.probes_listen.port(), 9999);
}

#[test]
fn the_smallest_configuration_is_enough_in_a_pod() {
    let config = valid(LEAST, &Flags::default()).unwrap();

    let in_cluster = ApiServerSource::InCluster {
        directory: IN_CLUSTER_DIRECTORY.into(),
        host: "10.0.0.1".into(),
        port: 443,
    };
    assert_eq!(config.api_server, in_cluster);
    assert_eq!((config.carrier, config.proxies), (CarrierChoice::Auto, Proxies::default()));
    assert_eq!(config.outage_limit, None);
    assert_eq!(config.impersonation, AllowList::default());
    assert!(!config.pass_through);
    assert_eq!(config.probes_listen.to_string(), "127.0.0.1:9091");
    assert_eq!(config.drain_grace, Duration::from_secs(30));
    assert_eq!(config.layout, Layout::PerCore { homes: 1 });
    assert_eq!(config.state_dir, Path::new("/var/lib/tombolo/agent"));
}

#[test]
fn api_servers_are_read_up_to_their_limit() {
    let with = |count: usize| {
        let addresses: Vec<String> = (0..count).map(|last| format!("'10.0.0.{last}:6443'")).collect();
        valid(&format!("{LEAST}apiServer: {{endpoints: [{}]}}\n", addresses.join(", ")), &Flags::default())
    };

    let ApiServers::Listed(most) = with(API_SERVERS_MAX).unwrap().api_servers else { panic!("not listed") };
    assert_eq!(most.len(), API_SERVERS_MAX);
    assert_eq!(with(API_SERVERS_MAX + 1).unwrap_err().key, "apiServer.endpoints");
    assert_eq!(with(1).unwrap_err().key, "apiServer.endpoints");
}

#[test]
fn api_servers_are_looked_for_in_a_pod_and_where_configured() {
    for (api_server, expected) in [
        ("{}", ApiServers::Found),
        ("{discoverEndpoints: false}", ApiServers::One),
        ("{kubeconfig: a}", ApiServers::One),
        ("{kubeconfig: a, discoverEndpoints: true}", ApiServers::Found),
    ] {
        let config = valid(&format!("{LEAST}apiServer: {api_server}\n"), &Flags::default()).unwrap();
        assert_eq!(config.api_servers, expected, "{api_server}");
    }
    let two = "['10.0.0.1:1', '10.0.0.2:1']";
    let both = format!("{LEAST}apiServer: {{endpoints: {two}, discoverEndpoints: true}}\n");
    assert_eq!(valid(&both, &Flags::default()).unwrap_err().key, "apiServer");
}

#[test]
fn searches_for_tenants_are_read_up_to_their_limit() {
    let with = |count: usize| {
        let one = "{kind: Pod, namespace: tenant-a, labelSelector: 'app in (a,b)', port: 6443}";
        valid(&format!("{LEAST}tenants: [{}]\n", vec![one; count].join(", ")), &Flags::default())
    };

    let most = with(TENANTS_MAX).unwrap().tenants;
    assert_eq!(most.len(), TENANTS_MAX);
    let expected = Tenants {
        kind: TenantKind::Pod,
        namespace: Some("tenant-a".to_owned()),
        label_selector: Some("app in (a,b)".to_owned()),
        port: 6443,
    };
    assert_eq!(most[0], expected);
    assert_eq!(with(TENANTS_MAX + 1).unwrap_err().key, "tenants");
}

#[test]
fn a_search_for_tenants_needs_a_namespace_or_a_selector() {
    for (entry, key) in [
        ("{kind: Service, port: 6443}", "tenants"),
        ("{kind: Pod, namespace: 'a/b', port: 6443}", "tenants.namespace"),
        ("{kind: Pod, labelSelector: '', port: 6443}", "tenants.labelSelector"),
        ("{kind: Pod, labelSelector: app, port: 0}", "tenants.port"),
    ] {
        let refused = valid(&format!("{LEAST}tenants: [{entry}]\n"), &Flags::default()).unwrap_err();
        assert_eq!(refused.key, key, "{entry}");
    }
}

#[test]
fn networks_of_services_are_read_up_to_their_limit() {
    let with = |network: &str, count: usize| {
        let networks = vec![format!("'{network}'"); count].join(", ");
        valid(&format!("{LEAST}serviceNetworks: [{networks}]\n"), &Flags::default())
    };

    let most = with("10.42.0.0/16", SERVICE_NETWORKS_MAX).unwrap().service_networks;
    assert_eq!(most.len(), SERVICE_NETWORKS_MAX);
    for refused in [with("10.42.0.0/16", SERVICE_NETWORKS_MAX + 1), with("10.42.0.1/16", 1), with("pods", 1)]
    {
        assert_eq!(refused.unwrap_err().key, "serviceNetworks");
    }
}

#[test]
fn targets_are_read_up_to_their_limit() {
    let with = |count: usize| {
        let targets: Vec<String> = (1..=count).map(|port| format!("'10.0.0.1:{port}'")).collect();
        valid(&format!("{LEAST}targets: [{}]\n", targets.join(", ")), &Flags::default())
    };

    assert_eq!(with(TARGETS_MAX).unwrap().targets.len(), TARGETS_MAX);
    assert!(with(TARGETS_MAX + 1).unwrap_err().to_string().contains("targets"));
    let refused = valid(&format!("{LEAST}targets: ['10.0.0.1/8:1']\n"), &Flags::default()).unwrap_err();
    assert!(refused.to_string().contains("NETWORK/BITS:PORT"), "{refused}");
}

#[test]
fn a_flag_wins_over_the_file() {
    let flags = Flags {
        shared: SharedFlags {
            drain_grace: Some(7),
            state_dir: Some("/flag".into()),
            ..SharedFlags::default()
        },
        cluster: Some("edge-b".into()),
        servers: vec!["other:1".into()],
        kubeconfig: Some("flag.conf".into()),
        ..Flags::default()
    };

    let config = valid(WHOLE, &flags).unwrap();

    assert_eq!(config.cluster.as_str(), "edge-b");
    assert_eq!(config.servers.len(), 1);
    assert_eq!(config.drain_grace, Duration::from_secs(7));
    assert_eq!(config.state_dir, Path::new("/flag"));
    assert_eq!(config.api_server, ApiServerSource::Kubeconfig { path: "flag.conf".into(), context: None });
}

#[test]
fn tunnels_beyond_the_limit_are_refused() {
    let tunnels = |number: usize| valid(&format!("{LEAST}tunnels: {number}\n"), &Flags::default());
    assert_eq!(valid(LEAST, &Flags::default()).unwrap().tunnels, TUNNELS_DEFAULT);
    assert_eq!(tunnels(TUNNELS_MAX).unwrap().tunnels, TUNNELS_MAX);
    for number in [0, TUNNELS_MAX + 1] {
        let error = tunnels(number).unwrap_err();
        assert_eq!((error.key.as_str(), error.value), ("tunnels", number.to_string()));
    }
}

#[test]
fn a_wrong_value_is_reported_with_its_key() {
    for (line, key, value) in [
        ("cluster: Edge", "cluster", "Edge"),
        ("servers: []", "servers", "a list of 0"),
        ("servers: [a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1,a:1]", "servers", "a list of 9"),
        ("servers: ['gateway']", "servers", "gateway"),
        ("servers: ['gateway:0']", "servers", "gateway:0"),
        ("servers: ['::1:5']", "servers", "::1:5"),
        ("servers: ['a b:5']", "servers", "a b"),
        ("carrier: tcp", "carrier", "tcp"),
        ("proxy: { url: 'https://me:secret@proxy' }", "proxy.url", "another text"),
        ("tunnel: { outageLimitSeconds: 8 }", "tunnel.outageLimitSeconds", "8"),
        ("tunnel: { outageLimitSeconds: 601 }", "tunnel.outageLimitSeconds", "601"),
        ("trustDomain: Tombolo", "trustDomain", "Tombolo"),
        ("serverIds: [West]", "serverIds", "West"),
        ("serverIds: [a,b,c,d,e,f,g,h,i]", "serverIds", "9"),
        ("tls: {keyFile: a, serverCAFile: b}", "tls.certificateFile", "nothing"),
        ("apiServer: {kubeconfig: a, inCluster: {}}", "apiServer", "inCluster and kubeconfig together"),
        ("apiServer: {context: a}", "apiServer.context", "a context without kubeconfig"),
        ("apiServer: {inCluster: {port: 0}}", "apiServer.inCluster.port", "0"),
        ("impersonation: {users: ['system:*']}", "impersonation.users", "system:*"),
        ("impersonation: {groups: ['']}", "impersonation.groups", "an empty name"),
        ("impersonation: {systemNames: ['system:masters']}", "impersonation.systemNames", "system:masters"),
        ("impersonation: {systemNames: ['system:nodes']}", "impersonation.systemNames", "system:nodes"),
        ("impersonation: {systemNames: ['system:node:*']}", "impersonation.systemNames", "system:node:*"),
        ("impersonation: {systemNames: ['me']}", "impersonation.systemNames", "me"),
        ("advertise: ['192.168.1.10']", "advertise", "192.168.1.10"),
        ("probes: {listen: localhost}", "probes.listen", "localhost"),
        ("drainGraceSeconds: 0", "drainGraceSeconds", "0"),
        ("drainGraceSeconds: 601", "drainGraceSeconds", "601"),
        ("runtime: {threads: 0}", "runtime.threads", "0"),
    ] {
        let (named, _) = line.split_once(':').unwrap();
        let rest: String =
            LEAST.lines().filter(|kept| !kept.starts_with(named)).collect::<Vec<_>>().join("\n");

        let error = valid(&format!("{line}\n{rest}\n"), &Flags::default()).unwrap_err();

        assert_eq!((error.key.as_str(), error.value.as_str()), (key, value), "{line}");
    }
}

#[test]
fn enrollment_needs_a_server_a_pin_and_a_token_and_no_certificate() {
    let pin = format!("sha256:{}", "0".repeat(64));
    let enrollment =
        format!("enrollment: {{ server: \"gateway.example:8444\", pin: \"{pin}\", tokenFile: token }}");
    let tls = LEAST.lines().find(|line| line.starts_with("tls:")).unwrap();
    let without = LEAST.replace(tls, &enrollment);
    assert_ne!(without, LEAST);

    let config = valid(&without, &Flags::default()).unwrap();

    let CredentialSource::Enrolled(at) = config.credential else { panic!("{:?}", config.credential) };
    assert_eq!((at.server.port, at.pin.to_string()), (8444, pin.clone()));
    assert_eq!(at.token_file.as_deref(), Some(Path::new("/etc/tombolo/token")));
    // Further pods have a token of their ServiceAccount instead.
    let of_pod = without.replace("tokenFile: token", "serviceAccountTokenFile: sa/token");
    let CredentialSource::Enrolled(at) = valid(&of_pod, &Flags::default()).unwrap().credential else {
        panic!("it enrolls")
    };
    let file = at.service_account_token_file.as_deref();
    assert_eq!((at.token_file, file), (None, Some(Path::new("/etc/tombolo/sa/token"))));
    assert_eq!(at.host_cluster, None);
    // They may run in another cluster than the one that they serve.
    let hosted = of_pod.replace("sa/token", "sa/token, hostCluster: { directory: host, host: 10.0.0.1 }");
    let CredentialSource::Enrolled(at) = valid(&hosted, &Flags::default()).unwrap().credential else {
        panic!("it enrolls")
    };
    let (directory, host) = ("/etc/tombolo/host".into(), "10.0.0.1".to_owned());
    assert_eq!(at.host_cluster, Some(ApiServerSource::InCluster { directory, host, port: 443 }));
    for (text, key) in [
        (format!("{without}\n{tls}"), "tls"),
        (without.replace(&pin, "sha256:00"), "enrollment.pin"),
        (without.replace(", tokenFile: token", ""), "enrollment.tokenFile"),
        (without.replace(":8444", ""), "enrollment.server"),
        (
            without.replace("tokenFile: token", "tokenFile: token, hostCluster: {}"),
            "enrollment.serviceAccountTokenFile",
        ),
        (of_pod.replace("sa/token", "sa/token, hostCluster: { port: 0 }"), "enrollment.hostCluster.port"),
    ] {
        let error = valid(&text, &Flags::default()).unwrap_err().to_string();
        assert!(error.starts_with(key), "{error}");
    }
}

#[test]
fn outside_of_a_pod_the_api_server_must_be_named() {
    let (common, own) = raw(LEAST);
    let error = validate::config(common, own, &Flags::default(), Path::new("/"), &|_| None).unwrap_err();

    assert_eq!(error.key, "apiServer.inCluster.host");
    assert!(error.allowed.contains("apiServer.kubeconfig"), "{error}");
}

#[test]
fn unknown_keys_are_refused_on_every_level() {
    for line in [
        "clusters: a",
        "tls: {caFile: a}",
        "proxy: {uri: a}",
        "tunnel: {listen: a}",
        "apiServer: {url: a}",
        "apiServer: {inCluster: {token: a}}",
        "log: {file: a}",
    ] {
        let text = headed(&format!("{line}\n"));
        assert!(
            daemon::config::parse_with_common::<RawConfig>(&text, Path::new("agent.yaml"), KIND).is_err(),
            "{line}"
        );
    }
}

#[test]
fn flags_have_variables() {
    use clap::CommandFactory as _;

    let command = daemon::args::with_environment(Flags::command(), "TOMBOLO_AGENT");
    let variables: Vec<_> = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();

    for name in ["TOMBOLO_AGENT_CLUSTER", "TOMBOLO_AGENT_SERVERS", "TOMBOLO_AGENT_KUBECONFIG"] {
        assert!(variables.contains(&name), "{variables:?}");
    }
}

fn headed(rest: &str) -> String {
    format!("apiVersion: tombolo.dev/v1alpha1\nkind: AgentConfig\n{rest}")
}

#[test]
fn the_help_has_examples_and_exit_codes() {
    let help = <Flags as CommandFactory>::command().render_long_help().to_string();

    for words in ["Examples:", "tunnel-agent --config", "Exit codes:", "  3  the grace period passed"] {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[test]
fn the_configurations_in_help_and_examples_are_valid() {
    let (_, least) = help::AFTER.split_once("has to contain:\n").unwrap();
    let (least, _) = least.split_once("\n\n").unwrap();
    let least: Vec<&str> = least.lines().map(|line| line.strip_prefix("  ").unwrap()).collect();
    let examples = [
        include_str!("../../../deploy/examples/agent.yaml"),
        include_str!("../../../deploy/examples/edge-a/agent.yaml"),
    ];
    for text in examples.map(str::to_owned).into_iter().chain([least.join("\n")]) {
        let raw = daemon::config::parse_with_common::<RawConfig>(&text, Path::new("agent.yaml"), KIND);
        assert!(raw.is_ok(), "{}: {text}", raw.unwrap_err());
    }
}

fn valid(text: &str, flags: &Flags) -> Result<Config, KeyError> {
    let environment = |name: &str| (name == "KUBERNETES_SERVICE_HOST").then(|| "10.0.0.1".to_owned());
    let (common, own) = raw(text);
    validate::config(common, own, flags, Path::new("/etc/tombolo"), &environment)
}

fn raw(text: &str) -> (RawCommon, RawConfig) {
    daemon::config::parse_with_common(&headed(text), Path::new("agent.yaml"), KIND).unwrap()
}
