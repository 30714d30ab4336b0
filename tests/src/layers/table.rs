//! The layer table: crates and modules in layers, and the names that only some of them may use.
//!
//! A path may point down or stay in its module: never up, and never sideways to another module of the same
//! layer.

/// Layers of crates from the top down. A crate may depend on crates of lower layers only.
pub const CRATES: &[Layer] = &[
    // Measurements use the edge clusters of the tests, and not the other way round.
    Layer { name: "trials", members: &[built("loadtest")] },
    Layer { name: "tests", members: &[built("tests")] },
    // Reads cargo's own description of the workspace, and nothing of its code.
    Layer { name: "releases", members: &[built("sbom")] },
    // Knows nothing of the project: TCP, QUIC and a peer's programs suffer the same link.
    Layer { name: "faults", members: &[built("linksim")] },
    Layer {
        name: "programs",
        members: &[
            built("tunnel-server"),
            built("tunnel-agent"),
            built("node-lb"),
            built("fleet"),
            built("cli"),
        ],
    },
    // Its connections are tasks of a scope, as all others.
    Layer { name: "database client", members: &[built("etcd")] },
    Layer {
        name: "libraries",
        members: &[
            built("daemon"),
            built("transport"),
            built("audit"),
            built("policy"),
            built("summary"),
            built("records"),
            built("api-servers"),
        ],
    },
    Layer { name: "trust", members: &[built("trust")] },
    Layer { name: "protocol", members: &[built("proto")] },
    Layer { name: "system calls", members: &[built("sys")] },
    // Tests of every crate use it, and it knows none of them.
    Layer { name: "reference", members: &[built("reference")] },
];

/// The crates whose top-level modules form layers.
pub const LAYERED_CRATES: &[LayeredCrate] = &[
    LayeredCrate {
        krate: "tunnel-server",
        layers: &[
            Layer { name: "application", members: &[built("app")] },
            Layer {
                name: "entry points",
                members: &[
                    built("gateway"),
                    built("agents"),
                    built("enrollment"),
                    built("admin"),
                    built("peering"),
                    built("proxy"),
                    built("passthrough"),
                    built("vip"),
                ],
            },
            // Several entry points dial, and ask clusters, in the same way.
            Layer { name: "dialing", members: &[built("dialing"), built("forwarding")] },
            // Above routing, because it asks authorization about exchanges that run.
            Layer { name: "exchanges", members: &[built("exchanges")] },
            Layer {
                name: "routing",
                members: &[built("registry"), built("authz"), built("impersonation"), built("limits")],
            },
            Layer {
                name: "foundation",
                members: &[
                    built("identity"),
                    built("config"),
                    built("metrics"),
                    built("directory"),
                    built("listener"),
                    built("clocks"),
                ],
            },
        ],
    },
    LayeredCrate {
        krate: "tunnel-agent",
        layers: &[
            Layer { name: "application", members: &[built("app")] },
            Layer { name: "tunnels", members: &[built("dialer")] },
            Layer { name: "streams", members: &[built("streams")] },
            Layer {
                name: "requests",
                members: &[built("forward"), built("relay"), built("discovery"), built("enrollment")],
            },
            Layer {
                name: "API server and identity",
                members: &[built("guard"), built("apiserver"), built("identity"), built("server_trust")],
            },
            Layer {
                name: "foundation",
                members: &[built("config"), built("metrics"), built("pipe"), built("random"), built("clock")],
            },
        ],
    },
    LayeredCrate {
        krate: "node-lb",
        layers: &[
            Layer { name: "application", members: &[built("app")] },
            // Callers are served without knowing how API servers are found.
            Layer { name: "callers and sources", members: &[built("relay"), built("discovery")] },
            Layer { name: "probes", members: &[built("probing"), built("metrics")] },
            Layer { name: "API servers in use", members: &[built("http_client"), built("balancer")] },
            Layer { name: "files", members: &[built("tls")] },
            Layer { name: "configuration", members: &[built("config")] },
            Layer {
                name: "foundation",
                members: &[built("members"), built("random"), built("copy"), built("pods")],
            },
            Layer {
                name: "the kernel and other processes",
                members: &[built("netlink"), built("handover"), built("systemd")],
            },
        ],
    },
];

/// The modules that a `main.rs` may name.
pub const NAMED_BY_MAIN: &[&str] = &["app", "config"];

/// The crates whose folder does not lie at the top under their name.
pub const ELSEWHERE: &[(&str, &str)] = &[("linksim", "tests/linksim"), ("reference", "tests/reference")];

