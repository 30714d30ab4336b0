//! Valid configurations, and the error messages for invalid ones.

use audit::{Sync, Target};
use std::fs;
use std::time::{Duration, SystemTime};

use clap::CommandFactory;
use daemon::Rate;
use daemon::args::SharedFlags;
use daemon::config::LoadError;
use jsonwebtoken::Algorithm;
use proto::AllowList;
use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use tempfile::TempDir;
use trust::names::Label;

use super::*;

mod admin;
mod authentication;
mod directory;
mod egress;
mod invalid;
mod pages;
mod passthrough;
mod peering;
mod proxy;
mod vip;
mod vip_ranges;

const EVERY_KEY: &str = "
serverId: gateway-7
trustDomain: edge.example
tls: { certificateFile: server.crt, keyFile: server.key }
trust: { bundleFile: trust.bundle }
gateway:
  listen: 127.0.0.1:1
  hostSuffix: Clusters.example
  hosts: [Gateway.example, '::1']
  browserOrigins: ['https://console.example', 'http://localhost:3000']
  authentication:
    clientCertificate: { caFile: caller-ca.crt, usernamePrefix: 'cert:', groupsPrefix: 'team:' }
    tokenFile: { path: tokens.csv, usernamePrefix: 't:', groupsPrefix: 'u:' }
tunnel: { listen: '[::1]:2', addresses: ['gw.example:8443', '[2001:db8::1]:443'], agentCAFile: agent-ca.crt, outageLimitSeconds: 120 }
policy: { file: rules/policy.yaml }
clusters:
  - { name: edge-b, requestTimeoutSeconds: 300, impersonation: { users: [ann], systemNames: ['system:monitoring'] } }
  - { pattern: 'lab-*' }
  - { name: edge-p, passThrough: true }
parking: { limitSeconds: 40, callerLimitSeconds: 90, perCluster: 7 }
watches: { resume: false, limitSeconds: 70, perCluster: 9, eventBytesMax: 5000 }
limits:
  source: { connections: 21, newPerSecond: 22, failedLoginsPerMinute: 23 }
  gateway: { connections: 24, handshakes: 25 }
  agents: { handshakes: 27, unprovedHandshakes: 26, unprovedPerSecondOfNetwork: 28, unprovedPerSecond: 29 }
  caller: { requests: 11, requestsPerSecond: 12, burst: 13, watchesPerCluster: 14, upgrades: 15, connections: 30 }
  cluster: { requests: 16, watches: 17, upgrades: 18, queue: 19, queueSeconds: 20 }
  server: { requests: 31, clusters: 32, tunnels: 33 }
audit: { directory: log, maxFileBytes: 1048576, filesKept: 3, sync: always }
admin:
  socket: run/admin.sock
  tcp:
    listen: '[::1]:4'
    adminCAFile: admin-ca.crt
    roles: [{ name: olga, role: operator }, { name: wall-screen, role: viewer }, { name: ci, role: enroller }]
    revoked: [{ serial: '000000000000000000000000000000AF' }, { name: olga, issuedBefore: '2026-01-31T12:00:00Z' }, { issuedBefore: '1970-01-01T00:00:01Z' }]
stateDir: state
probes: { listen: '127.0.0.1:3' }
drainGraceSeconds: 5
log: { format: text, level: debug }
runtime: { layout: shared, threads: 2 }
";

const SMALLEST: &str = "
tls: { certificateFile: server.crt, keyFile: server.key }
gateway: { authentication: { tokenFile: { path: tokens.csv, usernamePrefix: '', groupsPrefix: 'g:' } } }
tunnel: { agentCAFile: agent-ca.crt }
policy: { file: policy.yaml }
";

