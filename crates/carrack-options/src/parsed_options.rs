//! The parsed options of a submitted transfer.

use std::sync::LazyLock;

use carrack_engine::EndSettings;
use carrack_model::{AgreedTransferSpec, SyncRules};
use clap::{Arg, ArgAction, Command, CommandFactory, FromArgMatches, Parser};

use crate::fleet::FleetDistributionArgs;
use crate::sync::{SYNC, SyncOptions};
use crate::transfer_args::TransferArgs;
use crate::user_error::UserError;

/// The options that a submitted transfer may have.
#[derive(Clone, Debug, Parser)]
#[command(no_binary_name = true, disable_help_flag = true, disable_version_flag = true)]
pub struct SubmittedValues {
    #[command(flatten)]
    transfer: TransferArgs,

    /// Send only files that differ, as `carrack sync` does
    #[arg(long, help_heading = SYNC)]
    sync: bool,

    #[command(flatten)]
    difference: SyncOptions,

    #[command(flatten)]
    fleet: FleetDistributionArgs,
}

/// Their definitions, without the environment's values, which are for this process only.
static COMMAND: LazyLock<Command> =
    LazyLock::new(|| SubmittedValues::command().mut_args(|arg| arg.env(None::<&'static str>)));

/// The values without any option.
static DEFAULTS: LazyLock<Option<SubmittedValues>> = LazyLock::new(|| SubmittedValues::parse(&[]).ok());

/// Returns the definition of each option.
pub(crate) fn definitions() -> impl Iterator<Item = (&'static str, &'static Arg)> {
    COMMAND.get_arguments().filter_map(|arg| Some((arg.get_long()?, arg)))
}

/// Returns the definition of the option with this name.
pub(crate) fn definition(name: &str) -> Option<&'static Arg> {
    definitions().find(|(long, _)| *long == name).map(|(_, arg)| arg)
}

/// Returns true if an option has no value.
pub(crate) fn is_switch(arg: &Arg) -> bool {
    matches!(arg.get_action(), ArgAction::SetTrue)
}

impl SubmittedValues {
    /// Parses `--name` and `--name=value`.
    ///
    /// # Errors
    /// The first wrong option, in words.
    pub fn read(words: &[String]) -> Result<SubmittedValues, UserError> {
        match &*DEFAULTS {
            Some(defaults) if words.is_empty() => Ok(defaults.clone()),
            _ => SubmittedValues::parse(words),
        }
    }

    fn parse(words: &[String]) -> Result<SubmittedValues, UserError> {
        let matches = COMMAND.clone().try_get_matches_from(words);
        matches.and_then(|matches| SubmittedValues::from_arg_matches(&matches)).map_err(|error| {
            let text = error.to_string();
            let line = text.lines().next().unwrap_or_default();
            UserError::new(line.strip_prefix("error: ").unwrap_or(line))
                .hint("`carrack cp --help` says what each option takes")
        })
    }

    /// Returns the values on which both ends agree; directories are copied with everything in them.
    ///
    /// # Errors
    /// If options of a sync, or of a part, contradict each other.
    pub fn spec(&self) -> Result<AgreedTransferSpec, UserError> {
        let (spec, sync) = (self.transfer.spec(), self.sync_rules()?);
        self.transfer.check_partial_transfer(sync.is_some(), spec.recursive)?;
        Ok(AgreedTransferSpec { recursive: spec.part.is_none(), sync, ..spec })
    }

    /// Returns the local values of an end.
    ///
    /// # Errors
    /// If two options contradict each other.
    pub fn settings(&self) -> Result<EndSettings, UserError> {
        self.transfer.settings(&["".into()])
    }

    /// Returns the options of every transfer.
    pub fn transfer(&self) -> &TransferArgs {
        &self.transfer
    }

    /// Returns the treatment of existing entries, if this is a sync.
    ///
    /// # Errors
    /// If its options contradict each other.
    pub fn sync_rules(&self) -> Result<Option<SyncRules>, UserError> {
        let sync = self.difference.sync_rules()?;
        Ok((self.sync || sync != SyncRules::default()).then_some(sync))
    }
}
