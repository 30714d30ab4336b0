//! Certificates, CAs and releases of a tenant are replaced while callers are at work, and no request fails.

mod replaced;
mod rotation;
mod site;
mod taken_over;

use std::collections::BTreeSet;

use serde_json::Value;
use tests::host_cluster::HostCluster;
use tests::host_cluster::tenant::Tenant;
use tests::kube::assets::pinned_kubernetes;
use tests::skip::skip;

use self::replaced::{ControlPlane, replaced_everywhere};
use self::site::Site;

/// The name of the tenant.
const TENANT: &str = "tenant-a";

/// The release before the pinned one, which has as many letters.
fn release_before() -> String {
    let pinned = pinned_kubernetes();
    let (minor, patch) = pinned.rsplit_once('.').expect("three numbers");
    let patch: u32 = patch.parse().expect("a number");
    format!("{minor}.{}", patch.checked_sub(1).expect("a pinned release with one before it"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "soak: all pods of a control plane are replaced three times, five minutes"]
async fn a_renewal_and_an_upgrade_fail_no_request() {
    const NAME: &str = "a_renewal_and_an_upgrade_fail_no_request";
    let before = release_before();
    let mut host = match HostCluster::start_with_releases(&[&before]).await {
        Ok(host) => host,
        Err(error) => return skip(NAME, &error.to_string()),
    };
    host.label_nodes().await;
    let tenant = Tenant::create(&host, TENANT, &["--kubernetes-version", &before]).await;
    tenant.add_paper_node().await;
    let site = Site::start(&mut host, &tenant).await;

    everything_is_renewed(&host, &tenant, &site).await;
    tenant.schedules("renewed").await;

    let refused = ["v1.36.1", "v1.38.0"]
        .map(|version| (version, if version < before.as_str() { "downgrades" } else { "left out" }));
    for (version, reason) in refused {
        let ended = host.tombolo_tenant(&["upgrade", TENANT, "--kubernetes-version", version]).await;
        assert!(!ended.is_done && ended.said.contains(reason), "{version}: {}", ended.said);
    }
    everything_is_upgraded(&host, &tenant, &site).await;
    tenant.schedules("upgraded").await;
}

/// Every certificate that a port shows or a client has is another one afterwards, and every process has started since.
async fn everything_is_renewed(host: &HostCluster, tenant: &Tenant, site: &Site) {
    let before = ControlPlane::read(host, tenant).await;
    let callers = site.callers(tenant).await;

    let ended = host.tombolo_tenant(&["certificates", "renew", TENANT]).await;

    assert!(ended.is_done, "{}", ended.said);
    site.no_request_failed("renew", callers).await;
    replaced_everywhere(&before, &ControlPlane::read(host, tenant).await);
}

/// The API servers have the next release before the first one of the other parts has it.
async fn everything_is_upgraded(host: &HostCluster, tenant: &Tenant, site: &Site) {
    let callers = site.callers(tenant).await;

    let ended = host.tombolo_tenant(&["upgrade", TENANT, "--kubernetes-version", pinned_kubernetes()]).await;

    assert!(ended.is_done, "{}", ended.said);
    site.no_request_failed("upgrade", callers).await;
    let version = tenant.admin.stdout(&["version", "--output=json"]).await;
    let version: Value = serde_json::from_str(&version).expect("JSON");
    assert_eq!(version["serverVersion"]["gitVersion"], pinned_kubernetes());
    let of_joining = ["get", "configmap", "kubeadm-config", "--namespace", "kube-system", "--output=yaml"];
    assert!(tenant.admin.stdout(&of_joining).await.contains(pinned_kubernetes()));
    let pods = ["get", "pods", "--namespace", TENANT, "--output=json"];
    let pods: Value = serde_json::from_str(&host.admin.stdout(&pods).await).expect("JSON");
    let made = |app: &str| -> BTreeSet<(String, String)> {
        let pods = pods["items"].as_array().into_iter().flatten();
        let own = pods.filter(|pod| pod["metadata"]["labels"]["app.kubernetes.io/name"] == app);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        own.map(|pod| {
            (text(&pod["metadata"]["creationTimestamp"]), text(&pod["spec"]["containers"][0]["image"]))
        })
        .collect()
    };
    let api_servers = made("apiserver");
    let others: BTreeSet<_> = made("controller-manager").union(&made("scheduler")).cloned().collect();
    for (_, image) in api_servers.union(&others) {
        assert!(image.ends_with(pinned_kubernetes()), "{image}");
    }
    let (last, first) = (api_servers.last().expect("API servers"), others.first().expect("others"));
    assert!(last.0 <= first.0, "{last:?} before {first:?}");
}