#[test]
fn every_key_is_read_and_relative_paths_start_at_the_file() {
    let files = files();
    let config = load(&files, EVERY_KEY, &Flags::default()).unwrap();

    assert_eq!((config.server_id.as_str(), config.trust_domain.as_str()), ("gateway-7", "edge.example"));
    assert_eq!(config.gateway.listen.to_string(), "127.0.0.1:1");
    assert_eq!(config.gateway.host_suffix.as_deref(), Some("clusters.example"));
    assert_eq!(config.gateway.hosts, ["gateway.example", "::1"]);
    assert_eq!(config.gateway.browser_origins, ["https://console.example", "http://localhost:3000"]);
    let certificate = config.gateway.authentication.client_certificate.unwrap();
    assert_eq!(certificate.prefixes, prefixes("cert:", "team:"));
    let tokens = config.gateway.authentication.token_file.unwrap();
    assert_eq!(tokens.prefixes, prefixes("t:", "u:"));
    assert_eq!(
        (tokens.contents.as_slice(), &tokens.path),
        (&b"sesame,alice,1"[..], &files.path().join("tokens.csv"))
    );
    assert_eq!(config.tunnel.listen.to_string(), "[::1]:2");
    assert_eq!(config.tunnel.addresses, ["gw.example:8443", "[2001:db8::1]:443"]);
    assert_eq!(config.tunnel.outage_limit, Duration::from_secs(120));
    assert_eq!(config.policy_file, files.path().join("rules/policy.yaml"));
    let (users, system_names) = (vec!["ann".to_owned()], vec!["system:monitoring".to_owned()]);
    let ann = AllowList::new(Some(users), None, Some(system_names)).unwrap();
    let timeouts: Vec<u64> = config.clusters.iter().map(|rules| rules.request_timeout.as_secs()).collect();
    assert_eq!(timeouts, [300, 75, 75]);
    let clusters: Vec<_> = config.clusters.into_iter().map(|rules| (rules.pattern, rules.asked_as)).collect();
    assert_eq!(
        clusters,
        [
            ("edge-b".to_owned(), AskedAs::Asserted(ann)),
            ("lab-*".to_owned(), AskedAs::Asserted(AllowList::default())),
            ("edge-p".to_owned(), AskedAs::PassedThrough),
        ]
    );
    let parking = config.parking;
    assert_eq!((parking.limit, parking.caller_limit), (Duration::from_secs(40), Duration::from_secs(90)));
    assert_eq!(parking.per_cluster, 7);
    let watches = config.watches;
    assert_eq!((watches.resume, watches.limit, watches.per_cluster), (false, Duration::from_secs(70), 9));
    assert_eq!(watches.event_bytes_max, 5000);
    let SourceLimitsConfig { connections, new, failed_logins } = config.limits.source;
    assert_eq!((connections, new.per_second, new.burst, failed_logins), (21, 22, 44, 23));
    let CallerLimits { requests, rate, watches_per_cluster, upgrades, connections } = config.limits.caller;
    assert_eq!(
        (requests, rate, watches_per_cluster, upgrades, connections),
        (11, Rate { per_second: 12, burst: 13 }, 14, 15, 30)
    );
    let ClusterLimits { requests, watches, upgrades, queue, queue_wait } = config.limits.cluster;
    assert_eq!((requests, watches, upgrades, queue, queue_wait.as_secs()), (16, 17, 18, 19, 20));
    assert_eq!(config.limits.server, ServerLimits { requests: 31, clusters: 32, tunnels: 33 });
    let rate = |per_second| Rate { per_second, burst: 2 * per_second };
    let ListenerTotals { gateway, agents } = config.limits.listeners;
    assert_eq!((gateway.connections, gateway.handshakes), (24, 25));
    assert_eq!((agents.handshakes, agents.unproved), (27, 26));
    assert_eq!((agents.unproved_rate, agents.unproved_rate_of_network), (rate(29), rate(28)));
    let audit = config.audit.unwrap();
    assert_eq!((audit.server, audit.directory), (config.server_id, files.path().join("log")));
    assert_eq!((audit.target, audit.sync), (Target::Files { bytes_max: 1_048_576, kept: 3 }, Sync::Always));
    assert_eq!(config.admin.socket, Some(files.path().join("run/admin.sock")));
    let tcp = config.admin.tcp.unwrap();
    assert_eq!((tcp.listen.to_string().as_str(), tcp.roots.certificates.len()), ("[::1]:4", 1));
    let roles: Vec<_> = tcp.rules.roles.iter().map(|(name, role)| (name.as_str(), *role)).collect();
    let (ci, olga) = (("ci", AdminRole::Enroller), ("olga", AdminRole::Operator));
    assert_eq!(roles, [ci, olga, ("wall-screen", AdminRole::Viewer)]);
    assert_eq!(config.state_dir, files.path().join("state"));
    assert_eq!(config.probes_listen.port(), 3);
    assert_eq!(config.drain_grace, Duration::from_secs(5));
    assert_eq!(config.layout, Layout::Shared { workers: 2 });
}

#[test]
fn a_trust_bundle_that_agents_would_refuse_is_refused_with_a_reason() {
    let files = files();
    let config = load(&files, EVERY_KEY, &Flags::default()).unwrap();
    assert_eq!(config.trust_bundle, fs::read(files.path().join("trust.bundle")).unwrap());
    assert!(load(&files, SMALLEST, &Flags::default()).unwrap().trust_bundle.is_empty());

    fs::write(files.path().join("noise.bundle"), "noise").unwrap();
    for (name, reason) in [
        ("absent.bundle", "No such file"),
        ("noise.bundle", "it is not a trust bundle"),
        ("other.bundle", "of the trust domain tombolo, not of edge.example"),
    ] {
        let error = key_error(&files, &EVERY_KEY.replace("trust.bundle", name)).to_string();
        assert!(error.starts_with("trust.bundleFile") && error.contains(reason), "{error}");
    }
}

