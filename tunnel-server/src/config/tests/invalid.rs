//! Errors in a configuration, each named by its key and its value.

use super::*;

#[test]
fn impersonation_and_pass_through_exclude_each_other() {
    let error =
        key_error(&files(), &EVERY_KEY.replace("passThrough: true", "passThrough: true, impersonation: {}"));
    assert!(error.to_string().starts_with("clusters[2]: impersonation and passThrough together"), "{error}");
}

#[test]
fn an_error_names_key_and_value() {
    let files = files();
    for (from, to, key, value) in [
        ("serverId: gateway-7", "serverId: Gateway", "serverId", "Gateway"),
        ("Seconds: 300", "Seconds: 74", "clusters[0].requestTimeoutSeconds", "74"),
        ("Seconds: 300", "Seconds: 3601", "clusters[0].requestTimeoutSeconds", "3601"),
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
        ("'gw.example:8443'", "'gw.example'", "tunnel.addresses", "gw.example"),
        ("'gw.example:8443'", "'gw.example:0'", "tunnel.addresses", "gw.example:0"),
        ("'[2001:db8::1]:443'", "'2001:db8::1:443'", "tunnel.addresses", "2001:db8::1:443"),
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
        assert!(EVERY_KEY.contains(from), "{from}");
        let error = key_error(&files, &EVERY_KEY.replace(from, to));
        assert_eq!((error.key.as_str(), error.value.as_str()), (key, value), "{to}");
    }
}

#[test]
fn an_error_in_the_limits_names_key_and_value() {
    let files = files();
    for (from, to, key, value) in [
        ("connections: 21", "connections: 0", "limits.source.connections", "0"),
        ("connections: 24", "connections: 0", "limits.gateway.connections", "0"),
        ("connections: 24", "connections: 100001", "limits.gateway.connections", "100001"),
        ("handshakes: 25", "handshakes: 0", "limits.gateway.handshakes", "0"),
        ("unprovedPerSecond: 29", "unprovedPerSecond: 0", "limits.agents.unprovedPerSecond", "0"),
        ("OfNetwork: 28", "OfNetwork: 0", "limits.agents.unprovedPerSecondOfNetwork", "0"),
        ("handshakes: 27", "handshakes: 0", "limits.agents.handshakes", "0"),
        ("unprovedHandshakes: 26", "unprovedHandshakes: 28", "limits.agents.unprovedHandshakes", "28"),
        ("newPerSecond: 22", "newPerSecond: 100001", "limits.source.newPerSecond", "100001"),
        ("Minute: 23", "Minute: 0", "limits.source.failedLoginsPerMinute", "0"),
        ("requests: 11", "requests: 0", "limits.caller.requests", "0"),
        ("Second: 12", "Second: 100001", "limits.caller.requestsPerSecond", "100001"),
        ("burst: 13", "burst: 0", "limits.caller.burst", "0"),
        ("watchesPerCluster: 14", "watchesPerCluster: 10001", "limits.caller.watchesPerCluster", "10001"),
        ("upgrades: 15", "upgrades: 0", "limits.caller.upgrades", "0"),
        ("connections: 30", "connections: 0", "limits.caller.connections", "0"),
        ("requests: 16", "requests: 10001", "limits.cluster.requests", "10001"),
        ("watches: 17", "watches: 0", "limits.cluster.watches", "0"),
        ("upgrades: 18", "upgrades: 0", "limits.cluster.upgrades", "0"),
        ("queue: 19", "queue: 10001", "limits.cluster.queue", "10001"),
        ("queueSeconds: 20", "queueSeconds: 61", "limits.cluster.queueSeconds", "61"),
        ("requests: 31", "requests: 3", "limits.server.requests", "3"),
        ("requests: 31", "requests: 200001", "limits.server.requests", "200001"),
        ("clusters: 32", "clusters: 0", "limits.server.clusters", "0"),
        ("clusters: 32", "clusters: 200001", "limits.server.clusters", "200001"),
        ("tunnels: 33", "tunnels: 0", "limits.server.tunnels", "0"),
        ("tunnels: 33", "tunnels: 50001", "limits.server.tunnels", "50001"),
    ] {
        assert!(EVERY_KEY.contains(from), "{from}");
        let error = key_error(&files, &EVERY_KEY.replace(from, to));
        assert_eq!((error.key.as_str(), error.value.as_str()), (key, value), "{to}");
    }
}

