//! Configurations that are taken, and the words for those that are not.

use audit::{Sync, Target};
use std::fs;
use std::time::SystemTime;

use clap::CommandFactory;
use daemon::Rate;
use daemon::args::SharedFlags;
use proto::spiffe::TRUST_DOMAIN_DEFAULT;
use rcgen::string::Ia5String;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyPair, SanType};
use tempfile::TempDir;

use super::*;

mod asked;
mod egress;
mod passthrough;
mod proxy;
mod ranges;
mod vip;

const WHOLE: &str = "
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
tunnel: { listen: '[::1]:2', agentCAFile: agent-ca.crt, outageLimitSeconds: 120 }
policy: { file: rules/policy.yaml }
clusters:
  - { name: edge-b, impersonation: { users: [ann], systemNames: ['system:monitoring'] } }
  - { pattern: 'lab-*' }
  - { name: edge-p, passThrough: true }
parking: { limitSeconds: 40, callerLimitSeconds: 90, perCluster: 7 }
watches: { resume: false, limitSeconds: 70, perCluster: 9, eventBytesMax: 5000 }
limits:
  source: { connections: 21, newPerSecond: 22, failedLoginsPerMinute: 23 }
  caller: { requests: 11, requestsPerSecond: 12, burst: 13, watchesPerCluster: 14, upgrades: 15 }
  cluster: { requests: 16, watches: 17, upgrades: 18, queue: 19, queueSeconds: 20 }
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

const LEAST: &str = "
tls: { certificateFile: server.crt, keyFile: server.key }
gateway: { authentication: { tokenFile: { path: tokens.csv, usernamePrefix: '', groupsPrefix: 'g:' } } }
tunnel: { agentCAFile: agent-ca.crt }
policy: { file: policy.yaml }
";

#[test]
fn every_key_is_read_and_relative_paths_start_at_the_file() {
    let files = files();
    let config = load(&files, WHOLE, &Flags::default()).unwrap();

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
    assert_eq!(config.tunnel.outage_limit, Duration::from_secs(120));
    assert_eq!(config.policy_file, files.path().join("rules/policy.yaml"));
    let (users, system_names) = (vec!["ann".to_owned()], vec!["system:monitoring".to_owned()]);
    let ann = AllowList::new(Some(users), None, Some(system_names)).unwrap();
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
    let SourceLimits { connections, new, failed_logins } = config.limits.source;
    assert_eq!((connections, new.per_second, new.burst, failed_logins), (21, 22, 44, 23));
    let CallerLimits { requests, rate, watches_per_cluster, upgrades } = config.limits.caller;
    assert_eq!(
        (requests, rate, watches_per_cluster, upgrades),
        (11, Rate { per_second: 12, burst: 13 }, 14, 15)
    );
    let ClusterLimits { requests, watches, upgrades, queue, queue_wait } = config.limits.cluster;
    assert_eq!((requests, watches, upgrades, queue, queue_wait.as_secs()), (16, 17, 18, 19, 20));
    let audit = config.audit.unwrap();
    assert_eq!((audit.server, audit.directory), (config.server_id, files.path().join("log")));
    assert_eq!((audit.target, audit.sync), (Target::Files { bytes_max: 1_048_576, kept: 3 }, Sync::Always));
    assert_eq!(config.admin.socket, Some(files.path().join("run/admin.sock")));
    let door = config.admin.tcp.unwrap();
    assert_eq!((door.listen.to_string().as_str(), door.roots.len()), ("[::1]:4", 1));
    let roles: Vec<_> = door.rules.roles.iter().map(|(name, role)| (name.as_str(), *role)).collect();
    let (ci, olga) = (("ci", AdminRole::Enroller), ("olga", AdminRole::Operator));
    assert_eq!(roles, [ci, olga, ("wall-screen", AdminRole::Viewer)]);
    assert_eq!(config.state_dir, files.path().join("state"));
    assert_eq!(config.probes_listen.port(), 3);
    assert_eq!(config.drain_grace, Duration::from_secs(5));
    assert_eq!(config.layout, Layout::Shared { workers: 2 });
}