#[test]
fn the_audit_log_can_go_to_standard_output_or_be_switched_off() {
    let with =
        |sink| load(&files(), &format!("{SMALLEST}audit: {{ sink: {sink} }}\n"), &Flags::default()).unwrap();
    assert_eq!(with("stdout").audit.unwrap().target, Target::Stdout);
    assert!(with("off").audit.is_none());
}

#[test]
fn keys_that_are_left_out_have_their_defaults() {
    let config = load(&files(), SMALLEST, &Flags::default()).unwrap();

    assert_eq!(
        (config.server_id.as_str(), config.trust_domain.as_str()),
        ("in-the-certificate", TRUST_DOMAIN_DEFAULT)
    );
    assert_eq!(config.gateway.listen.to_string(), "0.0.0.0:8443");
    assert_eq!(config.tunnel.listen.to_string(), "0.0.0.0:8443");
    assert_eq!(config.tunnel.outage_limit, Duration::from_secs(300));
    assert_eq!(config.admin.socket, Some("/run/tombolo/admin.sock".into()));
    assert!(config.admin.tcp.is_none());
    let audit = config.audit.unwrap();
    assert_eq!(audit.directory, Path::new("/var/lib/tombolo/server/audit"));
    let target = Target::Files { bytes_max: 64 * 1024 * 1024, kept: 8 };
    assert_eq!((audit.target, audit.sync), (target, Sync::Interval));
    assert_eq!((config.gateway.host_suffix, config.gateway.hosts), (None, Vec::new()));
    assert_eq!(config.state_dir, Path::new("/var/lib/tombolo/server"));
    assert_eq!(config.probes_listen.to_string(), "127.0.0.1:9090");
    assert_eq!(config.drain_grace, Duration::from_secs(30));
    let limit = Duration::from_secs(15);
    assert_eq!(config.parking, Parking { limit, caller_limit: limit, per_cluster: 256 });
    let watches = config.watches;
    assert_eq!((watches.resume, watches.limit, watches.per_cluster), (true, Duration::from_secs(600), 1000));
    assert_eq!(watches.event_bytes_max, 2 * 1024 * 1024);
    assert_eq!(config.limits, LimitsConfig::default());
    assert_eq!(config.clusters, Vec::new());
    assert!(matches!(config.layout, Layout::PerCore { .. }));
}

#[test]
fn a_flag_wins_over_the_file() {
    let flags = Flags {
        shared: SharedFlags {
            drain_grace: Some(7),
            state_dir: Some("/flag".into()),
            ..SharedFlags::default()
        },
        server_id: Some("flag".to_owned()),
        gateway_listen: Some("127.0.0.1:7".parse().unwrap()),
        tunnel_listen: Some("127.0.0.1:8".parse().unwrap()),
        admin_socket: None,
        dry_run: false,
    };

    let config = load(&files(), EVERY_KEY, &flags).unwrap();

    assert_eq!(config.server_id, "flag");
    assert_eq!((config.gateway.listen.port(), config.tunnel.listen.port()), (7, 8));
    assert_eq!((config.drain_grace, config.state_dir), (Duration::from_secs(7), "/flag".into()));
}

#[test]
fn agents_callers_and_administrators_have_roots_of_their_own() {
    let caller = "gateway.authentication.clientCertificate.caFile";
    for (from, to, key, other) in [
        ("agent-ca.crt", "caller-ca.crt", caller, "tunnel.agentCAFile"),
        ("admin-ca.crt", "caller-ca.crt", "admin.tcp.adminCAFile", caller),
        ("admin-ca.crt", "agent-ca.crt", "admin.tcp.adminCAFile", "tunnel.agentCAFile"),
    ] {
        let error = key_error(&files(), &EVERY_KEY.replace(from, to));
        assert_eq!(error.key, key);
        assert!(error.to_string().contains(other), "{error}");
    }
}

#[test]
fn debug_shows_no_token_and_no_key() {
    let files = files();
    let shown = format!("{:?}", load(&files, EVERY_KEY, &Flags::default()).unwrap());
    assert!(!shown.contains("sesame") && !shown.contains("115, 101, 115"), "{shown}");
    let refused =
        load(&files, EVERY_KEY, &Flags::default()).unwrap().gateway.authentication.token_file.unwrap();
    assert!(!refused.refused("line 1: wrong").to_string().contains("sesame"));
}

