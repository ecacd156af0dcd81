//! The second level of the adaptive policy: servers congest as well as their targets (LADS 2.1).
//!
//! Counts the requests at each server, and limits those at servers that were slow. With a single server, or
//! where servers are unknown, it holds nothing back.

use carrack_model::ServerId;

use super::TargetState;

/// The servers of an end's targets.
#[derive(Clone, Debug, Default)]
pub(super) struct ServerLoads {
    /// By their numbers.
    servers: Vec<ServerLoad>,
    /// Targets with work, also those of unknown servers.
    busy_targets: u32,
    /// Requests in flight at all targets.
    in_service: u32,
    /// True if targets are known to lie on two servers or more.
    has_choice: bool,
}

#[derive(Clone, Copy, Debug, Default)]
struct ServerLoad {
    targets: u32,
    /// Targets with work.
    busy_targets: u32,
    /// Requests in flight at its targets, and the sum of their depths.
    in_service: u32,
    depth: u32,
    /// Requests allowed at a time, as it was slow; 0 for any number.
    limit: u32,
}

impl ServerLoads {
    /// Counts the requests anew.
    pub(super) fn count(&mut self, targets: &[TargetState]) {
        for server in &mut self.servers {
            *server = ServerLoad { limit: server.limit, ..ServerLoad::default() };
        }
        (self.busy_targets, self.in_service) = (0, 0);
        for state in targets {
            let is_busy = u32::from(state.has_work());
            self.busy_targets += is_busy;
            self.in_service += state.in_service;
            let Some(number) = state.server.map(|server| server.0 as usize) else { continue };
            if self.servers.len() <= number {
                self.servers.resize(number + 1, ServerLoad::default());
            }
            let server = &mut self.servers[number];
            server.targets += 1;
            server.busy_targets += is_busy;
            server.in_service += state.in_service;
            server.depth = server.depth.saturating_add(state.depth);
        }
        self.has_choice = self.servers.iter().filter(|server| server.targets > 0).nth(1).is_some();
    }

    /// Returns true if targets are known to lie on two servers or more.
    pub(super) fn has_choice(&self) -> bool {
        self.has_choice
    }

    /// Returns true if one more request stays within the server's share of the threads that serve targets: as
    /// many as the server has of the targets with work.
    pub(super) fn is_below_share(&self, server: Option<ServerId>) -> bool {
        let Some(server) = self.load(server) else { return true };
        let (busy, all) = (u64::from(server.busy_targets), u64::from(self.busy_targets.max(1)));
        // The threads with a request, and the one that looks for work.
        let threads = u64::from(self.in_service) + 1;
        u64::from(server.in_service) < (threads * busy).div_ceil(all)
    }

    /// Returns true if one more request stays within the server's limit.
    pub(super) fn is_below_limit(&self, server: Option<ServerId>) -> bool {
        self.load(server).is_none_or(|server| server.limit == 0 || server.in_service < server.limit)
    }

    /// Returns true if the server was slow, and did not recover fully since.
    pub(super) fn is_limited(&self, server: ServerId) -> bool {
        self.load(Some(server)).is_some_and(|server| server.limit > 0)
    }

    /// Limits a slow server to one request at a time. Returns the number of its targets with work; none if it
    /// has no other server beside it.
    pub(super) fn limit(&mut self, server: ServerId) -> Option<u32> {
        self.load(Some(server))?;
        let server = self.servers.get_mut(server.0 as usize)?;
        server.limit = 1;
        Some(server.busy_targets.max(1))
    }

    /// Records a service without congestion: the server may have one more request at a time, and any number
    /// from the depths of its targets on.
    pub(super) fn raise_limit(&mut self, server: ServerId) {
        if let Some(server) = self.servers.get_mut(server.0 as usize) {
            server.limit = match server.limit {
                0 => 0,
                limit if limit >= server.depth => 0,
                limit => limit + 1,
            };
        }
    }

    /// Returns a server that is one of several.
    fn load(&self, server: Option<ServerId>) -> Option<&ServerLoad> {
        self.servers.get(server?.0 as usize).filter(|_| self.has_choice)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use carrack_model::TargetId;

    use super::*;

    const A: Option<ServerId> = Some(ServerId(0));
    const B: Option<ServerId> = Some(ServerId(1));

    /// A target of depth 4 with this number of requests in flight, and work.
    fn target(server: Option<ServerId>, in_service: u32) -> TargetState {
        TargetState {
            target: TargetId(0),
            server,
            waiting: 1,
            waiting_bytes: 1,
            in_service,
            depth: 4,
            paused_until: Duration::ZERO,
            is_blocked: false,
        }
    }

    fn loads(targets: &[TargetState]) -> ServerLoads {
        let mut loads = ServerLoads::default();
        loads.count(targets);
        loads
    }

    #[test]
    fn a_server_has_its_targets_share_of_the_threads() {
        let mut targets = [target(A, 1), target(A, 1), target(A, 0), target(B, 0), target(None, 0)];
        let is_below = |targets: &[TargetState]| {
            let loads = loads(targets);
            [A, B, None].map(|server| loads.is_below_share(server))
        };
        // Of three threads, three fifths and a fifth, rounded up.
        assert_eq!(is_below(&targets), [false, true, true]);
        targets[3].in_service = 1;
        assert_eq!(is_below(&targets), [true, false, true], "of four threads");
        // A target whose work is blocked has no share.
        targets[2].is_blocked = true;
        assert_eq!(is_below(&targets), [false, false, true]);
    }

    #[test]
    fn a_slow_server_is_limited_and_recovers() {
        let targets = [target(A, 0), target(A, 1), target(B, 9)];
        let mut loads = loads(&targets);
        assert_eq!(loads.limit(ServerId(0)), Some(2));
        assert!(!loads.is_below_limit(A) && loads.is_below_limit(B) && loads.is_below_limit(None));
        loads.count(&targets);
        assert!(loads.is_limited(ServerId(0)) && !loads.is_limited(ServerId(1)), "a count changes nothing");
        loads.raise_limit(ServerId(0));
        assert!(loads.is_below_limit(A));
        // The sum of the depths is 8: then there is no limit.
        (0..7).for_each(|_| loads.raise_limit(ServerId(0)));
        loads.count(&[target(A, 90), target(B, 0)]);
        assert!(loads.is_below_limit(A) && !loads.is_limited(ServerId(0)));
    }

    #[test]
    fn a_single_server_is_never_held_back() {
        for targets in [[target(A, 9), target(A, 9)], [target(None, 9), target(A, 9)]] {
            let mut loads = loads(&targets);
            assert_eq!(loads.limit(ServerId(0)), None);
            assert!(loads.is_below_share(A) && loads.is_below_limit(A) && !loads.is_limited(ServerId(0)));
        }
    }
}