#[test]
fn a_trust_bundle_is_read_and_one_that_agents_would_refuse_is_named() {
    let files = files();
    let config = load(&files, WHOLE, &Flags::default()).unwrap();
    assert_eq!(config.trust_bundle, fs::read(files.path().join("trust.bundle")).unwrap());
    assert!(load(&files, LEAST, &Flags::default()).unwrap().trust_bundle.is_empty());

    fs::write(files.path().join("noise.bundle"), "noise").unwrap();
    for (name, reason) in [
        ("absent.bundle", "No such file"),
        ("noise.bundle", "it is not a trust bundle"),
        ("other.bundle", "of the trust domain tombolo, not of edge.example"),
    ] {
        let error = key_error(&files, &WHOLE.replace("trust.bundle", name)).to_string();
        assert!(error.starts_with("trust.bundleFile") && error.contains(reason), "{error}");
    }
}

#[test]
fn the_admin_api_can_be_switched_off_and_a_flag_names_its_socket() {
    let off = format!("{LEAST}admin: {{ enabled: false }}\n");
    assert_eq!(load(&files(), &off, &Flags::default()).unwrap().admin.socket, None);

    let flags = Flags { admin_socket: Some("/x/admin.sock".into()), ..Flags::default() };
    assert_eq!(load(&files(), &off, &flags).unwrap().admin.socket, Some("/x/admin.sock".into()));
}

#[test]
fn the_audit_log_can_go_to_standard_output_or_be_switched_off() {
    let with =
        |sink| load(&files(), &format!("{LEAST}audit: {{ sink: {sink} }}\n"), &Flags::default()).unwrap();
    assert_eq!(with("stdout").audit.unwrap().target, Target::Stdout);
    assert!(with("off").audit.is_none());
}

#[test]
fn what_is_not_said_has_its_default() {
    let config = load(&files(), LEAST, &Flags::default()).unwrap();

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
    assert_eq!(config.limits, Limits::default());
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

    let config = load(&files(), WHOLE, &flags).unwrap();

    assert_eq!(config.server_id, "flag");
    assert_eq!((config.gateway.listen.port(), config.tunnel.listen.port()), (7, 8));
    assert_eq!((config.drain_grace, config.state_dir), (Duration::from_secs(7), "/flag".into()));
}

#[test]
fn who_is_asserted_is_not_said_where_callers_own_tokens_pass_through() {
    let error =
        key_error(&files(), &WHOLE.replace("passThrough: true", "passThrough: true, impersonation: {}"));
    assert!(error.to_string().starts_with("clusters[2]: impersonation and passThrough together"), "{error}");
}

