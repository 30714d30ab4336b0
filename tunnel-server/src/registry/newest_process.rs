//! Finds the tunnels of a cluster whose agent has greeted again as another process, in one pass over all tunnels.

use std::collections::HashMap;

use proto::greeting::BootNonce;
use proto::spiffe::AgentId;

/// The newest process of each agent, collected from tunnels in any order.
pub(super) struct NewestProcesses<'t>(HashMap<&'t AgentId, NewestProcess>);

/// The newest process of one agent. Tickets count registrations, so the greatest one is the newest.
struct NewestProcess {
    boot: BootNonce,
    /// The greatest ticket of all tunnels of the agent, which belongs to this process.
    ticket: u64,
    /// The greatest ticket of the agent's other processes. Their tunnels may come between those of this one.
    of_others: Option<u64>,
}

impl NewestProcesses<'_> {
    /// Returns true if another process of `agent` has a tunnel with a greater ticket.
    pub(super) fn supersede(&self, agent: &AgentId, boot: BootNonce, ticket: u64) -> bool {
        self.0.get(agent).is_some_and(|newest| {
            let of_others = if newest.boot == boot { newest.of_others } else { Some(newest.ticket) };
            of_others.is_some_and(|other| other > ticket)
        })
    }
}

impl NewestProcess {
    fn add(&mut self, boot: BootNonce, ticket: u64) {
        if boot == self.boot {
            self.ticket = self.ticket.max(ticket);
        } else if ticket > self.ticket {
            *self = Self { boot, ticket, of_others: Some(self.ticket) };
        } else {
            self.of_others = self.of_others.max(Some(ticket));
        }
    }
}

impl<'t> FromIterator<(&'t AgentId, BootNonce, u64)> for NewestProcesses<'t> {
    fn from_iter<I: IntoIterator<Item = (&'t AgentId, BootNonce, u64)>>(tunnels: I) -> Self {
        let mut newest: HashMap<&AgentId, NewestProcess> = HashMap::new();
        for (agent, boot, ticket) in tunnels {
            newest.entry(agent).and_modify(|newest| newest.add(boot, ticket)).or_insert(NewestProcess {
                boot,
                ticket,
                of_others: None,
            });
        }
        Self(newest)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every assignment of five tunnels to two agents with two processes each, and to a third process of one.
    #[test]
    fn a_tunnel_is_superseded_if_another_process_has_a_greater_ticket() {
        let agents = ["a", "b"].map(|name| AgentId::new("edge-a".parse().unwrap(), name).unwrap());
        let processes = [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2)];
        // Registrations can overtake each other, so the tickets are not in order.
        let tickets = [1, 0, 3, 2, 4];
        for mut assignment in 0..processes.len().pow(5) {
            let tunnels = tickets.map(|ticket| {
                let (agent, boot) = processes[assignment % processes.len()];
                assignment /= processes.len();
                (&agents[agent], BootNonce([boot; 16]), ticket)
            });
            let newest: NewestProcesses<'_> = tunnels.into_iter().collect();
            for (agent, boot, ticket) in tunnels {
                let expected = tunnels
                    .iter()
                    .any(|(other, of, later)| *other == agent && *of != boot && *later > ticket);
                assert_eq!(newest.supersede(agent, boot, ticket), expected, "{ticket} of {tunnels:?}");
            }
        }
    }
}
