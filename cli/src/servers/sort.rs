//! The order of servers in a list, by a column of the table.

use std::time::Duration;

use proto::admin::Server;
use proto::admin::server::State;

use crate::args::ServerSort;

/// Orders servers by `column`, those without a value last, and equal ones by their IDs.
pub(super) fn sort(servers: &mut [Server], column: ServerSort) {
    servers.sort_by_cached_key(|server| {
        let value = value(server, column);
        (value.is_none(), value, server.id.clone())
    });
}

fn value(server: &Server, column: ServerSort) -> Option<u128> {
    match column {
        ServerSort::Id => Some(0),
        ServerSort::State => Some(place(server.state())),
        ServerSort::Tunnels => server.tunnels.map(u128::from),
        ServerSort::Peers => server.told.as_ref().map(|told| told.peers_connected.into()),
        ServerSort::Freshness => {
            let age = server.told.as_ref()?.records_age?;
            Duration::try_from(age).ok().map(|age| age.as_millis())
        }
        ServerSort::Started => server.started.and_then(|started| u128::try_from(started.seconds).ok()),
    }
}

/// The worst state is the smallest.
fn place(state: State) -> u128 {
    match state {
        State::Unreachable => 0,
        State::Stale => 1,
        State::Behind => 2,
        State::NotReady => 3,
        State::Gone => 4,
        State::Draining => 5,
        State::Silent | State::Unspecified => 6,
        State::Ready => 7,
    }
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum as _;
    use prost_types::Timestamp;
    use proto::admin::ServerFigures;

    use super::*;

    #[test]
    fn servers_are_ordered_by_each_column_and_then_by_id() {
        let server =
            |id: &str, state: State| Server { id: id.to_owned(), state: state.into(), ..Server::default() };
        let told = |peers_connected, millis| {
            let records_age = Duration::from_millis(millis).try_into().ok();
            Some(ServerFigures { peers_connected, records_age, ..ServerFigures::default() })
        };
        let started = |seconds| Some(Timestamp { seconds, nanos: 0 });
        let a =
            Server { tunnels: Some(9), told: told(1, 70), started: started(5), ..server("a", State::Ready) };
        let b =
            Server { tunnels: Some(2), told: told(0, 80), started: started(3), ..server("b", State::Behind) };
        let c = server("c", State::Gone);
        for (column, order) in [
            (ServerSort::Id, "a b c"),
            (ServerSort::State, "b c a"),
            (ServerSort::Tunnels, "b a c"),
            (ServerSort::Peers, "b a c"),
            (ServerSort::Freshness, "a b c"),
            (ServerSort::Started, "b a c"),
        ] {
            let mut servers = [c.clone(), b.clone(), a.clone()];

            sort(&mut servers, column);

            let ids: Vec<&str> = servers.iter().map(|server| server.id.as_str()).collect();
            assert_eq!(ids.join(" "), order, "{column:?}");
        }
        assert_eq!(ServerSort::value_variants().len(), 6, "a column without a row above");
    }
}
