//! What the registry lists, as the schema says it.

use std::time::SystemTime;

use prost_types::Timestamp;
use proto::admin;
use proto::session::Health;

use crate::directory::Cluster;
use crate::registry::{Listed, ListedTunnel};

/// A cluster, as it is now.
pub(super) fn cluster(listed: &Listed) -> admin::Cluster {
    admin::Cluster {
        name: listed.cluster.to_string(),
        connected: listed.is_reachable(),
        last_seen: listed.last_seen.map(whole_seconds),
        tunnels: listed.tunnels.iter().map(tunnel).collect(),
        description: Some(description(&listed.record)),
        created: listed.record.created.time().map(whole_seconds),
    }
}

/// A point in time as the directory keeps it, so that a restart does not change it.
pub(super) fn whole_seconds(time: SystemTime) -> Timestamp {
    Timestamp { nanos: 0, ..Timestamp::from(time) }
}

fn description(record: &Cluster) -> admin::Description {
    admin::Description {
        labels: record.labels.clone().into_iter().collect(),
        networks: record.networks.clone(),
        advertise: record.advertise.clone(),
    }
}

fn tunnel(listed: &ListedTunnel) -> admin::Tunnel {
    let link = listed.link();
    admin::Tunnel {
        agent: listed.agent.instance().to_owned(),
        carrier: listed.carrier.as_str().to_owned(),
        address: listed.address.to_string(),
        health: health(listed.health).into(),
        draining: listed.draining,
        since: Some(whole_seconds(listed.since)),
        endpoints: listed.endpoints.clone(),
        home: u32::try_from(listed.home.number()).unwrap_or(u32::MAX),
        measurements: Some(admin::Measurements {
            round_trip: link.round_trip.try_into().ok(),
            packets_sent: link.packets_sent,
            packets_lost: link.packets_lost,
            streams_open: listed.streams_open,
        }),
    }
}

fn health(health: Health) -> admin::Health {
    match health {
        Health::Live => admin::Health::Live,
        Health::Suspect => admin::Health::Suspect,
        Health::Lost => admin::Health::Lost,
    }
}