#[test]
fn what_is_wrong_is_named_with_its_key_and_value() {
    let files = files();
    for (from, to, key, value) in [
        ("serverId: gateway-7", "serverId: Gateway", "serverId", "Gateway"),
        ("serverId: gateway-7", "", "serverId", "nothing"),
        ("edge.example", "Edge", "trustDomain", "Edge"),
        ("certificateFile: server.crt, ", "", "tls.certificateFile", "nothing"),
        ("keyFile: server.key", "keyFile: ''", "tls.keyFile", "nothing"),
        ("127.0.0.1:1", "localhost:1", "gateway.listen", "localhost:1"),
        ("Clusters.example", ".clusters.example", "gateway.hostSuffix", ".clusters.example"),
        ("Clusters.example", "10.0.0.1", "gateway.hostSuffix", "10.0.0.1"),
        ("Gateway.example", "a.clusters.Example", "gateway.hosts", "a.clusters.Example"),
        ("Gateway.example", "'a:8443'", "gateway.hosts", "a:8443"),
        ("https://console.example", "*", "gateway.browserOrigins", "\"*\""),
        ("https://console.example", "null", "gateway.browserOrigins", "\"null\""),
        ("https://console.example", "https://a.example/", "gateway.browserOrigins", "\"https://a.example/\""),
        ("https://console.example", "https://A.example", "gateway.browserOrigins", "\"https://A.example\""),
        (
            "https://console.example",
            "https://a.example:443",
            "gateway.browserOrigins",
            "\"https://a.example:443\"",
        ),
        (
            "https://console.example",
            "https://b@a.example",
            "gateway.browserOrigins",
            "\"https://b@a.example\"",
        ),
        ("https://console.example", "ftp://a.example", "gateway.browserOrigins", "\"ftp://a.example\""),
        ("caFile: caller-ca.crt, ", "", "gateway.authentication.clientCertificate.caFile", "nothing"),
        ("'cert:'", "'system:'", "gateway.authentication.clientCertificate.usernamePrefix", "\"system:\""),
        ("'cert:'", "'a b'", "gateway.authentication.clientCertificate.usernamePrefix", "\"a b\""),
        ("path: tokens.csv, ", "", "gateway.authentication.tokenFile.path", "nothing"),
        ("[::1]:2", "::1", "tunnel.listen", "::1"),
        ("Seconds: 120", "Seconds: 8", "tunnel.outageLimitSeconds", "8"),
        ("Seconds: 120", "Seconds: 601", "tunnel.outageLimitSeconds", "601"),
        (", agentCAFile: agent-ca.crt", "", "tunnel.agentCAFile", "nothing"),
        ("rules/policy.yaml", "''", "policy.file", "nothing"),
        ("127.0.0.1:3", "3", "probes.listen", "3"),
        ("name: edge-b", "name: Edge", "clusters[0].name", "Edge"),
        ("name: edge-b, ", "", "clusters[0]", "neither name nor pattern"),
        ("pattern: 'lab-*'", "name: lab, pattern: 'lab-*'", "clusters[1]", "name and pattern together"),
        ("lab-*", "Lab-*", "clusters[1].pattern", "\"Lab-*\""),
        ("users: [ann]", "users: ['system:*']", "clusters[0].impersonation.users", "system:*"),
        ("system:monitoring", "system:masters", "clusters[0].impersonation.systemNames", "system:masters"),
        ("limitSeconds: 40", "limitSeconds: 301", "parking.limitSeconds", "301"),
        ("Seconds: 90", "Seconds: 39", "parking.callerLimitSeconds", "39"),
        ("Seconds: 90", "Seconds: 301", "parking.callerLimitSeconds", "301"),
        ("maxFileBytes: 1048576", "maxFileBytes: 1048575", "audit.maxFileBytes", "1048575"),
        ("maxFileBytes: 1048576", "maxFileBytes: 4294967297", "audit.maxFileBytes", "4294967297"),
        ("filesKept: 3", "filesKept: 1", "audit.filesKept", "1"),
        ("filesKept: 3", "filesKept: 1001", "audit.filesKept", "1001"),
        ("perCluster: 7", "perCluster: 0", "parking.perCluster", "0"),
        ("perCluster: 7", "perCluster: 2001", "parking.perCluster", "2001"),
        ("limitSeconds: 70", "limitSeconds: 3601", "watches.limitSeconds", "3601"),
        ("perCluster: 9", "perCluster: 5001", "watches.perCluster", "5001"),
        ("eventBytesMax: 5000", "eventBytesMax: 4095", "watches.eventBytesMax", "4095"),
        ("eventBytesMax: 5000", "eventBytesMax: 16777217", "watches.eventBytesMax", "16777217"),
        ("drainGraceSeconds: 5", "drainGraceSeconds: 601", "drainGraceSeconds", "601"),
        ("threads: 2", "threads: 0", "runtime.threads", "0"),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let error = key_error(&files, &WHOLE.replace(from, to));
        assert_eq!((error.key.as_str(), error.value.as_str()), (key, value), "{to}");
    }
}

#[test]
fn what_is_wrong_of_the_limits_is_named_with_its_key_and_value() {
    let files = files();
    for (from, to, key, value) in [
        ("connections: 21", "connections: 0", "limits.source.connections", "0"),
        ("newPerSecond: 22", "newPerSecond: 100001", "limits.source.newPerSecond", "100001"),
        ("Minute: 23", "Minute: 0", "limits.source.failedLoginsPerMinute", "0"),
        ("requests: 11", "requests: 0", "limits.caller.requests", "0"),
        ("Second: 12", "Second: 100001", "limits.caller.requestsPerSecond", "100001"),
        ("burst: 13", "burst: 0", "limits.caller.burst", "0"),
        ("watchesPerCluster: 14", "watchesPerCluster: 10001", "limits.caller.watchesPerCluster", "10001"),
        ("upgrades: 15", "upgrades: 0", "limits.caller.upgrades", "0"),
        ("requests: 16", "requests: 10001", "limits.cluster.requests", "10001"),
        ("watches: 17", "watches: 0", "limits.cluster.watches", "0"),
        ("upgrades: 18", "upgrades: 0", "limits.cluster.upgrades", "0"),
        ("queue: 19", "queue: 10001", "limits.cluster.queue", "10001"),
        ("queueSeconds: 20", "queueSeconds: 61", "limits.cluster.queueSeconds", "61"),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let error = key_error(&files, &WHOLE.replace(from, to));
        assert_eq!((error.key.as_str(), error.value.as_str()), (key, value), "{to}");
    }
}