/// The folders of crates without layers: no circle between their top-level modules is enough.
pub const WITHOUT_CIRCLES: &[&str] = &[
    "sys",
    "proto",
    "policy",
    "summary",
    "trust",
    "transport",
    "daemon",
    "audit",
    "etcd",
    "records",
    "api-servers",
    "fleet",
    "cli",
    "tests/linksim",
    "tests/reference",
    "sbom",
];

/// The crates that are shipped to users. People's command is the last one.
pub const PRODUCTS: &[&str] = &[
    "sys",
    "proto",
    "policy",
    "summary",
    "trust",
    "transport",
    "daemon",
    "audit",
    "etcd",
    "records",
    "api-servers",
    "tunnel-server",
    "tunnel-agent",
    "node-lb",
    "fleet",
    "cli",
];

/// The crates that are shipped to users without people's command, which may start programs and read a `Status`.
pub const WITHOUT_COMMAND: &[&str] = match PRODUCTS.split_last() {
    Some((_command, others)) => others,
    None => PRODUCTS,
};

/// Dependencies that only some of our crates may name in their `Cargo.toml`.
pub const RESERVED: &[Reserved] = &[
    Reserved { dependency: "libc", crates: &["sys"] },
    Reserved { dependency: "seccompiler", crates: &["sys"] },
    Reserved { dependency: "quinn", crates: &["transport", "loadtest", "tests"] },
    Reserved { dependency: "h2", crates: &["transport", "loadtest", "tests"] },
    Reserved { dependency: "dashmap", crates: &["tunnel-server"] },
    Reserved { dependency: "redb", crates: &["records", "tunnel-server"] },
    Reserved { dependency: "tonic", crates: &["proto", "etcd", "tunnel-server", "cli", "tests"] },
    Reserved { dependency: "tonic-health", crates: &["tunnel-server", "tests"] },
    Reserved { dependency: "kube", crates: &["fleet"] },
    Reserved { dependency: "k8s-openapi", crates: &["fleet"] },
    Reserved { dependency: "kube-lease-manager", crates: &["fleet"] },
    Reserved { dependency: "tonic-reflection", crates: &["tunnel-server", "tests"] },
];

/// Dependencies that a crate of ours must not name in its `Cargo.toml`.
pub const REFUSED: &[Refused] = &[
    Refused { krate: "proto", dependency: "tokio", why: "proto does no I/O" },
    Refused { krate: "proto", dependency: "hyper", why: "proto does no I/O" },
    Refused { krate: "policy", dependency: "tokio", why: "policy does no I/O" },
    Refused { krate: "policy", dependency: "hyper", why: "policy does no I/O" },
    Refused { krate: "summary", dependency: "tokio", why: "summary does no I/O" },
    Refused { krate: "summary", dependency: "hyper", why: "summary does no I/O" },
];

/// Dependencies that must be nowhere in the graph, not even behind another.
pub const BANNED: &[&str] = &["ring", "openssl", "openssl-sys", "native-tls", "rsa"];

