//! The section `admin`: the Unix socket and the TCP listener of the admin API, and what remote administrators may do.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use daemon::config::{KeyError, bounded};
use prost_types::Timestamp;
use proto::admin::SOCKET_DEFAULT;
use serde::Deserialize;
use trust::names::Label;
use trust::parse_serial_text;

use super::flags::Flags;
use super::roots::{self, TrustedRoots};
use super::value::{NOTHING, file, required_listen_address};

/// Most administrators who can have a role on other machines, and most revocations of them.
pub const ADMINS_MAX: usize = 1_000;

const TCP: &str = "admin.tcp";

/// The listeners of the admin API.
#[derive(Debug)]
pub struct AdminConfig {
    /// The Unix socket, if there is one.
    pub socket: Option<PathBuf>,
    /// The TCP listener for other machines, if there is one.
    pub tcp: Option<AdminTcp>,
}

/// The admin API's listener for other machines.
#[derive(Debug)]
pub struct AdminTcp {
    /// The TCP address to bind.
    pub listen: SocketAddr,
    /// The roots that administrators' certificates must chain to; at least one, and none of another role.
    pub roots: TrustedRoots,
    /// The rights of administrators, as of the start of the process.
    pub rules: AdminRules,
}

/// The rights of administrators on other machines.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct AdminRules {
    /// The role of each name, 1 to [`ADMINS_MAX`]. A name that is not here may do nothing.
    pub roles: BTreeMap<Label, AdminRole>,
    /// The certificates that are refused, at most [`ADMINS_MAX`] entries.
    pub revoked: Vec<AdminRevocation>,
}

/// The certificates of administrators that one entry refuses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdminRevocation {
    /// One certificate, by its serial number in lower-case hexadecimal.
    Serial(String),
    /// All certificates that were issued before a time.
    IssuedBefore {
        /// Only certificates of this name, if there is one.
        name: Option<Label>,
        /// The time before which they were issued.
        time: SystemTime,
    },
}

/// An administrator's certificate is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("this administrator's certificate was revoked")]
pub struct AdminRevoked;

/// Makes an enum of roles and, from the same list, the words by which the configuration names them.
macro_rules! roles {
    ($(#[$meta:meta])* $name:ident { $($(#[$doc:meta])* $variant:ident = $word:literal;)* }) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name {
            $($(#[$doc])* $variant,)*
        }

        impl $name {
            /// The role with this name in the configuration.
            fn parse(word: &str) -> Option<Self> {
                match word {
                    $($word => Some(Self::$variant),)*
                    _ => None,
                }
            }

            /// The role's name in the configuration.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)*
                }
            }
        }
    };
}