#[test]
fn every_method_has_a_prefix_and_no_name_lies_under_anothers() {
    let files = files();
    let tokens = |key: &str| format!("gateway.authentication.tokenFile.{key}");
    let certificates = |key: &str| format!("gateway.authentication.clientCertificate.{key}");
    for (from, to, key, value) in [
        (", usernamePrefix: 'cert:'", "", certificates("usernamePrefix"), "nothing"),
        (", groupsPrefix: 'team:'", "", certificates("groupsPrefix"), "nothing"),
        (", usernamePrefix: 't:'", "", tokens("usernamePrefix"), "nothing"),
        (", groupsPrefix: 'u:'", "", tokens("groupsPrefix"), "nothing"),
        ("'t:'", "'cert:'", tokens("usernamePrefix"), "\"cert:\""),
        ("'t:'", "'cert:token:'", tokens("usernamePrefix"), "\"cert:token:\""),
        ("'t:'", "'c'", tokens("usernamePrefix"), "\"c\""),
        ("'u:'", "'team:'", tokens("groupsPrefix"), "\"team:\""),
        ("'u:'", "'team:u'", tokens("groupsPrefix"), "\"team:u\""),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let error = key_error(&files, &WHOLE.replace(from, to));
        assert_eq!((&error.key, error.value.as_str()), (&key, value), "{to}");
    }
    let one_is_empty = WHOLE.replace("'cert:'", "''");
    assert!(load(&files, &one_is_empty, &Flags::default()).is_ok());
    let error = key_error(&files, &one_is_empty.replace("'t:'", "''"));
    assert_eq!((error.key, error.value.as_str()), (tokens("usernamePrefix"), "\"\""));
}

#[test]
fn what_is_wrong_of_the_admin_api_is_named_with_its_key_and_value() {
    let files = files();
    for (from, to, key, value) in [
        ("  socket: run/admin.sock", "  enabled: false", "admin.enabled", "false"),
        ("'[::1]:4'", "'::1'", "admin.tcp.listen", "::1"),
        ("    listen: '[::1]:4'\n", "", "admin.tcp.listen", "nothing"),
        ("    adminCAFile: admin-ca.crt\n", "", "admin.tcp.adminCAFile", "nothing"),
        ("name: ci, role: enroller", "name: olga, role: viewer", "admin.tcp.roles[2].name", "\"olga\""),
        (
            "name: ci",
            "name: 'spiffe://tombolo/admin/ci'",
            "admin.tcp.roles[2].name",
            "\"spiffe://tombolo/admin/ci\"",
        ),
        ("name: ci", "name: '*'", "admin.tcp.roles[2].name", "\"*\""),
        ("name: ci, ", "", "admin.tcp.roles[2].name", "\"\""),
        ("role: enroller", "role: Operator", "admin.tcp.roles[2].role", "\"Operator\""),
        (", role: enroller", "", "admin.tcp.roles[2].role", "\"\""),
        (
            "serial: '000000000000000000000000000000AF'",
            "serial: '0x1'",
            "admin.tcp.revoked[0].serial",
            "\"0x1\"",
        ),
        ("serial: '000000000000000000000000000000AF'", "serial: ''", "admin.tcp.revoked[0].serial", "\"\""),
        (
            "serial: '000000000000000000000000000000AF'",
            "serial: '000000000000000000000000000000AF', name: ci",
            "admin.tcp.revoked[0]",
            "nothing",
        ),
        ("serial: '000000000000000000000000000000AF'", "name: ci", "admin.tcp.revoked[0]", "nothing"),
        ("2026-01-31T12:00:00Z", "yesterday", "admin.tcp.revoked[1].issuedBefore", "\"yesterday\""),
        ("name: olga, issued", "name: Olga, issued", "admin.tcp.revoked[1].name", "\"Olga\""),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let error = key_error(&files, &WHOLE.replace(from, to));
        assert_eq!((error.key.as_str(), error.value.as_str()), (key, value), "{to}");
    }
}

