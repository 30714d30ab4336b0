//! The section `admin`: the socket, the TCP listener, and roles.

use super::*;

#[test]
fn the_admin_api_can_be_switched_off_and_a_flag_names_its_socket() {
    let off = format!("{SMALLEST}admin: {{ enabled: false }}\n");
    assert_eq!(load(&files(), &off, &Flags::default()).unwrap().admin.socket, None);

    let flags = Flags { admin_socket: Some("/x/admin.sock".into()), ..Flags::default() };
    assert_eq!(load(&files(), &off, &flags).unwrap().admin.socket, Some("/x/admin.sock".into()));
}

#[test]
fn an_error_in_the_admin_section_names_key_and_value() {
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
        assert!(EVERY_KEY.contains(from), "{from}");
        let error = key_error(&files, &EVERY_KEY.replace(from, to));
        assert_eq!((error.key.as_str(), error.value.as_str()), (key, value), "{to}");
    }
}

#[test]
fn a_role_belongs_to_a_name_and_a_revoked_certificate_has_none() {
    let files = files();
    let rules = load(&files, EVERY_KEY, &Flags::default()).unwrap().admin.tcp.unwrap().rules;
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
    let text = fs::read_to_string(write_config(&files, EVERY_KEY)).unwrap();
    let path = Path::new("server.yaml");
    assert_eq!(admin_rules(&text, path).unwrap(), rules);
    let fewer =
        admin_rules(&text.replace("name: ci, role: enroller", "name: ci, role: viewer"), path).unwrap();
    assert_eq!(fewer.roles.values().filter(|role| **role == AdminRole::Viewer).count(), 2);
    let gone = text.replace("  tcp:\n", "  tcpp:\n");
    assert!(matches!(admin_rules(&gone, path), Err(ConfigError::Load(_))));
    let without = format!("apiVersion: tombolo.dev/v1alpha1\nkind: ServerConfig\n{SMALLEST}");
    assert!(matches!(admin_rules(&without, path), Err(ConfigError::Key(_))));
}

#[test]
fn the_number_of_administrators_is_limited() {
    let files = files();
    let with = |count: usize| {
        let roles: String = (0..count).map(|n| format!("{{ name: a{n}, role: viewer }},")).collect();
        let tcp = format!("listen: '127.0.0.1:4', adminCAFile: admin-ca.crt, roles: [{roles}]");
        format!("{SMALLEST}admin: {{ tcp: {{ {tcp} }} }}\n")
    };
    let config = load(&files, &with(ADMINS_MAX), &Flags::default()).unwrap();
    assert_eq!(config.admin.tcp.unwrap().rules.roles.len(), ADMINS_MAX);
    for count in [0, ADMINS_MAX + 1] {
        assert_eq!(key_error(&files, &with(count)).key, "admin.tcp.roles");
    }
}