#[test]
fn every_method_has_a_prefix_and_none_begins_with_anothers() {
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
        assert!(EVERY_KEY.contains(from), "{from}");
        let error = key_error(&files, &EVERY_KEY.replace(from, to));
        assert_eq!((&error.key, error.value.as_str()), (&key, value), "{to}");
    }
    let one_is_empty = EVERY_KEY.replace("'cert:'", "''");
    assert!(load(&files, &one_is_empty, &Flags::default()).is_ok());
    let error = key_error(&files, &one_is_empty.replace("'t:'", "''"));
    assert_eq!((error.key, error.value.as_str()), (tokens("usernamePrefix"), "\"\""));
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
            SMALLEST.lines().filter(|kept| !kept.starts_with(line)).collect::<Vec<_>>().join("\n");
        let error = key_error(&files, &text);
        assert_eq!((error.key.as_str(), error.value.as_str()), (key, "nothing"));
    }
}

#[test]
fn an_unusable_file_is_named_with_its_key_path_and_reason() {
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
        let error = key_error(&files, &EVERY_KEY.replace(from, to));
        assert_eq!((error.key.as_str(), &error.value), (key, &path(to)), "{to}");
        assert!(error.allowed.contains(reason), "{error}");
    }
}

#[test]
fn new_agents_are_told_servers_up_to_the_limit_of_an_agents_list() {
    let files = files();
    let with = |count: usize| {
        let addresses = vec!["'gw.example:8443'"; count].join(", ");
        EVERY_KEY.replace("'gw.example:8443', '[2001:db8::1]:443'", &addresses)
    };

    let most = load(&files, &with(ADDRESSES_FOR_AGENTS_MAX), &Flags::default()).unwrap();
    assert_eq!(most.tunnel.addresses.len(), ADDRESSES_FOR_AGENTS_MAX);
    assert_eq!(key_error(&files, &with(ADDRESSES_FOR_AGENTS_MAX + 1)).key, "tunnel.addresses");
}

/// Agents, callers and administrators have client certificates, which no client accepts from a server.
#[test]
fn a_clients_certificate_as_the_servers_is_named_with_the_remedy() {
    let files = files();
    let key = KeyPair::generate().unwrap();
    let uri = "spiffe://edge.example/cluster/edge-a/agent/one";
    let mut params = CertificateParams::default();
    params.subject_alt_names.push(SanType::URI(uri.try_into().unwrap()));
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let path = |name: &str| files.path().join(name);
    fs::write(path("agent.crt"), params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(path("agent.key"), key.serialize_pem()).unwrap();
    let text = EVERY_KEY.replace("server.crt", "agent.crt").replace("server.key", "agent.key");

    for text in [text.clone(), text.replace("serverId: gateway-7", "")] {
        let error = key_error(&files, &text);
        assert_eq!(error.key, "tls.certificateFile");
        assert!(error.value.contains(uri) && error.allowed.contains("tombolo ca issue server"), "{error}");
    }
}

#[test]
fn an_old_value_of_copied_key_is_refused_with_its_present_name() {
    let with = |value: &str| EVERY_KEY.replace("tunnel: {", &format!("tunnel: {{ copiedKey: {value},"));
    for (old, new, parsed) in [
        ("prefer-newcomer", "prefer-new", CopiedKey::PreferNew),
        ("refuse-newcomer", "refuse-new", CopiedKey::RefuseNew),
    ] {
        let error = key_error(&files(), &with(old));
        assert_eq!((error.key.as_str(), error.value.as_str()), ("tunnel.copiedKey", old));
        assert!(error.allowed.starts_with(&format!("{new},")), "{error}");
        let config = load(&files(), &with(new), &Flags::default()).unwrap();
        assert_eq!(config.tunnel.copied_key, parsed);
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
        assert!(EVERY_KEY.contains(from), "{from}");
        let refused = load(&files, &EVERY_KEY.replace(from, to), &Flags::default());
        assert!(matches!(refused, Err(ConfigError::Load(LoadError::Invalid { .. }))), "{to}: {refused:?}");
    }
}