#[test]
fn a_server_without_authentication_or_policy_does_not_start() {
    let files = files();
    for (line, key) in [
        ("gateway:", "gateway.authentication"),
        ("policy:", "policy.file"),
        ("tunnel:", "tunnel.agentCAFile"),
    ] {
        let text: String =
            LEAST.lines().filter(|kept| !kept.starts_with(line)).collect::<Vec<_>>().join("\n");
        let error = key_error(&files, &text);
        assert_eq!((error.key.as_str(), error.value.as_str()), (key, "nothing"));
    }
}

#[test]
fn a_file_that_is_wrong_is_named_with_its_key_its_path_and_the_reason() {
    let files = files();
    let path = |name: &str| files.path().join(name).display().to_string();
    fs::write(path("empty"), "").unwrap();
    fs::write(path("broken"), "-----BEGIN CERTIFICATE-----\nMIIB\n").unwrap();
    fs::write(path("not-der"), "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n").unwrap();
    let (certificate, caller) = (
        ["server.crt", "tls.certificateFile"],
        ["caller-ca.crt", "gateway.authentication.clientCertificate.caFile"],
    );
    for ([from, key], to, reason) in [
        (certificate, "absent", "No such file"),
        (certificate, "empty", "it holds none"),
        (certificate, "broken", "a PEM file of certificates alone ("),
        (certificate, "server.key", "it holds something else too"),
        (["server.key", "tls.keyFile"], "absent", "No such file"),
        (["server.key", "tls.keyFile"], "server.crt", "an unencrypted PEM private key ("),
        (["server.key", "tls.keyFile"], "other.key", "the key that belongs to"),
        (caller, "empty", "it holds none"),
        (caller, "not-der", "number 1 in it"),
        (["agent-ca.crt", "tunnel.agentCAFile"], "absent", "No such file"),
        (["tokens.csv", "gateway.authentication.tokenFile.path"], "absent", "No such file"),
    ] {
        let error = key_error(&files, &WHOLE.replace(from, to));
        assert_eq!((error.key.as_str(), &error.value), (key, &path(to)), "{to}");
        assert!(error.allowed.contains(reason), "{error}");
    }
}

#[test]
fn agents_callers_and_administrators_have_roots_of_their_own() {
    let caller = "gateway.authentication.clientCertificate.caFile";
    for (from, to, key, other) in [
        ("agent-ca.crt", "caller-ca.crt", caller, "tunnel.agentCAFile"),
        ("admin-ca.crt", "caller-ca.crt", "admin.tcp.adminCAFile", caller),
        ("admin-ca.crt", "agent-ca.crt", "admin.tcp.adminCAFile", "tunnel.agentCAFile"),
    ] {
        let error = key_error(&files(), &WHOLE.replace(from, to));
        assert_eq!(error.key, key);
        assert!(error.to_string().contains(other), "{error}");
    }
}

#[test]
fn an_administrators_role_is_its_names_and_a_revoked_certificate_has_none() {
    let files = files();
    let rules = load(&files, WHOLE, &Flags::default()).unwrap().admin.tcp.unwrap().rules;
    let day = |day: u64| SystemTime::UNIX_EPOCH + Duration::from_secs(day * 24 * 3_600);
    let (olga, screen, nemo): (Label, Label, Label) =
        ("olga".parse().unwrap(), "wall-screen".parse().unwrap(), "nemo".parse().unwrap());
    // 2026-01-31 is day 20,484.
    let late = day(20_485);
    for (name, serial, issued, role) in [
        (&olga, "0b", late, Ok(Some(AdminRole::Operator))),
        (&olga, "0b", day(20_484), Err(AdminRevoked)),
        (&screen, "0b", day(20_484), Ok(Some(AdminRole::Viewer))),
        (&screen, "000000000000000000000000000000af", late, Err(AdminRevoked)),
        (&screen, "0b", day(0), Err(AdminRevoked)),
        (&nemo, "0b", late, Ok(None)),
    ] {
        assert_eq!(rules.role(name, serial, issued), role, "{name} {serial} {issued:?}");
    }
    let text = fs::read_to_string(written(&files, WHOLE)).unwrap();
    let path = Path::new("server.yaml");
    assert_eq!(admin_rules(&text, path).unwrap(), rules);
    let fewer =
        admin_rules(&text.replace("name: ci, role: enroller", "name: ci, role: viewer"), path).unwrap();
    assert_eq!(fewer.roles.values().filter(|role| **role == AdminRole::Viewer).count(), 2);
    let gone = text.replace("  tcp:\n", "  tcpp:\n");
    assert!(matches!(admin_rules(&gone, path), Err(ConfigError::Load(_))));
    let without = format!("apiVersion: tombolo.dev/v1alpha1\nkind: ServerConfig\n{LEAST}");
    assert!(matches!(admin_rules(&without, path), Err(ConfigError::Key(_))));
}

