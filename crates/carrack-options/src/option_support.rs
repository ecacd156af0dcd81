//! The options that a submitted transfer can't have, with the reasons: one table.

use crate::user_error::UserError;

/// The way in which a submitted transfer is carried out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SubmissionExecutorKind {
    /// The queue of one machine.
    Queue,
    /// A fleet's movers.
    Fleet,
}

/// An option that a submitted transfer does not have everywhere.
#[derive(Clone, Copy, Debug)]
pub struct RefusedOption {
    /// Its name.
    pub name: &'static str,
    /// The reason why a machine's queue refuses it, with an alternative; `None` if it does not.
    pub queue: Option<&'static str>,
    /// The same for a fleet.
    pub fleet: Option<&'static str>,
}

const fn refused_everywhere(name: &'static str, why: &'static str) -> RefusedOption {
    RefusedOption { name, queue: Some(why), fleet: Some(why) }
}

const fn refused_in_queue(name: &'static str, why: &'static str) -> RefusedOption {
    RefusedOption { name, queue: Some(why), fleet: None }
}

const fn refused_in_fleet(name: &'static str, why: &'static str) -> RefusedOption {
    RefusedOption { name, queue: None, fleet: Some(why) }
}

const OF_THE_MACHINE: &str =
    "it names a file or directory of the machine that carries the transfer out, which is its administrator's";
const JOURNAL: &str = "submitted transfers keep journals, beside the destination";
const FLASH: &str = "flash is the administrator's: `[spill]` of a daemon, `carrack mover --spill`";
const MOVERS: &str = "each mover decides that by itself";
const PATIENCE: &str = "a fleet tries again by itself; `carrack cancel` ends a transfer";
const DELETION_FIRST: &str = "a fleet sends while it scans, and removes when everything is there: give --delete; a machine's queue has it, and `carrack sync`";
const DIALS: &str = "the source's mover dials; `carrack mover --address` says where the sink's is reached";
const PART: &str = "a file's movers write its new version together, and none of them brings the bytes of the old one; `carrack cp` and a machine's queue have it";
const DEALT: &str = "chunks and pairs of movers are a fleet's, and this queue is one machine's";

/// All options that are refused in some way. Others are carried out everywhere.
pub const REFUSED: &[RefusedOption] = &[
    refused_everywhere("targets", OF_THE_MACHINE),
    refused_everywhere(
        "sharing",
        "the daemon or mover that carries it out knows who shares targets out; --class says as what",
    ),
    refused_everywhere("spill", FLASH),
    refused_everywhere("sink-spill", FLASH),
    refused_everywhere("spill-budget", FLASH),
    refused_everywhere("journal-dir", OF_THE_MACHINE),
    refused_everywhere("no-journal", JOURNAL),
    refused_everywhere("zone", "cores are kept by who owns the machine"),
    refused_in_queue("chunk-size", DEALT),
    refused_in_queue("pairs", DEALT),
    refused_in_fleet("offset", PART),
    refused_in_fleet("length", PART),
    refused_in_fleet("via", "movers make data connections to each other"),
    refused_in_fleet("ports", "`carrack mover --ports` names them for all its transfers"),
    refused_in_fleet("connect-from", DIALS),
    refused_in_fleet("retry", PATIENCE),
    refused_in_fleet("stall-timeout", PATIENCE),
    refused_in_fleet("timeout", PATIENCE),
    refused_in_fleet("stop-at", PATIENCE),
    refused_in_fleet("lanes", MOVERS),
    refused_in_fleet("placement", MOVERS),
    refused_in_fleet(
        "contents",
        "files that come in parts would be read as a whole for each of them; a machine's queue has it, and `carrack sync`",
    ),
    refused_in_fleet("delete-before", DELETION_FIRST),
];

impl SubmissionExecutorKind {
    /// Returns the reason why an option is refused; `None` if it is carried out.
    pub fn refusal(self, name: &str) -> Option<&'static str> {
        let refused = REFUSED.iter().find(|refused| refused.name == name)?;
        match self {
            SubmissionExecutorKind::Queue => refused.queue,
            SubmissionExecutorKind::Fleet => refused.fleet,
        }
    }

    /// Checks an option.
    ///
    /// # Errors
    /// If the option is refused.
    pub(crate) fn check(self, name: &str) -> Result<(), UserError> {
        let whose = match self {
            SubmissionExecutorKind::Queue => "a machine's queue",
            SubmissionExecutorKind::Fleet => "a fleet",
        };
        match self.refusal(name) {
            None => Ok(()),
            Some(why) => Err(UserError::new(format!("{whose} has no --{name}")).hint(why)),
        }
    }
}

/// Returns true if no submitted transfer can have it.
pub(crate) fn is_refused_everywhere(name: &str) -> bool {
    [SubmissionExecutorKind::Queue, SubmissionExecutorKind::Fleet]
        .into_iter()
        .all(|way| way.refusal(name).is_some())
}
