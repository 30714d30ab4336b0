//! The table: crates, rooms, floors, and who may touch what. Edit it here and nowhere else.
//!
//! A path may point down or stay in its room: never up, and never sideways to another room of the same floor.

/// Floors of crates from the top down. A crate may depend on crates of lower floors only.
pub const CRATES: &[Floor] = &[
    // What measures the house may stand on what tests it (its edge clusters), not the other way round.
    Floor { name: "trials", rooms: &[built("loadtest")] },
    Floor { name: "tests", rooms: &[built("tests")] },
    // Knows nothing of the house: TCP, QUIC and a peer's programs suffer the same link.
    Floor { name: "faults", rooms: &[built("linksim")] },
    Floor { name: "programs", rooms: &[built("tunnel-server"), built("tunnel-agent"), built("cli")] },
    Floor {
        name: "libraries",
        rooms: &[built("daemon"), built("transport"), built("audit"), built("policy")],
    },
    Floor { name: "trust", rooms: &[built("trust")] },
    Floor { name: "protocol", rooms: &[built("proto")] },
    Floor { name: "bedrock", rooms: &[built("sys")] },
];

/// The houses whose rooms stand on floors.
pub const HOUSES: &[House] = &[
    House {
        krate: "tunnel-server",
        floors: &[
            Floor { name: "roof", rooms: &[built("app")] },
            Floor {
                name: "doors",
                rooms: &[
                    built("gateway"),
                    built("reception"),
                    built("enrollment"),
                    built("admin"),
                    planned("peering"),
                    built("proxy"),
                    built("passthrough"),
                    built("vip"),
                ],
            },
            // What several doors do in the same way.
            Floor { name: "landing", rooms: &[built("dialing")] },
            // Above the hall, because it asks whether what was permitted still is.
            Floor { name: "gallery", rooms: &[built("exchanges")] },
            Floor {
                name: "hall",
                rooms: &[built("registry"), built("permit"), built("assertion"), built("shares")],
            },
            Floor {
                name: "ground",
                rooms: &[
                    built("identity"),
                    built("config"),
                    built("metrics"),
                    built("directory"),
                    built("listener"),
                ],
            },
        ],
    },
    House {
        krate: "tunnel-agent",
        floors: &[
            Floor { name: "roof", rooms: &[built("app")] },
            Floor { name: "tunnels", rooms: &[built("dialer")] },
            Floor { name: "streams", rooms: &[built("streams")] },
            Floor {
                name: "requests",
                rooms: &[built("forward"), built("relay"), built("discovery"), built("enrollment")],
            },
            Floor {
                name: "walls",
                rooms: &[built("guard"), built("apiserver"), built("identity"), built("servers")],
            },
            Floor { name: "ground", rooms: &[built("config"), built("metrics"), built("pipe")] },
        ],
    },
];

/// The rooms that a `main.rs` may name.
pub const NAMED_BY_MAIN: &[&str] = &["app", "config"];

/// The crates whose folder does not lie at the top under their name.
pub const ELSEWHERE: &[(&str, &str)] = &[("linksim", "tests/linksim")];

/// The folders of crates without floors: no circle between their top-level modules is enough.
pub const WITHOUT_CIRCLES: &[&str] =
    &["sys", "proto", "policy", "trust", "transport", "daemon", "audit", "cli", "tests/linksim"];

/// The crates that ship.
pub const PRODUCTS: &[&str] = &[
    "sys",
    "proto",
    "policy",
    "trust",
    "transport",
    "daemon",
    "audit",
    "tunnel-server",
    "tunnel-agent",
    "cli",
];

/// Dependencies that only some of our crates may name in their `Cargo.toml`.
pub const RESERVED: &[Reserved] = &[
    Reserved { dependency: "libc", crates: &["sys"] },
    Reserved { dependency: "seccompiler", crates: &["sys"] },
    Reserved { dependency: "quinn", crates: &["transport", "loadtest", "tests"] },
    Reserved { dependency: "h2", crates: &["transport", "loadtest", "tests"] },
    Reserved { dependency: "dashmap", crates: &["tunnel-server"] },
    Reserved { dependency: "redb", crates: &["tunnel-server"] },
    Reserved { dependency: "tonic", crates: &["proto", "tunnel-server", "cli", "tests"] },
    Reserved { dependency: "tonic-health", crates: &["tunnel-server", "tests"] },
    Reserved { dependency: "tonic-reflection", crates: &["tunnel-server", "tests"] },
];

