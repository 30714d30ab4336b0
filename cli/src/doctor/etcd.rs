//! Checks the etcd in which a tunnel-server shares its records: its files, every member, and the quorum.

use std::path::Path;
use std::sync::Arc;
use std::time::SystemTime;

use daemon::{Scope, error_chain};
use etcd::{Client, Endpoint, KeyRange};
use rustls::ClientConfig;
use rustls::version::{TLS12, TLS13};
use tokio::sync::watch;

use super::certificate;
use super::check::Check;
use super::configuration::RawEtcd;
use super::report::Report;
use crate::tls::{self, ALPN_H2};

const CHECK: Check = Check::Etcd;

/// The use of a member's database, in percent of its quota, from which there is a warning.
const SPACE_WARN_PERCENT: u64 = 80;

/// The key that is read at the quorum. Its answer counts, and not whether it is there.
const ANY_KEY: &str = "tombolo-doctor";

/// Checks the section `directory.etcd` of a configuration.
pub(super) async fn check_all(raw: &RawEtcd, base: &Path, scope: &Scope, report: &mut Report) {
    let mut endpoints: Vec<Endpoint> = Vec::new();
    for text in &raw.endpoints {
        match text.parse() {
            Ok(endpoint) => endpoints.push(endpoint),
            Err(error) => {
                report.fail(CHECK, error_chain(&error).to_string(), "correct directory.etcd.endpoints")
            }
        }
    }
    if endpoints.is_empty() {
        report.fail(CHECK, "directory.etcd.endpoints names no member", "name all members of etcd there");
        return;
    }
    let needs_tls = endpoints.iter().any(|endpoint| endpoint.tls_name().is_some());
    let config = if needs_tls { tls_config(raw, base, report) } else { None };
    if needs_tls && config.is_none() {
        return;
    }
    let tls = config.map(|config| watch::channel(config).1);
    let client = Client::new(endpoints, tls, scope.clone());
    for endpoint in client.endpoints() {
        check_member(&client, endpoint, report).await;
    }
    match client.list(&KeyRange::key(ANY_KEY), None).await {
        Ok(_) => report.ok(CHECK, "a quorum of etcd's members answers"),
        Err(error) => {
            let advice = "without a quorum this server changes nothing, and serves nothing new after \
                          directory.etcd.staleLimitSeconds: start etcd's members";
            report.fail(CHECK, error_chain(&error).to_string(), advice);
        }
    }
}

async fn check_member(client: &Client, endpoint: &Endpoint, report: &mut Report) {
    let status = match client.status(endpoint).await {
        Ok(status) => status,
        Err(error) => {
            let advice = "start this member, or correct directory.etcd and what is between";
            report.fail(CHECK, format!("{endpoint}: {}", error_chain(&error)), advice);
            return;
        }
    };
    match status.check() {
        Err(error) => {
            report.fail(CHECK, format!("{endpoint}: {error}"), "see etcd's pages on upgrades and maintenance")
        }
        Ok(()) if !status.has_leader => {
            report.fail(
                CHECK,
                format!("{endpoint} knows no leader"),
                "check the links between etcd's members",
            );
        }
        Ok(()) => {
            report.ok(CHECK, format!("{endpoint} is etcd {}", status.version_text));
            check_space(endpoint, status.database_bytes, report);
        }
    }
}

/// Warns before the database of a member is full: then etcd takes no more changes. A quota of 0 is not told.
fn check_space(endpoint: &Endpoint, (used, quota): (u64, u64), report: &mut Report) {
    let mebibytes = |bytes: u64| bytes / (1024 * 1024);
    if quota > 0 && used.saturating_mul(100) >= quota.saturating_mul(SPACE_WARN_PERCENT) {
        let found = format!("{endpoint} uses {} of {} MiB", mebibytes(used), mebibytes(quota));
        let advice = "compact and defragment its database, or raise its quota: when it is full, nothing is changed any more";
        report.warn(CHECK, found, advice);
    }
}

/// The TLS configuration of the section, if its files can be used.
fn tls_config(raw: &RawEtcd, base: &Path, report: &mut Report) -> Option<Arc<ClientConfig>> {
    let now = SystemTime::now();
    let roots = certificate::roots(report, Check::EtcdCa, &base.join(raw.ca_file.as_deref()?), now);
    let (certificate, key) = (raw.certificate_file.as_deref()?, raw.key_file.as_deref()?);
    let identity = certificate::identity(report, &base.join(certificate), &base.join(key), now);
    match tls::client(roots?, Some(identity?), &[&TLS13, &TLS12], ALPN_H2) {
        Ok(config) => Some(config),
        Err(error) => {
            report.fail(CHECK, error_chain(&error).to_string(), "correct the files of directory.etcd");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_that_is_nearly_full_is_a_warning() {
        let endpoint: Endpoint = "http://127.0.0.1:2379".parse().unwrap();
        let gibibyte = 1024 * 1024 * 1024;
        for (used, quota, warns) in [
            (gibibyte, 2 * gibibyte, false),
            (gibibyte * 8 / 5, 2 * gibibyte, false),
            (gibibyte * 8 / 5 + 1, 2 * gibibyte, true),
            (gibibyte, 0, false),
        ] {
            let mut report = Report::default();

            check_space(&endpoint, (used, quota), &mut report);

            assert_eq!(report.lines().is_empty(), !warns, "{:?}", report.lines());
        }
    }
}
