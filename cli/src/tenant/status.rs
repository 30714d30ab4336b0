//! `tombolo tenant list` and `status`: tenants, the parts of their control planes, and the ends of certificates.

use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

use super::host::{Host, HostError};
use super::objects::{API_SERVERS, file_of};
use super::parts::{self, Part};
use super::pki::SECRETS;
use super::record::{RecordError, TENANT, TenantRecord};
use super::roots::{self, ROOTS};
use super::rotation::Rotation;
use crate::args::{TenantList, TenantOutput, TenantStatus};
use crate::kubeconfig::reader::{self, Kubeconfig};
use crate::print;
use crate::yaml;

/// Tenants could not be shown.
#[derive(Debug, thiserror::Error)]
pub(crate) enum StatusError {
    #[error(transparent)]
    Host(#[from] HostError),
    #[error(transparent)]
    Record(#[from] RecordError),
    #[error("the tenant could not be written as JSON")]
    Json(#[from] serde_json::Error),
    #[error("the tenant could not be written as YAML")]
    Yaml(#[from] serde_saphyr::SerializeError),
}

/// Lists the tenants of a host cluster.
///
/// # Errors
/// [`StatusError`]
pub(crate) fn list(args: &TenantList) -> Result<Vec<String>, StatusError> {
    let host = Host::find(&args.host, "default")?;
    let namespaces = host.list(&["namespaces", "--selector", TENANT])?;
    let all = parts::read_all(&host)?;
    let mut tenants = Vec::new();
    for namespace in &namespaces {
        let name = namespace["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let tenant = TenantRecord::parse(namespace).ok_or(RecordError::Broken(name))?;
        let own = all.iter().filter(|(namespace, _)| *namespace == tenant.name);
        tenants.push((own.map(|(_, part)| part.clone()).collect::<Vec<_>>(), tenant));
    }
    let objects = || tenants.iter().map(|(parts, tenant)| object(tenant, parts)).collect::<Value>();
    match args.output {
        None => Ok(table(&tenants)),
        Some(output) => document(output, &objects()),
    }
}

/// Shows one tenant. Returns false beside the lines if a part of it is not ready.
///
/// # Errors
/// [`StatusError`]
pub(crate) fn status(args: &TenantStatus) -> Result<(Vec<String>, bool), StatusError> {
    let name = args.name.as_str();
    let host = Host::find(&args.host, name)?;
    let tenant = TenantRecord::read(&host, name)?;
    let parts = parts::read(&host)?;
    let mut certificates = Vec::new();
    let mut rotation = None;
    for secret in SECRETS.into_iter().chain([ROOTS]) {
        let found = host.get(&["secret", secret])?;
        certificates.extend(ends(secret, &found));
        rotation = rotation.or_else(|| roots::rotation_in(&found));
    }
    certificates.sort_by_key(|certificate| certificate.end);
    let is_ready = !parts.is_empty() && parts.iter().all(Part::is_done);
    let lines = match args.output {
        None => text(&tenant, &parts, &certificates, rotation.as_ref()),
        Some(output) => {
            let mut object = object(&tenant, &parts);
            object["certificates"] = certificates.iter().map(Certificate::object).collect();
            object["rotation"] = json!(rotation);
            document(output, &object)?
        }
    };
    Ok((lines, is_ready))
}

/// A certificate in a Secret.
struct Certificate {
    secret: String,
    file: String,
    /// The end, in seconds since 1970.
    end: u64,
}

impl Certificate {
    fn end_text(&self) -> String {
        let end = i64::try_from(self.end).ok().and_then(|end| OffsetDateTime::from_unix_timestamp(end).ok());
        end.and_then(|end| end.format(&Rfc3339).ok()).unwrap_or_default()
    }

    fn object(&self) -> Value {
        json!({ "secret": self.secret, "file": self.file, "notAfter": self.end_text() })
    }
}

/// The certificates in a Secret, also those in kubeconfigs.
fn ends(name: &str, secret: &Value) -> Vec<Certificate> {
    let files = secret["data"].as_object().into_iter().flat_map(|files| files.keys());
    let certificate = |file: &String| {
        let text = file_of(secret, file)?;
        let pem = if file == "kubeconfig" { client_certificate(&text)? } else { text.into_bytes() };
        let (_, end) = trust::validity(&CertificateDer::from_pem_slice(&pem).ok()?)?;
        Some(Certificate { secret: name.to_owned(), file: file.clone(), end })
    };
    files.filter_map(certificate).collect()
}

fn client_certificate(kubeconfig: &str) -> Option<Vec<u8>> {
    let kubeconfig = Kubeconfig::parse(kubeconfig).ok()?;
    let user = kubeconfig.select(None).ok()?.user?;
    reader::decode_data(user.client_certificate_data.as_deref()?)
}

fn table(tenants: &[(Vec<Part>, TenantRecord)]) -> Vec<String> {
    let header = ["NAME", "READY", "VERSION", "PORTS", "SERVICES", "PODS"].map(str::to_owned);
    let row = |(parts, tenant): &(Vec<Part>, TenantRecord)| {
        let ready = parts.iter().filter(|part| part.is_done()).count();
        let version = api_servers(parts).map(|part| part.version().to_owned());
        [
            tenant.name.clone(),
            format!("{ready}/{}", parts.len()),
            version.unwrap_or_else(print::none),
            ports(tenant),
            tenant.service_network.to_string(),
            tenant.pod_network.to_string(),
        ]
    };
    print::columns(&[header].into_iter().chain(tenants.iter().map(row)).collect::<Vec<_>>())
}

fn text(
    tenant: &TenantRecord,
    parts: &[Part],
    certificates: &[Certificate],
    rotation: Option<&Rotation>,
) -> Vec<String> {
    let pair = |name: &str, value: String| [name.to_owned(), value];
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let soonest = certificates.first().map_or_else(print::none, |first| {
        let ended = if first.end < now { ", which is over: tombolo tenant certificates renew" } else { "" };
        format!("{} of {}/{}{ended}", first.end_text(), first.secret, first.file)
    });
    let mut rows = vec![
        pair("Tenant:", tenant.name.clone()),
        pair("Ports:", ports(tenant)),
        pair("Services:", tenant.service_network.to_string()),
        pair("Pods:", tenant.pod_network.to_string()),
        pair("Members:", format!("{} of each etcd", tenant.members)),
        pair("First end:", soonest),
    ];
    rows.extend(rotation.map(|rotation| pair("Next CAs:", rotation.text(&tenant.name))));
    let mut lines = print::columns(&rows);
    lines.push(String::new());
    if parts.is_empty() {
        lines.push(format!("no control plane is installed: tombolo tenant create {}", tenant.name));
        return lines;
    }
    let header = ["PART", "READY", "VERSION", "STATE"].map(str::to_owned);
    let row = |part: &Part| {
        let state = match (part.is_done(), part.is_updated) {
            (true, _) => "ready",
            (false, true) => "not ready",
            (false, false) => "being replaced",
        };
        let ready = format!("{}/{}", part.ready, part.wanted);
        [part.name.clone(), ready, part.version().to_owned(), state.to_owned()]
    };
    lines.extend(print::columns(&[header].into_iter().chain(parts.iter().map(row)).collect::<Vec<_>>()));
    lines
}

fn object(tenant: &TenantRecord, parts: &[Part]) -> Value {
    let part = |part: &Part| {
        json!({
            "name": part.name, "image": part.image, "ready": part.ready, "wanted": part.wanted,
            "isDone": part.is_done(),
        })
    };
    json!({
        "name": tenant.name,
        "ports": { "first": tenant.ports.first(), "last": tenant.ports.last() },
        "serviceNetwork": tenant.service_network.to_string(),
        "podNetwork": tenant.pod_network.to_string(),
        "members": tenant.members,
        "parts": parts.iter().map(part).collect::<Value>(),
    })
}

fn document(output: TenantOutput, object: &Value) -> Result<Vec<String>, StatusError> {
    Ok(match output {
        TenantOutput::Json => vec![serde_json::to_string_pretty(object)?],
        TenantOutput::Yaml => vec![yaml::document(object)?],
    })
}

fn ports(tenant: &TenantRecord) -> String {
    format!("{}-{}", tenant.ports.first(), tenant.ports.last())
}

fn api_servers(parts: &[Part]) -> Option<&Part> {
    parts.iter().find(|part| part.name == API_SERVERS)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::kubeconfig_text::kubeconfig;
    use super::super::objects::secret;
    use super::super::pki::TenantRoots;
    use super::*;

    #[test]
    fn the_end_of_a_certificate_in_a_kubeconfig_is_found_too() {
        let now = SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000);
        let roots = TenantRoots::generate(now).unwrap();
        let pair = roots.administrator("olga", now, Duration::from_secs(60)).unwrap();
        let text = kubeconfig(&[("a", "https://a")], "CA", "olga", &pair.certificate, &pair.key);
        let ca = roots.cluster.certificate_pem();
        let secret = secret(
            "acme",
            "scheduler",
            [("kubeconfig", text.as_str()), ("ca.crt", ca), ("sa.key", &pair.key)],
        );

        let found = ends("scheduler", &secret);

        let shown: Vec<(&str, String)> =
            found.iter().map(|certificate| (certificate.file.as_str(), certificate.end_text())).collect();
        assert_eq!(
            shown,
            [
                ("ca.crt", "2037-01-12T08:00:00Z".to_owned()),
                ("kubeconfig", "2027-01-15T08:01:00Z".to_owned())
            ]
        );
    }
}