roles! {
    /// The role of an administrator on another machine.
    AdminRole {
        /// Reads everything, and changes nothing.
        Viewer = "viewer";
        /// Makes tokens by which agents enroll, and does nothing else.
        Enroller = "enroller";
        /// Can do everything that root can.
        Operator = "operator";
    }
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct RawAdmin {
    /// With false, there is no admin API.
    #[cfg_attr(test, schemars(extend("default" = true)))]
    enabled: Option<bool>,
    /// Path of the Unix socket for root and for the user of the server.
    #[cfg_attr(test, schemars(extend("default" = SOCKET_DEFAULT)))]
    socket: Option<PathBuf>,
    /// The listener for administrators on other machines.
    tcp: Option<RawAdminTcp>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawAdminTcp {
    /// Address and TCP port of the admin API.
    #[cfg_attr(test, schemars(required))]
    listen: Option<String>,
    /// PEM file with the CA certificates of administrators.
    #[cfg_attr(test, schemars(required))]
    #[serde(rename = "adminCAFile")]
    admin_ca_file: Option<PathBuf>,
    /// The role of each administrator. A name without a role has no right. Read again when the file changes.
    #[cfg_attr(test, schemars(required, length(min = 1, max = ADMINS_MAX)))]
    roles: Option<Vec<RawAdminRole>>,
    /// Valid certificates that are refused. Read again when the file changes.
    #[cfg_attr(test, schemars(extend("default" = []), length(min = 0, max = ADMINS_MAX)))]
    revoked: Option<Vec<RawAdminRevocation>>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawAdminRole {
    /// Name in the administrator's certificate.
    #[cfg_attr(test, schemars(required))]
    name: Option<String>,
    /// viewer may read, enroller may make tokens for agents, operator may do everything.
    #[cfg_attr(test, schemars(required, extend("enum" = ["viewer", "enroller", "operator"])))]
    role: Option<String>,
}

#[derive(Debug, Default, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct RawAdminRevocation {
    /// With `issuedBefore`: only certificates of this name.
    name: Option<String>,
    /// Serial number of one certificate, in hexadecimal, as `tombolo ca show` prints it.
    serial: Option<String>,
    /// Time of RFC 3339, such as 2026-01-31T12:00:00Z. All certificates that were issued before it are refused.
    issued_before: Option<String>,
}

/// The listeners of the admin API. A relative path starts at the configuration file. The flag
/// `--admin-socket` also switches the socket on.
pub(super) fn admin(raw: RawAdmin, flags: &Flags, directory: &Path) -> Result<AdminConfig, KeyError> {
    let RawAdmin { enabled, socket, tcp } = raw;
    if enabled == Some(false) && tcp.is_some() {
        let allowed = "left out where admin.tcp is there, and admin.tcp where the admin API is switched off";
        return Err(KeyError::new("admin.enabled", false, allowed));
    }
    let path = flags.admin_socket.clone().or_else(|| {
        let path = socket.unwrap_or_else(|| SOCKET_DEFAULT.into());
        enabled.unwrap_or(true).then(|| directory.join(path))
    });
    Ok(AdminConfig {
        socket: path.filter(|path| !path.as_os_str().is_empty()),
        tcp: tcp.map(|tcp| self::tcp(tcp, directory)).transpose()?,
    })
}

fn tcp(raw: RawAdminTcp, directory: &Path) -> Result<AdminTcp, KeyError> {
    let RawAdminTcp { listen, admin_ca_file, roles, revoked } = raw;
    let listen = required_listen_address("admin.tcp.listen", listen)?;
    let admin_ca_file = file("admin.tcp.adminCAFile", admin_ca_file, directory)?;
    let rules = rules(roles.unwrap_or_default(), revoked.unwrap_or_default())?;
    Ok(AdminTcp { listen, roots: roots::roots("admin.tcp.adminCAFile", &admin_ca_file)?, rules })
}

fn rules(roles: Vec<RawAdminRole>, revoked: Vec<RawAdminRevocation>) -> Result<AdminRules, KeyError> {
    bounded("admin.tcp.roles", roles.len(), 1..=ADMINS_MAX)?;
    bounded("admin.tcp.revoked", revoked.len(), 0..=ADMINS_MAX)?;
    let mut rules = AdminRules::default();
    for (index, RawAdminRole { name, role }) in roles.into_iter().enumerate() {
        let at = |key: &str| format!("admin.tcp.roles[{index}].{key}");
        let label = self::name(&at("name"), name.as_deref().unwrap_or_default())?;
        let role = role.unwrap_or_default();
        let role = AdminRole::parse(&role).ok_or_else(|| {
            KeyError::new(at("role"), format_args!("{role:?}"), "viewer, enroller or operator")
        })?;
        // A second entry could extend the first one unnoticed.
        if rules.roles.insert(label, role).is_some() {
            let name = name.unwrap_or_default();
            return Err(KeyError::new(at("name"), format_args!("{name:?}"), NAME_ALLOWED));
        }
    }
    rules.revoked = revoked.into_iter().enumerate().map(revocation).collect::<Result<_, _>>()?;
    Ok(rules)
}

/// The certificates that an entry refuses: one, or those of one name or of all that were issued before a
/// time.
fn revocation((index, raw): (usize, RawAdminRevocation)) -> Result<AdminRevocation, KeyError> {
    let RawAdminRevocation { name, serial, issued_before } = raw;
    let at = |key: &str| format!("admin.tcp.revoked[{index}].{key}");
    match (serial, issued_before) {
        (Some(serial), None) if name.is_none() => {
            let allowed =
                "the hexadecimal digits of a certificate's serial number, as `tombolo ca show` prints them";
            let refused = |_| KeyError::new(at("serial"), format_args!("{serial:?}"), allowed);
            Ok(AdminRevocation::Serial(parse_serial_text(&serial).map_err(refused)?))
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

/// The rules for remote administrators in a configuration that was read again.
pub(super) fn reread_rules(raw: Option<RawAdmin>) -> Result<AdminRules, KeyError> {
    let tcp = raw
        .and_then(|admin| admin.tcp)
        .ok_or_else(|| KeyError::new(TCP, NOTHING, "there as before; a restart takes it away"))?;
    rules(tcp.roles.unwrap_or_default(), tcp.revoked.unwrap_or_default())
}

impl AdminRules {
    /// The role of a certificate with this name, serial number and time of issue; `None` where the name has no role.
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

impl fmt::Display for AdminRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
