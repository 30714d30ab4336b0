//! Checks the rows of clusters that are connected, partly connected and not connected.

use prost_types::Timestamp;
use proto::admin::{Description, ServedCertificate};

use super::*;

const NOW: u64 = 1_000_000;

#[test]
fn a_row_for_each_cluster_under_a_header_and_columns_that_fit() {
    let clusters = [
        cluster("a", vec![tunnel("x", Health::Live, 12_345, 1_000, 7)]),
        cluster("a-cluster-of-a-long-name", vec![]),
    ];

    let lines = Table::new(Shape::Usual, false).rows(&clusters, now());

    assert_eq!(
        lines,
        [
            "NAME                       HEALTH   TUNNELS   RTT      LOSS     STREAMS   AGE      LAST SEEN",
            "a                          Live     1         12ms     0.7%     2         100s     now",
            "a-cluster-of-a-long-name   Away     0         <none>   <none>   <none>    <none>   3m20s ago",
        ]
    );
}

#[test]
fn wide_has_a_row_for_each_tunnel_and_one_for_a_cluster_without() {
    let mut draining = tunnel("y", Health::Live, 900, 0, 0);
    (draining.draining, draining.endpoints) =
        (true, vec!["10.0.0.1:6443".to_owned(), "11.0.0.1:1".to_owned()]);
    let certificate = |names: [&str; 2], cut| ServedCertificate {
        address: "10.0.0.1:6443".to_owned(),
        names: names.map(str::to_owned).to_vec(),
        cut,
    };
    draining.version = String::new();
    draining.certificates =
        vec![certificate(["kube", "10.0.0.1"], false), certificate(["kube", "edge"], true)];
    let mut a = cluster("a", vec![tunnel("x", Health::Suspect, 5_000, 10, 5), draining]);
    a.description = Some(Description { advertise: vec!["10.0.0.0/8".to_owned()], ..Description::default() });
    a.kubernetes_version = "v1.36.3".to_owned();
    let away = Cluster { kubernetes_version: "v1.35.0".to_owned(), ..cluster("b", vec![]) };
    let clusters = [a, away];

    let lines = Table::new(Shape::Wide, false).rows(&clusters, now());

    assert_eq!(
        lines,
        [
            "NAME   HEALTH     AGENT    VERSION   KUBERNETES   CARRIER   ADDRESS       RTT      LOSS     STREAMS   AGE      HOME     ENDPOINTS                  ACCEPTED        CERTIFICATE              SERVER",
            "a      Suspect    x        0.1.0     v1.36.3      quic      192.0.2.1:9   5.0ms    50%      2         100s     1        <none>                     <none>          <none>                   <none>",
            "a      Draining   y        <none>    v1.36.3      quic      192.0.2.1:9   0.9ms    <none>   2         100s     1        10.0.0.1:6443,11.0.0.1:1   10.0.0.1:6443   kube,10.0.0.1,edge,...   <none>",
            "b      Away       <none>   <none>    v1.35.0      <none>    <none>        <none>   <none>   <none>    <none>   <none>   <none>                     <none>          <none>                   <none>",
        ]
    );
}

#[test]
fn servers_of_tunnels_are_a_column_where_several_share_their_records() {
    let at = |server: &str| Tunnel { server: server.to_owned(), ..tunnel("x", Health::Live, 900, 0, 0) };
    let remote = Tunnel { carrier: String::new(), address: String::new(), ..at("east") };
    let clusters = [cluster("a", vec![at("west"), remote, at("west")]), cluster("b", vec![])];

    let usual = Table::new(Shape::Usual, false).rows(&clusters, now());
    let wide = Table::new(Shape::Wide, false).rows(&clusters, now());

    let last = |lines: &[String]| -> Vec<String> {
        lines.iter().map(|line| line.split("   ").last().unwrap_or_default().trim().to_owned()).collect()
    };
    assert_eq!(last(&usual), ["SERVER", "east,west", "<none>"]);
    assert_eq!(last(&wide), ["SERVER", "west", "east", "west", "<none>"]);
    let cells: Vec<&str> = wide[2].split_whitespace().collect();
    assert_eq!(cells[5..7], ["<none>", "<none>"], "another server does not tell the carrier and the address");
}

