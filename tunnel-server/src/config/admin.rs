//! The doors of the admin API, as they were written and as they are valid.

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};

use daemon::config::{KeyError, bounded, socket_address};
use proto::admin::SOCKET_DEFAULT;
use serde::Deserialize;
use trust::names::Label;

use super::authentication::file;
use super::valid::NOTHING;
use super::{ADMINS_MAX, Admin, AdminRole, AdminTcp, Flags, pem};

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
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct WrittenRole {
    name: Option<String>,
    role: Option<String>,
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
    let WrittenTcp { listen, admin_ca_file, roles } = written;
    let listen = listen.ok_or_else(|| KeyError::new("admin.tcp.listen", NOTHING, "an address and a port"))?;
    let admin_ca_file = file("admin.tcp.adminCAFile", admin_ca_file, directory)?;
    let written = roles.unwrap_or_default();
    bounded("admin.tcp.roles", written.len(), 1..=ADMINS_MAX)?;
    let mut roles = BTreeMap::new();
    for (index, WrittenRole { name, role }) in written.into_iter().enumerate() {
        let at = |key: &str| format!("admin.tcp.roles[{index}].{key}");
        let name = name.unwrap_or_default();
        let allowed = "NAME of the certificate's spiffe://DOMAIN/admin/NAME, in one entry";
        let refused = || KeyError::new(at("name"), format_args!("{name:?}"), allowed);
        let label: Label = name.parse().map_err(|_| refused())?;
        let role = role.unwrap_or_default();
        let role = AdminRole::named(&role).ok_or_else(|| {
            KeyError::new(at("role"), format_args!("{role:?}"), "viewer, enroller or operator")
        })?;
        // The second would widen the first unseen.
        if roles.insert(label, role).is_some() {
            return Err(refused());
        }
    }
    Ok(AdminTcp {
        listen: socket_address("admin.tcp.listen", &listen)?,
        roots: pem::roots("admin.tcp.adminCAFile", &admin_ca_file)?,
        roles,
    })
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
