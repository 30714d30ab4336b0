//! A tenant of the host cluster, made and asked as a person does it: by `tombolo tenant`, real helm and real kubectl.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use daemon::Scope;
use etcd::{Client, Endpoint, KeyRange};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::sync::watch;

use super::{HostCluster, HostNode, KUBECTL_MAX, STORAGE_CLASS};
use crate::binaries::binary;
use crate::dial::{config, dial};
use crate::kube::assets;
use crate::kube::kubectl::Kubectl;
use crate::lb_cluster::command::Ended;
use crate::lb_cluster::until;
use crate::pki::Issued;
use crate::process::Invocation;

/// The limit for one command, which waits for all pods. Builds of other tests may run beside.
const COMMAND_MAX: Duration = Duration::from_secs(400);

/// A tenant whose control plane is ready.
#[derive(Debug)]
pub struct Tenant {
    /// The name of the tenant, and of its namespace in the host cluster.
    pub name: String,
    /// A kubectl of the tenant's administrator, beside the host cluster's API server.
    pub admin: Kubectl,
    /// The kubeconfig of the tenant's administrator.
    pub kubeconfig: PathBuf,
    /// The time from the command to a control plane that is ready.
    pub created_in: Duration,
}

impl HostCluster {
    /// Runs `tombolo tenant` with these words as an administrator of the host cluster.
    ///
    /// # Panics
    /// If it does not run, or does not end in time.
    pub async fn tombolo_tenant(&self, words: &[&str]) -> Ended {
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", self.tools().display());
        let program = Invocation::of(binary("tombolo"))
            .arguments(["tenant"].iter().chain(words).copied())
            .variable("PATH", path)
            .variable("KUBECONFIG", self.edge.admin_kubeconfig().display().to_string())
            .variable("HOME", self.edge.directory().join("home").display().to_string())
            .in_network_namespace(Some(self.network.core().path().to_owned()));
        Ended::within(COMMAND_MAX, &program).await
    }

    /// A folder with the helm and the kubectl of a person.
    fn tools(&self) -> PathBuf {
        let folder = self.edge.directory().join("tools");
        if !folder.exists() {
            let helm = assets::helm().expect("it was found at the start");
            let kubectl = assets::Assets::find().expect("it was found at the start").kubectl;
            fs::create_dir(&folder).expect("a folder");
            for (program, name) in [(helm, "helm"), (kubectl, "kubectl")] {
                std::os::unix::fs::symlink(program, folder.join(name)).expect("a link");
            }
        }
        folder
    }

    /// The files of a Secret of the host cluster.
    ///
    /// # Panics
    /// If there is none.
    pub async fn secret(&self, namespace: &str, name: &str) -> BTreeMap<String, String> {
        let words = ["get", "secret", name, "--namespace", namespace, "--output=json"];
        let secret: Value = serde_json::from_str(&self.admin.stdout(&words).await).expect("JSON");
        let data = secret["data"].as_object().into_iter().flatten();
        let decoded = data.map(|(file, value)| {
            let bytes = STANDARD.decode(value.as_str().unwrap_or_default()).expect("base64");
            (file.clone(), String::from_utf8_lossy(&bytes).into_owned())
        });
        decoded.collect()
    }

    /// The files of all Secrets of a namespace, by their names, without the records of helm.
    ///
    /// # Panics
    /// If the host cluster does not answer.
    pub async fn secret_values(&self, namespace: &str) -> BTreeMap<String, String> {
        let words = ["get", "secrets", "--namespace", namespace, "--output=name"];
        let mut values = BTreeMap::new();
        for name in self.admin.stdout(&words).await.lines() {
            let name = name.trim_start_matches("secret/");
            if name.starts_with("sh.helm.release") {
                continue;
            }
            let files = self.secret(namespace, name).await;
            values.extend(files.into_iter().map(|(file, value)| (format!("{name}/{file}"), value)));
        }
        values
    }
}

impl Tenant {
    /// Makes a tenant, and returns once the command says that it is ready.
    ///
    /// # Panics
    /// With the state of its pods, if the command fails.
    pub async fn create(host: &HostCluster, name: &str, more: &[&str]) -> Self {
        let begun = Instant::now();
        let words = [&["create", name, "--storage-class", STORAGE_CLASS], more].concat();
        let ended = host.tombolo_tenant(&words).await;
        if !ended.is_done {
            let pods = ["get", "pods,pvc", "--namespace", name, "--output=wide"];
            let described = ["describe", "pods", "--namespace", name];
            let (pods, described) = (host.admin.run(&pods).await, host.admin.run(&described).await);
            let text = |output: Result<std::process::Output, _>| match output {
                Ok(output) => String::from_utf8_lossy(&output.stdout).into_owned(),
                Err(error) => format!("{error}"),
            };
            panic!("{}\n{}\n{}", ended.said, text(pods), text(described));
        }
        let created_in = begun.elapsed();
        let kubeconfig = write_kubeconfig(host, name).await;
        let admin = host.admin.clone().with_kubeconfig(&kubeconfig);
        let admin = admin.with_home(host.edge.directory().join(format!("{name}-home")));
        Self { name: name.to_owned(), admin, kubeconfig, created_in }
    }

