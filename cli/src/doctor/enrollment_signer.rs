//! Checks the signer with which a server enrolls agents, and the trust bundle that it gives them: with a wrong one the server does not
//! start, or agents get certificates that it does not accept.

use std::path::Path;
use std::time::SystemTime;

use rustls_pki_types::CertificateDer;
use transport::tls::SharedRoots;
use trust::{Anchors, Intermediate, Role, Signer as _, TrustBundle, sealed};

use super::certificate;
use super::check::Check;
use super::configuration::{RawEnrollmentService, RawServerConfig};
use super::report::Report;
use crate::files;

/// Checks the sealed signer, its key, and that agents whom it enrolls would be accepted by these roots.
pub(super) fn check(
    config: &RawServerConfig,
    raw: &RawEnrollmentService,
    base: &Path,
    agent_roots: Option<Vec<CertificateDer<'static>>>,
    report: &mut Report,
) {
    const CHECK: Check = Check::EnrollmentSigner;
    let domain = config.trust_domain();
    trust_bundle(config, base, domain, report);
    for (key, path) in [("signerFile", &raw.signer_file), ("sealingKeyFile", &raw.sealing_key_file)] {
        if path.as_os_str().is_empty() {
            report.fail(
                CHECK,
                format!("enrollment.{key} is not set"),
                "name the file; `tombolo ca init` writes both",
            );
            return;
        }
    }
    let (signer_path, key_path) = (base.join(&raw.signer_file), base.join(&raw.sealing_key_file));
    let now = SystemTime::now();
    let signer = match sealed::load(&signer_path, &key_path) {
        Ok(signer) => signer,
        Err(error) => {
            let advice = "use the sealed intermediate and the sealing key of one `tombolo ca init` or `tombolo ca intermediate`";
            report.fail(CHECK, daemon::error_chain(&error).to_string(), advice);
            return;
        }
    };
    let shown = signer_path.display();
    if signer.role() != Role::Agent || signer.trust_domain().as_str() != domain {
        let found =
            format!("{shown} issues certificates of the role {} of {}", signer.role(), signer.trust_domain());
        report.fail(CHECK, found, format!("use one for the role agent of {domain}: tombolo ca intermediate"));
        return;
    }
    certificate::dates(report, CHECK, &shown.to_string(), signer.certificates(), now);
    let Some(roots) = agent_roots else { return };
    match tried(&signer, roots) {
        Ok(()) => report.ok(CHECK, format!("{shown} opens, and its certificates lead to tunnel.agentCAFile")),
        Err(found) => {
            let advice = "use the intermediate of the agents' root in tunnel.agentCAFile, or name its root there as well";
            report.fail(CHECK, format!("an agent that {shown} enrolls would be refused ({found})"), advice);
        }
    }
}

/// Tries the signer out by the roots of the tunnel listener.
fn tried(signer: &Intermediate, roots: Vec<CertificateDer<'static>>) -> Result<(), String> {
    let shown = |error: &(dyn std::error::Error + 'static)| daemon::error_chain(error).to_string();
    let roots = SharedRoots::new(roots).map_err(|error| shown(&error))?;
    roots.try_signer(signer).map_err(|error| shown(&error))
}

/// Checks the bundle by which agents that enroll know the servers.
fn trust_bundle(config: &RawServerConfig, base: &Path, domain: &str, report: &mut Report) {
    const CHECK: Check = Check::TrustBundle;
    let Some(path) = &config.trust.bundle_file else {
        let advice = "name the trust.bundle that `tombolo ca init` wrote, by which agents know servers";
        report.fail(CHECK, "trust.bundleFile is not set, which enrollment needs", advice);
        return;
    };
    let path = base.join(path);
    let bytes = match files::read_bytes(&path) {
        Ok(bytes) => bytes,
        Err(error) => {
            report.fail_by(CHECK, &error);
            return;
        }
    };
    let shown = path.display();
    let refused =
        domain.parse().map_err(|_| "trustDomain is no trust domain".to_owned()).and_then(|domain| {
            // As the server does: by the bundle's own roots, so that a mistake shows here and not at every site.
            let roots = TrustBundle::decode_unverified(&bytes).map_err(|error| error.to_string())?;
            let roots = roots.roots(Role::Server).to_vec();
            Anchors::new(domain)
                .and_roots(&roots)
                .accept(&bytes, None)
                .map(drop)
                .map_err(|error| error.to_string())
        });
    match refused {
        Ok(()) => report.ok(CHECK, format!("{shown} is a trust bundle of {domain}")),
        Err(found) => {
            report.fail(
                CHECK,
                format!("{shown} cannot be used ({found})"),
                "use the one that `tombolo ca` wrote last",
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use trust::Root;

    use super::*;

    #[test]
    fn a_signer_of_another_root_is_found_by_a_certificate_that_it_issues() {
        let now = SystemTime::now();
        let root = || Root::generate(Role::Agent, "tombolo".parse().unwrap(), now).unwrap();
        let (own, other) = (root(), root());
        let signer = own.intermediate(now).unwrap();
        let roots = |root: &Root| vec![root.certificate().clone()];

        tried(&signer, roots(&own)).unwrap();
        let found = tried(&signer, roots(&other)).unwrap_err();
        // The roots have one name, so the issuer is known by name and not by signature.
        assert!(found.contains("invalid peer certificate"), "{found}");
    }
}
