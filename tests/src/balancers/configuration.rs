//! The configuration files of balancers. All allow as many callers as node-lb does.

use std::path::Path;

use super::{BalancerKind, BalancerOptions, NGINX_STREAM};

/// Most connections of callers, as node-lb's own limit.
const CALLERS_MAX: usize = 4096;

/// The text of the configuration file.
pub(super) fn configuration(kind: BalancerKind, options: &BalancerOptions<'_>, home: &Path) -> String {
    match kind {
        BalancerKind::NodeLb => node_lb(options),
        // One check that fails is enough, and its connections end at once. No haproxy notices earlier.
        BalancerKind::HaproxyQuick => haproxy(options, "inter 500ms fall 1 rise 1 "),
        BalancerKind::HaproxyDefault => haproxy(options, ""),
        BalancerKind::Nginx => nginx(options, home),
    }
}

fn node_lb(options: &BalancerOptions<'_>) -> String {
    let seeds: Vec<String> = options.api_servers.iter().map(|seed| format!("\"{seed}\"")).collect();
    let credential = if options.kubelet.is_some() { "clientCertificateFile: kubelet.pem\n" } else { "" };
    format!(
        "apiVersion: tombolo.dev/v1alpha1\nkind: NodeLBConfig\napiServers: [{}]\ncaFile: ca.crt\n{credential}\
         listen: [\"127.0.0.1:{}\"]\nprobes: {{ listen: \"127.0.0.1:{}\" }}\nstateDir: state\n",
        seeds.join(", "),
        options.port,
        options.probes_port
    )
}

fn haproxy(options: &BalancerOptions<'_>, times: &str) -> String {
    let servers: String = options
        .api_servers
        .iter()
        .enumerate()
        .map(|(number, address)| format!("    server api-server-{number} {address}\n"))
        .collect();
    format!(
        "global\n    maxconn {CALLERS_MAX}\n\
         defaults\n    mode tcp\n    timeout connect 5s\n    timeout client 10m\n    timeout server 10m\n\
         frontend callers\n    bind 127.0.0.1:{}\n    default_backend api-servers\n\
         backend api-servers\n    balance leastconn\n    option httpchk GET /readyz\n    http-check expect status 200\n\
         \x20   default-server check check-ssl verify none {times}on-marked-down shutdown-sessions\n{servers}",
        options.port
    )
}

/// As Kubespray writes it, with two workers as the machine has cores.
fn nginx(options: &BalancerOptions<'_>, home: &Path) -> String {
    let servers: String =
        options.api_servers.iter().map(|address| format!("        server {address};\n")).collect();
    format!(
        "load_module {NGINX_STREAM};\ndaemon off;\npid {}/nginx.pid;\nerror_log stderr warn;\n\
         worker_processes 2;\nworker_rlimit_nofile 16384;\nevents {{ multi_accept on; worker_connections {CALLERS_MAX}; }}\n\
         stream {{\n    upstream api_servers {{\n        least_conn;\n{servers}    }}\n\
         \x20   server {{\n        listen 127.0.0.1:{};\n        proxy_pass api_servers;\n        proxy_timeout 10m;\n\
         \x20       proxy_connect_timeout 1s;\n    }}\n}}\n",
        home.display(),
        options.port
    )
}