    /// Writes the kubeconfig of its administrator again, with the CAs and the certificates of now.
    ///
    /// # Panics
    /// If the command fails.
    pub async fn renew_kubeconfig(&self, host: &HostCluster) {
        write_kubeconfig(host, &self.name).await;
    }

    /// The addresses of its API servers.
    ///
    /// # Panics
    /// If its Service is not there.
    pub async fn api_servers(&self, host: &HostCluster) -> Vec<SocketAddr> {
        let port = self.port(host).await;
        host.nodes.iter().map(|node| SocketAddr::new(node.machine.address.into(), port)).collect()
    }

    /// The first of the tenant's ports on each node, which is that of its API servers.
    ///
    /// # Panics
    /// If its Service is not there.
    pub async fn port(&self, host: &HostCluster) -> u16 {
        let words = ["get", "service", "apiserver", "--namespace", &self.name];
        let words = [words.as_slice(), &["--output=jsonpath={.spec.ports[0].port}"]].concat();
        host.admin.stdout(&words).await.parse().expect("a port")
    }

    /// The line by which a machine joins, as `tombolo tenant join-command` prints it.
    ///
    /// # Panics
    /// If that fails.
    pub async fn join_line(&self, host: &HostCluster) -> String {
        let printed = host.tombolo_tenant(&["join-command", &self.name]).await;
        assert!(printed.is_done, "{}", printed.said);
        printed.out.trim().to_owned()
    }

    /// The CA and the client certificate in the kubeconfig of the tenant's administrator.
    ///
    /// # Panics
    /// If one of them is missing.
    pub async fn administrator(&self) -> (String, Issued) {
        let words = ["config", "view", "--raw", "--minify", "--output=json"];
        let config: Value = serde_json::from_str(&self.admin.stdout(&words).await).expect("JSON");
        let pem = |value: &Value| {
            let text = value.as_str().unwrap_or_else(|| panic!("not there: {config}"));
            String::from_utf8(STANDARD.decode(text).expect("base64")).expect("PEM")
        };
        let user = &config["users"][0]["user"];
        let certificate_pem = pem(&user["client-certificate-data"]);
        let identity = Issued { certificate_pem, key_pem: pem(&user["client-key-data"]) };
        (pem(&config["clusters"][0]["cluster"]["certificate-authority-data"]), identity)
    }

    /// All keys of one of its etcds, `etcd-data` or `etcd-event`, read as an API server does.
    ///
    /// # Panics
    /// If etcd does not answer.
    pub async fn etcd_keys(&self, host: &HostCluster, etcd: &str) -> Vec<String> {
        let words = ["get", "services", "--namespace", &self.name, "--output=json"];
        let services: Value = serde_json::from_str(&host.admin.stdout(&words).await).expect("JSON");
        let members = services["items"].as_array().into_iter().flatten().filter(|service| {
            service["metadata"]["name"].as_str().is_some_and(|name| name.starts_with(&format!("{etcd}-")))
        });
        let endpoints: Vec<Endpoint> = members
            .map(|service| {
                let (address, port) = (&service["spec"]["clusterIP"], &service["spec"]["ports"][0]["port"]);
                let url = format!("https://{}:{port}", address.as_str().expect("an address"));
                url.parse().expect("an endpoint")
            })
            .collect();
        let files = host.secret(&self.name, "apiserver").await;
        let identity = Issued {
            certificate_pem: files["etcd-client.crt"].clone(),
            key_pem: files["etcd-client.key"].clone(),
        };
        let mut tls = config(&files["etcd-ca.crt"], Some(&identity)).expect("certificates");
        tls.alpn_protocols = vec![b"h2".to_vec()];
        let listed = async move {
            let (_, tls) = watch::channel(Arc::new(tls));
            let client = Client::new(endpoints, Some(tls), Scope::here());
            client.list(&KeyRange::prefix(""), None).await
        };
        let listing = host.nodes[0].inside.run(listed).await.expect("etcd answers");
        listing.entries.iter().map(|entry| String::from_utf8_lossy(&entry.key).into_owned()).collect()
    }

    /// The times that containers of these pods have started again, by the pods' names and ids.
    ///
    /// # Panics
    /// If the host cluster does not answer.
    pub async fn restarts(&self, host: &HostCluster, app: &str) -> BTreeMap<String, u64> {
        let selector = format!("--selector=app.kubernetes.io/name={app}");
        let words = ["get", "pods", "--namespace", &self.name, &selector, "--output=json"];
        let pods: Value = serde_json::from_str(&host.admin.stdout(&words).await).expect("JSON");
        let pods = pods["items"].as_array().into_iter().flatten();
        let restarts = pods.map(|pod| {
            let [name, id] = ["name", "uid"].map(|key| pod["metadata"][key].as_str().unwrap_or_default());
            let count = pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
            (format!("{name} {id}"), count.unwrap_or_default())
        });
        restarts.collect()
    }

