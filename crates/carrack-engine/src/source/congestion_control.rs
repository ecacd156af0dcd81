//! Applies the congestion control that the user chose, or that a trial of BBR finds, to the source's data
//! connections: only an end that sends has a congestion control to choose.

use std::io;
use std::time::{Duration, Instant};

use carrack_model::{CongestionControlChoice, UserNotice};
use carrack_plan::{BbrConnections, CongestionControlTrial, ConnectionSample};
use carrack_transport::{NEAR_RTT, TcpPathState, TcpStateReader, system_congestion_control};

use super::lane::SourceLane;

/// The interval between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(250);

const BBR: &str = "bbr";

/// The congestion controls that a trial would replace: they take every loss for congestion.
const LOSS_BASED: [&str; 2] = ["cubic", "reno"];

/// The trial of BBR on the connections of all lanes.
pub(super) struct BbrTrialDriver<'a> {
    lanes: &'a [SourceLane<'a>],
    system: String,
    trial: CongestionControlTrial,
    uses: BbrConnections,
    /// The connections that have BBR now, by their numbers.
    has_bbr: Vec<bool>,
    began: Instant,
    due: Instant,
}

/// Sets the congestion control that the user named. Returns the warning that the host refuses it.
pub(super) fn set_named_control(lanes: &[SourceLane<'_>]) -> Option<UserNotice> {
    let CongestionControlChoice::Named(name) = &lanes.first()?.source.settings.congestion_control else {
        return None;
    };
    let mut connections = lanes.iter().flat_map(|lane| lane.send_queue.connections());
    let error = connections.find_map(|connection| connection.set_congestion_control(name).err())?;
    Some(UserNotice::Warning(format!("source: {}; it is the system's", refusal(name, &error))))
}

impl<'a> BbrTrialDriver<'a> {
    /// Prepares the trial; `None` if there is none on this path.
    pub(super) fn begin(lanes: &'a [SourceLane<'a>]) -> Option<BbrTrialDriver<'a>> {
        let source = lanes.first()?.source;
        let connections = || lanes.iter().flat_map(|lane| lane.send_queue.connections());
        if source.settings.congestion_control != CongestionControlChoice::Auto || source.settings.is_nice() {
            return None;
        }
        let system = system_congestion_control().ok()?;
        let is_far = connections().filter_map(TcpStateReader::path).any(is_far);
        let now = Instant::now();
        (is_far && LOSS_BASED.contains(&&*system)).then(|| BbrTrialDriver {
            lanes,
            system,
            trial: CongestionControlTrial::default(),
            uses: BbrConnections::None,
            has_bbr: vec![false; connections().count()],
            began: now,
            due: now + SAMPLE_EVERY,
        })
    }

    /// Returns true if all connections have BBR.
    pub(super) fn uses_bbr(&self) -> bool {
        self.uses == BbrConnections::All
    }

    /// Gives all connections BBR, as an earlier session on this path ended with it, unless a trial has begun.
    pub(super) fn begin_with_bbr(&mut self) -> Option<UserNotice> {
        self.uses = self.trial.begin_with_bbr()?;
        let text = "source: bbr on all connections, as in an earlier session".to_owned();
        Some(self.apply_or_end().unwrap_or(UserNotice::Decision(text)))
    }

    /// Returns the time of the next sample.
    pub(super) fn due(&self) -> Instant {
        self.due
    }

    /// Takes a sample if it is due. Returns what has changed.
    pub(super) fn sample_and_choose(&mut self, now: Instant) -> Option<UserNotice> {
        if now < self.due {
            return None;
        }
        self.due = now + SAMPLE_EVERY;
        let in_use: Vec<(usize, &TcpStateReader)> = self.connections_in_use();
        let samples: Vec<ConnectionSample> =
            in_use.iter().filter_map(|(_, connection)| Some(to_sample(connection.path()?))).collect();
        let change = self.trial.observe(now - self.began, &samples);
        let before = self.uses;
        self.uses = change.unwrap_or(before);
        self.apply_or_end().or_else(|| change.map(|uses| UserNotice::Decision(self.describe(before, uses))))
    }

    /// Gives the connections their congestion control. On a host that has no BBR for this user there is no
    /// trial.
    fn apply_or_end(&mut self) -> Option<UserNotice> {
        let in_use = self.connections_in_use();
        let error = self.apply(&in_use).err()?;
        self.due = Instant::now() + Duration::from_secs(u32::MAX.into());
        self.uses = BbrConnections::None;
        let _ = self.apply(&in_use);
        Some(UserNotice::Text(format!("source: {}", refusal(BBR, &error))))
    }

    /// The connections in use with their numbers among all.
    fn connections_in_use(&self) -> Vec<(usize, &'a TcpStateReader)> {
        let mut first = 0;
        let mut in_use = Vec::new();
        for lane in self.lanes {
            let used = lane.send_queue.used_count();
            let numbered = lane.send_queue.connections().enumerate().take(used);
            in_use.extend(numbered.map(|(number, connection)| (first + number, connection)));
            first += lane.send_queue.connections().len();
        }
        in_use
    }

    /// Gives each connection in use its congestion control.
    fn apply(&mut self, in_use: &[(usize, &TcpStateReader)]) -> io::Result<()> {
        for (index, (number, connection)) in in_use.iter().enumerate() {
            let wants_bbr = self.uses.contains(index);
            if self.has_bbr[*number] != wants_bbr {
                connection.set_congestion_control(if wants_bbr { BBR } else { &self.system })?;
                self.has_bbr[*number] = wants_bbr;
            }
        }
        Ok(())
    }

    fn describe(&self, before: BbrConnections, uses: BbrConnections) -> String {
        let (system, gain) = (&self.system, self.trial.gain());
        match (before, uses) {
            (_, BbrConnections::EverySecond) => {
                format!(
                    "source: bbr is tried on every second connection: loss without congestion under {system}"
                )
            }
            (_, BbrConnections::All) => {
                format!("source: bbr on all connections: {gain:.1} times the throughput of {system}")
            }
            (BbrConnections::All, _) => {
                let loss = 100.0 * self.trial.loss();
                format!(
                    "source: {system} on all connections again: bbr met a full queue or a rate limit, {loss:.1} % lost"
                )
            }
            _ => format!("source: {system} on all connections: bbr had {gain:.1} times its throughput"),
        }
    }
}

/// A loss on a near path is congestion.
fn is_far(path: TcpPathState) -> bool {
    path.round_trip_min >= NEAR_RTT
}

fn to_sample(path: TcpPathState) -> ConnectionSample {
    ConnectionSample {
        acked_bytes: path.acked_bytes,
        segments: path.segments,
        retransmitted: path.retransmitted,
        round_trip: path.round_trip,
        round_trip_min: path.round_trip_min,
    }
}

/// The reason why a congestion control is not used, with the remedy.
fn refusal(name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            format!("the congestion control {name} is not available on this host (modprobe tcp_{name})")
        }
        io::ErrorKind::PermissionDenied => format!(
            "the congestion control {name} is not allowed on this host (sysctl net.ipv4.tcp_allowed_congestion_control)"
        ),
        _ => format!("the congestion control {name} cannot be used: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn a_refusal_names_the_remedy() {
        let of = |errno: Errno| refusal(BBR, &io::Error::from(errno));
        assert!(of(Errno::NOENT).contains("modprobe tcp_bbr"));
        assert!(of(Errno::PERM).contains("tcp_allowed_congestion_control"));
        assert!(of(Errno::IO).contains("cannot be used"));
    }
}
