//! The limits that keep an exchange from beginning, with their messages and names.

/// The limit that keeps an exchange from beginning. Not one byte of it has reached a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LimitExceeded {
    /// Failed logins from one source address.
    #[error(
        "more than {0} logins have failed from your address within a minute, so that only client certificates and tokens that \
         were good before are looked at: try again in a minute"
    )]
    SourceFailures(u32),
    /// All exchanges of one caller.
    #[error(
        "you have {0} requests running here, which is the most for one caller: end some, or try again in a second"
    )]
    CallerExchanges(usize),
    /// Requests of one caller that end by themselves.
    #[error(
        "one caller may have {0} requests under way, over all servers: ask fewer at once, or try again in a second"
    )]
    CallerRequests(usize),
    /// The request rate of one caller.
    #[error("one caller may ask {0} times a second, over all servers: try again in a second")]
    CallerRate(u32),
    /// Long-running requests of one caller to one cluster.
    #[error(
        "one caller may have {0} watches and logs of a cluster open, over all servers: end some, or ask the operator of this \
         server for more"
    )]
    CallerWatches(usize),
    /// Upgraded connections of one caller.
    #[error(
        "one caller may have {0} shells and forwarded ports open, over all servers: end some, or ask the operator of this \
         server for more"
    )]
    CallerUpgrades(usize),
    /// Connections of one caller with a certificate to the gateway.
    #[error(
        "one caller may have {0} connections, over all servers: close some, or ask the operator of this server for more \
         (limits.caller.connections)"
    )]
    CallerConnections(usize),
    /// Reads of cluster sets of one caller.
    #[error("one caller may read {0} cluster sets at once: ask fewer, or try again in a second")]
    CallerSetReads(usize),
    /// Watches of the list of clusters of one caller.
    #[error("one caller may have {0} watches of the list of clusters: end some, or try again in a second")]
    CallerListWatches(usize),
    /// Watches of the list of clusters of all callers.
    #[error("this server has {0} watches of the list of clusters, which is the most: try again in a second")]
    ListWatches(usize),
    /// Long-running requests of all callers to one cluster.
    #[error("this cluster has {0} watches and logs open, which is the most: try again in a second")]
    ClusterWatches(usize),
    /// Connections of one egress entry point.
    #[error(
        "this entry point has {0} connections, which is the most: the operator can raise `connections` of its \
         entry under egress"
    )]
    EgressConnections(usize),
    /// Connections of the TLS passthrough.
    #[error(
        "TLS passthrough has {0} connections, which is the most: `connections` under passthrough can raise it"
    )]
    PassthroughConnections(usize),
    /// Connections of the TLS passthrough from one source.
    #[error(
        "its source has {0} connections, which is the most: `connectionsPerSource` under passthrough can raise it"
    )]
    PassthroughSource(usize),
    /// Connections of one entry point under `vip`.
    #[error(
        "this entry point has {0} connections, which is the most: `connections` of its entry under vip can raise it"
    )]
    VipConnections(usize),
    /// Connections of one entry point under `vip` from one source.
    #[error(
        "its source has {0} connections, which is the most: `connectionsPerSource` of its entry under vip can raise it"
    )]
    VipSource(usize),
    /// Upgraded connections of all callers to one cluster.
    #[error("this cluster has {0} shells and forwarded ports open, which is the most: try again in a second")]
    ClusterUpgrades(usize),
    /// Positions in a cluster's queue of waiting requests.
    #[error(
        "this cluster is busy, and too many requests wait for it, yours among them: try again in a second"
    )]
    ClusterQueue,
    /// Seats of a cluster, that is, requests that it serves at once.
    #[error(
        "this cluster serves {0} requests at once, at most two thirds of them of one caller, and no seat became free for you in time: \
         try again in a second"
    )]
    ClusterRequests(usize),
}

/// Defines each limit's name in metrics and its cause in refusals in one table, which also yields the list of
/// names.
macro_rules! limit_facts {
    ($($limit:pat => $name:literal, $cause:literal;)+) => {
        impl LimitExceeded {
            /// The names of all limits, as values of the label `limit`.
            pub const NAMES: &'static [&'static str] = &[$($name),+];

            /// The name of the limit in metrics.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self {
                    $($limit => $name,)+
                }
            }

            /// The cause of the refusal, for programs.
            #[must_use]
            pub fn cause(self) -> &'static str {
                match self {
                    $($limit => $cause,)+
                }
            }
        }
    };
}

limit_facts! {
    Self::SourceFailures(_) => "source_failures", "TooManyFailedLogins";
    Self::CallerExchanges(_) => "caller_exchanges", "CallerBusy";
    Self::CallerRequests(_) => "caller_requests", "CallerBusy";
    Self::CallerRate(_) => "caller_rate", "CallerTooFast";
    Self::CallerWatches(_) => "caller_watches", "CallerBusy";
    Self::CallerUpgrades(_) => "caller_upgrades", "CallerBusy";
    Self::CallerConnections(_) => "caller_connections", "CallerBusy";
    Self::CallerSetReads(_) => "caller_set_reads", "CallerBusy";
    Self::CallerListWatches(_) => "caller_list_watches", "CallerBusy";
    Self::ListWatches(_) => "list_watches", "GatewayBusy";
    Self::EgressConnections(_) => "egress_connections", "CallerBusy";
    Self::PassthroughConnections(_) => "passthrough_connections", "CallerBusy";
    Self::PassthroughSource(_) => "passthrough_source", "CallerBusy";
    Self::VipConnections(_) => "vip_connections", "CallerBusy";
    Self::VipSource(_) => "vip_source", "CallerBusy";
    Self::ClusterWatches(_) => "cluster_watches", "ClusterFull";
    Self::ClusterUpgrades(_) => "cluster_upgrades", "ClusterFull";
    Self::ClusterQueue => "cluster_queue", "ClusterFull";
    Self::ClusterRequests(_) => "cluster_requests", "ClusterFull";
}