    /// The HTTP status of `/readyz` with all its checks, of the API server on a node. Nothing if it does not answer.
    pub async fn readyz(&self, host: &HostCluster, node: &HostNode) -> Option<String> {
        let (ca_pem, identity) = self.administrator().await;
        let to = (node.machine.address.into(), self.port(host).await);
        status_of(host, to, "/readyz", &ca_pem, identity).await.ok()
    }

    /// Ends all members of the etcd of events, and waits until every API server misses it.
    ///
    /// # Panics
    /// If one of them still has it after [`KUBECTL_MAX`].
    pub async fn lose_events(&self, host: &HostCluster) {
        host.admin
            .stdout(&["scale", "statefulset/etcd-event", "--namespace", &self.name, "--replicas=0"])
            .await;
        until("every API server misses the etcd of events", KUBECTL_MAX, async || {
            for node in &host.nodes {
                if self.readyz(host, node).await? == "200" {
                    return None;
                }
            }
            Some(())
        })
        .await;
    }

    /// Gives the tenant a Node without a machine, onto which its scheduler puts pods that tolerate everything.
    ///
    /// # Panics
    /// If the tenant refuses it.
    pub async fn add_paper_node(&self) {
        let node = json!({ "apiVersion": "v1", "kind": "Node", "metadata": { "name": "paper" } });
        self.apply("paper-node", &node).await;
        let size = json!({ "cpu": "64", "memory": "64Gi", "pods": "500" });
        let ready =
            json!({ "type": "Ready", "status": "True", "reason": "Paper", "message": "it is of paper" });
        let status = json!({ "status": { "capacity": size, "allocatable": size, "conditions": [ready] } });
        let words = ["patch", "node", "paper", "--subresource=status", "--patch", &status.to_string()];
        self.admin.stdout(&words).await;
    }

    /// Makes a pod by way of a Deployment, and waits until the scheduler has put it on the Node of paper. So the
    /// controller-manager, the scheduler and both their ways to the API servers work.
    ///
    /// # Panics
    /// If it is not scheduled within [`KUBECTL_MAX`].
    pub async fn schedules(&self, name: &str) {
        let labels = json!({ "app": name });
        let deployment = json!({
            "apiVersion": "apps/v1", "kind": "Deployment", "metadata": { "name": name },
            "spec": { "selector": { "matchLabels": labels }, "template": {
                "metadata": { "labels": labels },
                "spec": { "tolerations": [{ "operator": "Exists" }], "containers": [{ "name": "none", "image": "none" }] },
            } },
        });
        self.apply(name, &deployment).await;
        let selector = format!("--selector=app={name}");
        let words = ["get", "pods", &selector, "--output=jsonpath={.items[*].spec.nodeName}"];
        let what = format!("{}: the pod of {name} is scheduled", self.name);
        until(&what, KUBECTL_MAX, async || {
            let output = self.admin.run(&words).await.ok()?;
            (output.stdout == b"paper").then_some(())
        })
        .await;
    }

    /// Applies an object in the tenant.
    ///
    /// # Panics
    /// If the tenant refuses it.
    pub async fn apply(&self, name: &str, object: &Value) {
        let file = tempfile::Builder::new().prefix(name).suffix(".json").tempfile().expect("a file");
        fs::write(file.path(), object.to_string()).expect("a file");
        self.admin.stdout(&["apply", "-f", &file.path().display().to_string()]).await;
    }
}

/// The kubeconfig of a tenant's administrator, in a file that is there for as long as the host cluster.
async fn write_kubeconfig(host: &HostCluster, name: &str) -> PathBuf {
    let printed = host.tombolo_tenant(&["kubeconfig", name]).await;
    assert!(printed.is_done, "{}", printed.said);
    let kubeconfig = host.edge.directory().join(format!("{name}.conf"));
    fs::write(&kubeconfig, &printed.out).expect("a file");
    kubeconfig
}

/// The HTTP status that an API server at this address gives to a certificate.
///
/// # Panics
/// If it cannot be asked.
pub async fn status_for(host: &HostCluster, to: (IpAddr, u16), ca_pem: &str, identity: Issued) -> String {
    status_of(host, to, "/api/v1/namespaces", ca_pem, identity).await.expect("an answer")
}

async fn status_of(
    host: &HostCluster,
    (address, port): (IpAddr, u16),
    path: &str,
    ca_pem: &str,
    identity: Issued,
) -> io::Result<String> {
    let (ca_pem, path) = (ca_pem.to_owned(), path.to_owned());
    let asked = async move {
        let address = SocketAddr::new(address, port);
        let mut tls = dial(address, &ca_pem, &["http/1.1"], Some(&identity)).await?;
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        tls.write_all(request.as_bytes()).await?;
        let mut answer = String::new();
        tls.read_to_string(&mut answer).await?;
        io::Result::Ok(answer)
    };
    let answer = host.nodes[0].inside.run(asked).await?;
    Ok(answer.split(' ').nth(1).unwrap_or_default().to_owned())
}