/// Paths that only some files of the crates that ship may name.
pub const RESERVED_PATHS: &[ReservedPath] = &[
    ReservedPath {
        path: &["dashmap"],
        crates: PRODUCTS,
        files: &["tunnel-server/src/registry.rs", "tunnel-server/src/registry/"],
        why: "only the registry holds a concurrent map",
    },
    ReservedPath {
        path: &["transport", "Tunnel"],
        crates: &["tunnel-server"],
        files: &[
            "tunnel-server/src/registry.rs",
            "tunnel-server/src/registry/",
            "tunnel-server/src/agents.rs",
            "tunnel-server/src/metrics.rs",
            "tunnel-server/src/peering/",
        ],
        why: "agents and peering have tunnels and sessions, and measure them; everything else goes by a registry::Route",
    },
    ReservedPath {
        path: &["redb"],
        crates: PRODUCTS,
        files: &["tunnel-server/src/directory/store/embedded.rs", "records/src/file.rs"],
        why: "only the store's embedded engine, and what makes its file, name its library",
    },
    ReservedPath {
        path: &["tonic"],
        crates: PRODUCTS,
        files: &[
            "proto/src/admin.rs",
            "tunnel-server/src/admin.rs",
            "tunnel-server/src/admin/",
            "tunnel-server/src/enrollment.rs",
            "tunnel-server/src/enrollment/",
            "tunnel-server/src/exchanges/grpc.rs",
            "cli/src/admin.rs",
            "cli/src/admin/",
            "cli/src/doctor/enrollment/listener.rs",
            "cli/src/node/cri.rs",
            "etcd/src/",
        ],
        why: "only the admin API, enrollment, etcd's client, the container runtime and the audit entry of a gRPC call use gRPC",
    },
    ReservedPath {
        path: &["tokio", "net", "TcpListener"],
        crates: PRODUCTS,
        files: &["daemon/src/listen/guard.rs"],
        why: "one place accepts TCP connections, with limits for each source: GuardedListener",
    },
    ReservedPath {
        path: &["tokio", "net", "TcpSocket"],
        crates: PRODUCTS,
        files: &["daemon/src/listen/guard.rs"],
        why: "a socket that can listen is made in one place: GuardedListener",
    },
    ReservedPath {
        path: &["std", "net", "TcpListener"],
        crates: PRODUCTS,
        files: &["cli/src/doctor/ports.rs"],
        why: "one place accepts TCP connections; the doctor only tries to bind",
    },
    ReservedPath {
        path: &["tokio", "net", "UnixListener"],
        crates: PRODUCTS,
        files: &["tunnel-server/src/listener/unix_socket.rs", "node-lb/src/handover/predecessor.rs"],
        why: "Unix sockets are accepted from a LocalSocket, whose file has an owner, and for a handover to the same user",
    },
    ReservedPath {
        path: &["std", "process", "Command"],
        crates: WITHOUT_COMMAND,
        files: &[],
        why: "products start no other program",
    },
    ReservedPath {
        path: &["tokio", "process"],
        crates: WITHOUT_COMMAND,
        files: &[],
        why: "products start no other program",
    },
];

/// The files that write a Kubernetes `Status`, of all crates in [`WITHOUT_COMMAND`].
pub const STATUS_FILES: &[&str] =
    &["tunnel-server/src/gateway/refusal.rs", "tunnel-server/src/gateway/refusal/"];

/// A crate whose top-level modules form layers.
#[derive(Debug, Clone, Copy)]
pub struct LayeredCrate {
    /// The name of the package, which is that of its folder.
    pub krate: &'static str,
    /// The layers from the top down.
    pub layers: &'static [Layer],
}

/// Modules or crates that do not use each other.
#[derive(Debug, Clone, Copy)]
pub struct Layer {
    /// The name of the layer in messages.
    pub name: &'static str,
    /// The members of the layer, in any order.
    pub members: &'static [Member],
}

/// A top-level module, or a crate.
#[derive(Debug, Clone, Copy)]
pub struct Member {
    /// The name of the module or crate.
    pub name: &'static str,
    /// True if it may be absent until it is built.
    pub planned: bool,
}

/// A dependency that only some crates name.
#[derive(Debug, Clone, Copy)]
pub struct Reserved {
    /// The name of the package.
    pub dependency: &'static str,
    /// The crates of this workspace that may name it.
    pub crates: &'static [&'static str],
}

/// A dependency that a crate must not name.
#[derive(Debug, Clone, Copy)]
pub struct Refused {
    /// The crate of this workspace that must not use it.
    pub krate: &'static str,
    /// The name of the package.
    pub dependency: &'static str,
    /// The reason, for the message.
    pub why: &'static str,
}

/// A path that only some files name.
#[derive(Debug, Clone, Copy)]
pub struct ReservedPath {
    /// The first segments of the path, or its last two where a `use` has shortened it.
    pub path: &'static [&'static str],
    /// The crates whose `src` is searched for the path.
    pub crates: &'static [&'static str],
    /// Files, or folders with a slash at the end, that may name it.
    pub files: &'static [&'static str],
    /// The reason, for the message.
    pub why: &'static str,
}

impl LayeredCrate {
    /// The layer of a module, counted from the top.
    pub fn layer_of(&self, member: &str) -> Option<usize> {
        self.layers.iter().position(|layer| layer.members.iter().any(|known| known.name == member))
    }
}

/// The folder of a crate.
pub fn folder_of(krate: &'static str) -> &'static str {
    ELSEWHERE.iter().find(|(known, _)| *known == krate).map_or(krate, |(_, folder)| folder)
}

/// A module or crate that must exist.
pub const fn built(name: &'static str) -> Member {
    Member { name, planned: false }
}

/// A module or crate that may be absent until it is built. Then it becomes [`built`].
pub const fn planned(name: &'static str) -> Member {
    Member { name, planned: true }
}