#[test]
fn labels_are_the_last_column_of_both_shapes_if_they_are_wanted() {
    let mut labelled =
        cluster("a", vec![tunnel("x", Health::Live, 1, 1, 0), tunnel("y", Health::Live, 1, 1, 0)]);
    let labels = [("stage", "live"), ("region", ""), ("example.com/tier", "1")];
    labelled.description = Some(Description {
        labels: labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into(),
        ..Description::default()
    });
    let clusters = [labelled, cluster("b", vec![])];
    for (shape, rows) in [(Shape::Usual, 1), (Shape::Wide, 2)] {
        let lines = Table::new(shape, true).rows(&clusters, now());

        assert!(lines[0].ends_with("   LABELS"), "{}", lines[0]);
        let (last, shown) = lines[1..].split_last().unwrap();
        assert_eq!(shown.len(), rows);
        for line in shown {
            assert!(line.ends_with("   example.com/tier=1,region=,stage=live"), "{line}");
        }
        assert!(last.starts_with('b') && last.ends_with("   <none>"), "{last}");
    }
}

#[test]
fn a_cluster_is_as_healthy_as_its_best_tunnel() {
    let of = |healths: &[Health]| {
        let tunnels = healths.iter().map(|health| tunnel("x", *health, 1, 1, 0)).collect();
        cluster_health(&cluster("a", tunnels))
    };
    assert_eq!(of(&[Health::Lost, Health::Live]), "Live");
    assert_eq!(of(&[Health::Lost, Health::Suspect]), "Suspect");
    assert_eq!(of(&[Health::Lost]), "Lost");
    assert_eq!(of(&[]), "Away");
}

#[test]
fn later_rows_have_no_header_and_keep_the_columns() {
    let mut table = Table::new(Shape::Usual, false);
    let first = table.rows(&[cluster("a-long-name", vec![])], now());
    let later = table.rows(&[cluster("b", vec![])], now());

    assert_eq!((first.len(), later.len()), (2, 1));
    assert_eq!(later[0].find("Away"), first[1].find("Away"));
}

#[test]
fn ages_are_short() {
    let ages = [
        (0, "0s"),
        (119, "119s"),
        (120, "2m"),
        (121, "2m1s"),
        (600, "10m"),
        (659, "10m"),
        (7_200, "120m"),
        (10_800, "3h"),
        (10_860, "3h1m"),
        (90_000, "25h"),
        (176_400, "2d1h"),
        (691_200, "8d"),
    ];
    for (seconds, age) in ages {
        assert_eq!(ago((NOW - seconds) as i64, now()), age);
    }
    assert_eq!(ago(NOW as i64 + 5, now()), "0s", "a server's clock may be ahead");
}

#[test]
fn losses_are_never_rounded_to_nothing() {
    assert_eq!(
        [loss(0, 0), loss(9, 0), loss(1_000_000, 1), loss(1_000, 1), loss(10, 10)],
        ["<none>", "0%", "<0.1%", "0.1%", "100%"]
    );
}

fn now() -> SystemTime {
    UNIX_EPOCH + Duration::from_secs(NOW)
}

fn cluster(name: &str, tunnels: Vec<Tunnel>) -> Cluster {
    let last_seen = Some(Timestamp { seconds: NOW as i64 - 200, nanos: 0 });
    Cluster {
        name: name.to_owned(),
        connected: !tunnels.is_empty(),
        last_seen,
        tunnels,
        ..Cluster::default()
    }
}

fn tunnel(agent: &str, health: Health, micros: u64, packets_sent: u64, packets_lost: u64) -> Tunnel {
    Tunnel {
        agent: agent.to_owned(),
        version: "0.1.0".to_owned(),
        carrier: "quic".to_owned(),
        address: "192.0.2.1:9".to_owned(),
        health: health.into(),
        since: Some(Timestamp { seconds: NOW as i64 - 100, nanos: 0 }),
        home: 1,
        measurements: Some(Measurements {
            round_trip: Duration::from_micros(micros).try_into().ok(),
            packets_sent,
            packets_lost,
            streams_open: 2,
        }),
        ..Tunnel::default()
    }
}