#[test]
fn flags_have_variables() {
    use clap::CommandFactory as _;

    let command = daemon::args::with_environment(Flags::command(), "TOMBOLO_SERVER");
    let variables: Vec<_> = command.get_arguments().filter_map(|arg| arg.get_env()?.to_str()).collect();

    for name in ["TOMBOLO_SERVER_SERVER_ID", "TOMBOLO_SERVER_GATEWAY_LISTEN", "TOMBOLO_SERVER_TUNNEL_LISTEN"]
    {
        assert!(variables.contains(&name), "{variables:?}");
    }
}

#[test]
fn the_help_has_examples_and_exit_codes() {
    let help = <Flags as CommandFactory>::command().render_long_help().to_string();

    for text in ["Examples:", "tunnel-server --config", "Exit codes:", "  3  the grace period passed"] {
        assert!(help.contains(text), "{text}: {help}");
    }
}

#[test]
fn the_configurations_in_the_help_and_the_examples_parse() {
    let (_, smallest) = help::AFTER.split_once("has to say:\n").unwrap();
    let (smallest, _) = smallest.split_once("\n\n").unwrap();
    let smallest: Vec<&str> = smallest.lines().map(|line| line.strip_prefix("  ").unwrap()).collect();
    let examples = [
        include_str!("../../../deploy/examples/server.yaml"),
        include_str!("../../../deploy/examples/cloud/server.yaml"),
    ];
    for text in examples.map(str::to_owned).into_iter().chain([smallest.join("\n")]) {
        let parsed = daemon::config::parse_with_common::<RawConfig>(&text, Path::new("server.yaml"), KIND);
        assert!(parsed.is_ok(), "{}: {text}", parsed.unwrap_err());
    }
}

fn prefixes(username: &str, groups: &str) -> NamePrefixes {
    NamePrefixes { username: username.to_owned(), groups: groups.to_owned() }
}

fn load(files: &TempDir, rest: &str, flags: &Flags) -> Result<Config, ConfigError> {
    let shared = SharedFlags { config: Some(write_config(files, rest)), ..flags.shared.clone() };
    Config::load(&Flags { shared, ..flags.clone() })
}

fn write_config(files: &TempDir, rest: &str) -> PathBuf {
    let path = files.path().join("server.yaml");
    fs::write(
        &path,
        format!(
            "apiVersion: tombolo.dev/v1alpha1
kind: ServerConfig
{rest}"
        ),
    )
    .unwrap();
    path
}

fn key_error(files: &TempDir, rest: &str) -> KeyError {
    match load(files, rest, &Flags::default()) {
        Err(ConfigError::Key(error)) => error,
        other => panic!("{other:?}\n{rest}"),
    }
}

/// A directory with each file that [`EVERY_KEY`] and [`SMALLEST`] name, and a key that fits nothing.
fn files() -> TempDir {
    let directory = tempfile::tempdir().unwrap();
    let write = |name: &str, text: String| fs::write(directory.path().join(name), text).unwrap();
    let mut params = CertificateParams::new(vec!["gateway.example".to_owned()]).unwrap();
    let uri = Ia5String::try_from("spiffe://tombolo/server/in-the-certificate").unwrap();
    params.subject_alt_names.push(SanType::URI(uri));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().unwrap();
    write("server.crt", params.self_signed(&key).unwrap().pem());
    write("server.key", key.serialize_pem());
    write("other.key", KeyPair::generate().unwrap().serialize_pem());
    for name in ["caller-ca.crt", "agent-ca.crt", "admin-ca.crt"] {
        let mut params = CertificateParams::default();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        write(name, params.self_signed(&KeyPair::generate().unwrap()).unwrap().pem());
    }
    write("tokens.csv", "sesame,alice,1".to_owned());
    for (name, domain) in [("trust.bundle", "edge.example"), ("other.bundle", "tombolo")] {
        fs::write(directory.path().join(name), bundle(domain)).unwrap();
    }
    directory
}

/// A trust bundle of `domain` that its own root has signed.
fn bundle(domain: &str) -> Vec<u8> {
    let (now, domain): (_, trust::names::TrustDomain) = (SystemTime::now(), domain.parse().unwrap());
    let root = trust::Root::generate(trust::Role::Server, domain.clone(), now).unwrap();
    let roots = [(trust::Role::Server, root.certificate().clone())];
    trust::TrustBundle::new(1, domain, now, roots).unwrap().sign(&[&root]).unwrap()
}