#[test]
fn as_many_administrators_as_may_be_have_a_role_and_not_one_more() {
    let files = files();
    let with = |count: usize| {
        let roles: String = (0..count).map(|n| format!("{{ name: a{n}, role: viewer }},")).collect();
        let tcp = format!("listen: '127.0.0.1:4', adminCAFile: admin-ca.crt, roles: [{roles}]");
        format!("{LEAST}admin: {{ tcp: {{ {tcp} }} }}\n")
    };
    let config = load(&files, &with(ADMINS_MAX), &Flags::default()).unwrap();
    assert_eq!(config.admin.tcp.unwrap().rules.roles.len(), ADMINS_MAX);
    for count in [0, ADMINS_MAX + 1] {
        assert_eq!(key_error(&files, &with(count)).key, "admin.tcp.roles");
    }
}

#[test]
fn unknown_keys_are_refused_on_every_level() {
    let files = files();
    for (from, to) in [
        ("serverId:", "serverID:"),
        ("keyFile:", "key:"),
        ("hosts:", "host:"),
        ("tokenFile:", "tokens:"),
        ("caFile:", "caCert:"),
        ("path:", "file:"),
        ("agentCAFile:", "agentCaFile:"),
        ("policy: { file:", "policy: { allow:"),
        ("users:", "user:"),
        ("systemNames:", "system:"),
        ("pattern:", "patterns:"),
        ("limitSeconds:", "limit:"),
        ("eventBytesMax:", "eventBytes:"),
        ("level:", "file:"),
        ("threads:", "workers:"),
        ("layout: shared", "layout: many"),
        ("adminCAFile:", "caFile:"),
        ("name: olga,", "group: olga,"),
    ] {
        assert!(WHOLE.contains(from), "{from}");
        let refused = load(&files, &WHOLE.replace(from, to), &Flags::default());
        assert!(matches!(refused, Err(ConfigError::Load(LoadError::Invalid { .. }))), "{to}: {refused:?}");
    }
}

#[test]
fn debug_shows_no_token_and_no_key() {
    let files = files();
    let shown = format!("{:?}", load(&files, WHOLE, &Flags::default()).unwrap());
    assert!(!shown.contains("sesame") && !shown.contains("115, 101, 115"), "{shown}");
    let refused = load(&files, WHOLE, &Flags::default()).unwrap().gateway.authentication.token_file.unwrap();
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
fn the_help_teaches_with_examples_and_exit_codes() {
    let help = <Flags as CommandFactory>::command().render_long_help().to_string();

    for words in ["Examples:", "tunnel-server --config", "Exit codes:", "  3  the grace period passed"] {
        assert!(help.contains(words), "{words}: {help}");
    }
}

#[test]
fn what_help_and_examples_show_is_a_configuration() {
    let (_, least) = help::AFTER.split_once("has to say:\n").unwrap();
    let (least, _) = least.split_once("\n\n").unwrap();
    let least: Vec<&str> = least.lines().map(|line| line.strip_prefix("  ").unwrap()).collect();
    let examples = [
        include_str!("../../../deploy/examples/server.yaml"),
        include_str!("../../../deploy/examples/cloud/server.yaml"),
    ];
    for text in examples.map(str::to_owned).into_iter().chain([least.join("\n")]) {
        let written = daemon::config::parse::<written::Written>(&text, Path::new("server.yaml"), KIND);
        assert!(written.is_ok(), "{}: {text}", written.unwrap_err());
    }
}

fn prefixes(username: &str, groups: &str) -> Prefixes {
    Prefixes { username: username.to_owned(), groups: groups.to_owned() }
}

fn load(files: &TempDir, rest: &str, flags: &Flags) -> Result<Config, ConfigError> {
    let shared = SharedFlags { config: Some(written(files, rest)), ..flags.shared.clone() };
    Config::load(&Flags { shared, ..flags.clone() })
}

fn written(files: &TempDir, rest: &str) -> PathBuf {
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

/// A directory with every file that [`WHOLE`] and [`LEAST`] name, and a key that fits nothing.
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