/// Dependencies that a crate of ours must not name in its `Cargo.toml`.
pub const REFUSED: &[Refused] = &[
    Refused { krate: "proto", dependency: "tokio", why: "proto does no I/O" },
    Refused { krate: "proto", dependency: "hyper", why: "proto does no I/O" },
    Refused { krate: "policy", dependency: "tokio", why: "policy does no I/O" },
    Refused { krate: "policy", dependency: "hyper", why: "policy does no I/O" },
];

/// Dependencies that must be nowhere in the graph, not even behind another.
pub const BANNED: &[&str] = &["ring", "openssl", "openssl-sys", "native-tls", "rsa", "kube", "k8s-openapi"];

/// Paths that only some files of the crates that ship may name.
pub const RESERVED_PATHS: &[ReservedPath] = &[
    ReservedPath {
        path: &["dashmap"],
        crates: PRODUCTS,
        files: &["tunnel-server/src/registry.rs", "tunnel-server/src/registry/"],
        why: "only the registry holds a concurrent map",
    },
    ReservedPath {
        path: &["redb"],
        crates: PRODUCTS,
        files: &["tunnel-server/src/directory/store.rs"],
        why: "another engine joins where the directory's store is, and nowhere else",
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
        ],
        why: "gRPC is the admin API's and the enrollment door's, and the audit log's word for how a call ended; nobody else's",
    },
    ReservedPath {
        path: &["std", "process", "Command"],
        crates: &[
            "proto",
            "policy",
            "trust",
            "transport",
            "daemon",
            "audit",
            "tunnel-server",
            "tunnel-agent",
        ],
        files: &[],
        why: "what ships starts no other program",
    },
    ReservedPath {
        path: &["tokio", "process"],
        crates: &[
            "proto",
            "policy",
            "trust",
            "transport",
            "daemon",
            "audit",
            "tunnel-server",
            "tunnel-agent",
        ],
        files: &[],
        why: "what ships starts no other program",
    },
];

/// Where a Kubernetes `Status` is written.
pub const STATUS_FILES: &[&str] =
    &["tunnel-server/src/gateway/refusal.rs", "tunnel-server/src/gateway/refusal/"];

/// The crates of which only [`STATUS_FILES`] may write a `Status`. People's command may read one.
pub const WITHOUT_STATUS: &[&str] =
    &["proto", "policy", "trust", "transport", "daemon", "tunnel-server", "tunnel-agent"];

/// A crate whose top-level modules are rooms on floors.
#[derive(Debug, Clone, Copy)]
pub struct House {
    /// The name of the package, which is that of its folder.
    pub krate: &'static str,
    /// From the top down.
    pub floors: &'static [Floor],
}

/// Rooms that do not see each other.
#[derive(Debug, Clone, Copy)]
pub struct Floor {
    /// What a message calls it.
    pub name: &'static str,
    /// In no order.
    pub rooms: &'static [Room],
}

/// A top-level module, or a crate.
#[derive(Debug, Clone, Copy)]
pub struct Room {
    /// Its name.
    pub name: &'static str,
    /// Whether it may be absent.
    pub planned: bool,
}

/// A dependency that only some crates name.
#[derive(Debug, Clone, Copy)]
pub struct Reserved {
    /// The name of the package.
    pub dependency: &'static str,
    /// Ours that may name it.
    pub crates: &'static [&'static str],
}

/// A dependency that a crate must not name.
#[derive(Debug, Clone, Copy)]
pub struct Refused {
    /// Ours.
    pub krate: &'static str,
    /// The name of the package.
    pub dependency: &'static str,
    /// For the message.
    pub why: &'static str,
}

/// A path that only some files name.
#[derive(Debug, Clone, Copy)]
pub struct ReservedPath {
    /// How the path begins, or its last two segments where a `use` has shortened it.
    pub path: &'static [&'static str],
    /// The crates in whose `src` it is looked for.
    pub crates: &'static [&'static str],
    /// Files, or folders with a slash at the end, that may name it.
    pub files: &'static [&'static str],
    /// For the message.
    pub why: &'static str,
}

impl House {
    /// Where a room is: its floor, counted from the top.
    pub fn floor_of(&self, room: &str) -> Option<usize> {
        self.floors.iter().position(|floor| floor.rooms.iter().any(|known| known.name == room))
    }
}

/// The folder of a crate.
pub fn folder_of(krate: &'static str) -> &'static str {
    ELSEWHERE.iter().find(|(known, _)| *known == krate).map_or(krate, |(_, folder)| folder)
}

/// A room that must be there.
pub const fn built(name: &'static str) -> Room {
    Room { name, planned: false }
}

/// A room that may be absent until it is built; then it becomes [`built`].
pub const fn planned(name: &'static str) -> Room {
    Room { name, planned: true }
}
