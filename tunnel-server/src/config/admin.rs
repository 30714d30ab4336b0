//! The doors of the admin API, as they were written and as they are valid.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use daemon::config::{KeyError, bounded};
use prost_types::Timestamp;
use proto::admin::SOCKET_DEFAULT;
use serde::Deserialize;
use trust::names::Label;
use trust::serial_from;

use super::value::{NOTHING, file, said_listen};
use super::{
    ADMINS_MAX, Admin, AdminRevocation, AdminRevoked, AdminRole, AdminRules, AdminTcp, ConfigError, Flags,
    KIND, pem,
};

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Written {
    enabled: Option<bool>,
    socket: Option<PathBuf>,
    tcp: Option<WrittenTcp>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenTcp {
    listen: Option<String>,
    #[serde(rename = "adminCAFile")]
    admin_ca_file: Option<PathBuf>,
    roles: Option<Vec<WrittenRole>>,
    revoked: Option<Vec<WrittenRevocation>>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenRole {
    name: Option<String>,
    role: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenRevocation {
    name: Option<String>,
    serial: Option<String>,
    issued_before: Option<String>,
}

/// Where the admin API is; a relative path starts at the configuration file. A flag is how its socket is asked for, too.
pub(super) fn valid(written: Written, flags: &Flags, directory: &Path) -> Result<Admin, KeyError> {
    let Written { enabled, socket, tcp } = written;
    if enabled == Some(false) && tcp.is_some() {
        let allowed = "left out where admin.tcp is there, and admin.tcp where the admin API is switched off";
        return Err(KeyError::new("admin.enabled", false, allowed));
    }
    let path = flags.admin_socket.clone().or_else(|| {
        let path = socket.unwrap_or_else(|| SOCKET_DEFAULT.into());
        enabled.unwrap_or(true).then(|| directory.join(path))
    });
    Ok(Admin {
        socket: path.filter(|path| !path.as_os_str().is_empty()),
        tcp: tcp.map(|tcp| self::tcp(tcp, directory)).transpose()?,
    })
}

fn tcp(written: WrittenTcp, directory: &Path) -> Result<AdminTcp, KeyError> {
    let WrittenTcp { listen, admin_ca_file, roles, revoked } = written;
    let listen = said_listen("admin.tcp.listen", listen)?;
    let admin_ca_file = file("admin.tcp.adminCAFile", admin_ca_file, directory)?;
    let rules = rules(roles.unwrap_or_default(), revoked.unwrap_or_default())?;
    Ok(AdminTcp { listen, roots: pem::roots("admin.tcp.adminCAFile", &admin_ca_file)?, rules })
}

fn rules(roles: Vec<WrittenRole>, revoked: Vec<WrittenRevocation>) -> Result<AdminRules, KeyError> {
    bounded("admin.tcp.roles", roles.len(), 1..=ADMINS_MAX)?;
    bounded("admin.tcp.revoked", revoked.len(), 0..=ADMINS_MAX)?;
    let mut rules = AdminRules::default();
    for (index, WrittenRole { name, role }) in roles.into_iter().enumerate() {
        let at = |key: &str| format!("admin.tcp.roles[{index}].{key}");
        let label = self::name(&at("name"), name.as_deref().unwrap_or_default())?;
        let role = role.unwrap_or_default();
        let role = AdminRole::named(&role).ok_or_else(|| {
            KeyError::new(at("role"), format_args!("{role:?}"), "viewer, enroller or operator")
        })?;
        // The second would widen the first unseen.
        if rules.roles.insert(label, role).is_some() {
            let name = name.unwrap_or_default();
            return Err(KeyError::new(at("name"), format_args!("{name:?}"), NAME_ALLOWED));
        }
    }
    rules.revoked = revoked.into_iter().enumerate().map(revocation).collect::<Result<_, _>>()?;
    Ok(rules)
}

/// Whom an entry refuses: one certificate, or those that were issued before a time, of one name or of all.
fn revocation((index, written): (usize, WrittenRevocation)) -> Result<AdminRevocation, KeyError> {
    let WrittenRevocation { name, serial, issued_before } = written;
    let at = |key: &str| format!("admin.tcp.revoked[{index}].{key}");
    match (serial, issued_before) {
        (Some(serial), None) if name.is_none() => {
            let allowed =
                "the hexadecimal digits of a certificate's serial number, as `tombolo ca show` prints them";
            let refused = |_| KeyError::new(at("serial"), format_args!("{serial:?}"), allowed);
            Ok(AdminRevocation::Serial(serial_from(&serial).map_err(refused)?))
        }
        (None, Some(before)) => {
            let allowed = "a time, as in 2026-01-31T12:00:00Z";
            let refused = || KeyError::new(at("issuedBefore"), format_args!("{before:?}"), allowed);
            let time = before.parse::<Timestamp>().ok().and_then(|time| SystemTime::try_from(time).ok());
            let name = name.map(|name| self::name(&at("name"), &name)).transpose()?;
            Ok(AdminRevocation::IssuedBefore { name, time: time.ok_or_else(refused)? })
        }
        (Some(_), _) | (None, None) => {
            let allowed = "serial alone, or issuedBefore with a name or without; who is to have no role at all is left out of \
                           admin.tcp.roles";
            Err(KeyError::new(format!("admin.tcp.revoked[{index}]"), NOTHING, allowed))
        }
    }
}

const NAME_ALLOWED: &str = "NAME of the certificate's spiffe://DOMAIN/admin/NAME, in one entry";

fn name(key: &str, name: &str) -> Result<Label, KeyError> {
    name.parse().map_err(|_| KeyError::new(key, format_args!("{name:?}"), NAME_ALLOWED))
}

/// What a configuration file, whose text this is, says of administrators now. The rest of it takes a restart.
///
/// # Errors
///
/// [`ConfigError`]: it is no configuration, or has no `admin.tcp` any more.
pub fn admin_rules(text: &str, path: &Path) -> Result<AdminRules, ConfigError> {
    let written: super::written::Written = daemon::config::parse(text, path, KIND)?;
    let tcp = written
        .admin
        .and_then(|admin| admin.tcp)
        .ok_or_else(|| KeyError::new("admin.tcp", NOTHING, "there as before; a restart takes it away"))?;
    Ok(rules(tcp.roles.unwrap_or_default(), tcp.revoked.unwrap_or_default())?)
}

impl AdminRules {
    /// What the bearer of this certificate may; `None` where that is nothing, because the name is not in the list.
    ///
    /// # Errors
    ///
    /// [`AdminRevoked`].
    pub fn role(
        &self,
        name: &Label,
        serial: &str,
        issued: SystemTime,
    ) -> Result<Option<AdminRole>, AdminRevoked> {
        let concerns = |revocation: &AdminRevocation| match revocation {
            AdminRevocation::Serial(revoked) => revoked == serial,
            AdminRevocation::IssuedBefore { name: of, time } => {
                issued < *time && of.as_ref().is_none_or(|of| of == name)
            }
        };
        if self.revoked.iter().any(concerns) { Err(AdminRevoked) } else { Ok(self.roles.get(name).copied()) }
    }
}

impl AdminRole {
    const ALL: [Self; 3] = [Self::Viewer, Self::Enroller, Self::Operator];

    fn named(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == word)
    }

    /// Its word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Enroller => "enroller",
            Self::Operator => "operator",
        }
    }
}

impl fmt::Display for AdminRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
