//! The table of carrack's commands, without their work.

use clap::{Parser, Subcommand};

use crate::commands::{
    completions, config, cp, doctor, fabric, fleet_processes, forecast, journals, keys, layout, log, ls, man,
    mkdir, movers, orders, resume, rm, serve, session, stat, status, submit, sync, targets, topo, transfers,
    tune, verify, wait,
};
use crate::exit::ExitStatus;

/// Move big data sets between storage systems: in parallel, verified, over ssh
///
/// carrack copies files and directories on one host, to or from another host over ssh, and to or from a
/// daemon (`carrack serve`). `carrack submit` hands a transfer to the queue of a machine or to a fleet of
/// movers. Data is checked from read to write, and a transfer that was interrupted resumes when the same
/// command runs again.
#[derive(Debug, Parser)]
#[command(name = "carrack", version)]
pub struct Cli {
    #[command(subcommand)]
    command: CliCommand,
}

#[derive(Debug, Subcommand)]
enum CliCommand {
    Cp(Box<cp::CpArgs>),
    Sync(Box<sync::SyncArgs>),
    #[command(visible_alias = "retry")]
    Resume(resume::ResumeArgs),
    Submit(Box<submit::SubmitArgs>),
    Status(status::StatusArgs),
    Transfers(transfers::TransfersArgs),
    Log(log::ShowTransferLogArgs),
    Wait(wait::WaitArgs),
    Pause(orders::PauseArgs),
    Cancel(orders::CancelArgs),
    Movers(movers::MoversArgs),
    Targets(targets::TargetsArgs),
    Ls(Box<ls::LsArgs>),
    Stat(Box<stat::StatArgs>),
    Mkdir(Box<mkdir::MkdirArgs>),
    Rm(Box<rm::RemoveFilesArgs>),
    Verify(Box<verify::VerifyArgs>),
    Layout(layout::LayoutArgs),
    Doctor(doctor::DoctorArgs),
    Topo(topo::TopoArgs),
    Fabric(fabric::FabricListArgs),
    Forecast(forecast::LoadForecastArgs),
    Tune(tune::TuneArgs),
    Journals(journals::JournalsArgs),
    Config(config::ConfigArgs),
    Keys(keys::KeysArgs),
    Serve(serve::ServeArgs),
    Mover(Box<fleet_processes::MoverArgs>),
    Manager(Box<fleet_processes::ManagerArgs>),
    Api(Box<fleet_processes::ApiServerArgs>),
    #[command(hide = true)]
    Session(session::SessionCommandArgs),
    /// Answer one client of `carrack serve`, which starts this
    #[command(hide = true)]
    ServeSession,
    /// Keep the queue of a machine for `carrack serve`, which starts this
    #[command(hide = true)]
    ServeQueue(serve::QueueProcessArgs),
    /// Become a copy of the queue's, which starts this
    #[command(hide = true)]
    QueueCopy(serve::CopyLauncherArgs),
    #[command(hide = true)]
    Man(man::ManArgs),
    Completions(completions::CompletionsArgs),
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> ExitStatus {
        match self.command {
            CliCommand::Cp(args) => cp::run(&args),
            CliCommand::Sync(args) => sync::run(*args),
            CliCommand::Resume(args) => resume::run(&args),
            CliCommand::Submit(args) => submit::run(&args),
            CliCommand::Status(args) => status::run(&args),
            CliCommand::Transfers(args) => transfers::run(&args),
            CliCommand::Log(args) => log::run(&args),
            CliCommand::Wait(args) => wait::run(&args),
            CliCommand::Pause(args) => orders::pause(&args),
            CliCommand::Cancel(args) => orders::cancel(&args),
            CliCommand::Movers(args) => movers::run(&args),
            CliCommand::Targets(args) => targets::run(&args),
            CliCommand::Ls(args) => ls::run(&args),
            CliCommand::Stat(args) => stat::run(&args),
            CliCommand::Mkdir(args) => mkdir::run(&args),
            CliCommand::Rm(args) => rm::run(&args),
            CliCommand::Verify(args) => verify::run(&args),
            CliCommand::Layout(args) => layout::run(&args),
            CliCommand::Doctor(args) => doctor::run(&args),
            CliCommand::Topo(args) => topo::run(&args),
            CliCommand::Fabric(args) => fabric::run(&args),
            CliCommand::Forecast(args) => forecast::run(&args),
            CliCommand::Tune(args) => tune::run(&args),
            CliCommand::Journals(args) => journals::run(&args),
            CliCommand::Config(args) => config::run(&args),
            CliCommand::Keys(args) => keys::run(&args),
            CliCommand::Serve(args) => serve::run(&args),
            CliCommand::Mover(args) => fleet_processes::run_mover(&args),
            CliCommand::Manager(args) => fleet_processes::run_manager(&args),
            CliCommand::Api(args) => fleet_processes::run_api(&args),
            CliCommand::Session(args) => session::run(&args),
            CliCommand::ServeSession => serve::run_session(),
            CliCommand::ServeQueue(args) => serve::run_queue(&args),
            CliCommand::QueueCopy(args) => serve::run_copy(&args),
            CliCommand::Man(args) => man::run(&args),
            CliCommand::Completions(args) => completions::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_is_sound() {
        crate::options::config::carrack_command().debug_assert();
    }

    #[test]
    fn hidden_commands_stay_hidden() {
        let help = crate::options::config::carrack_command().render_long_help().to_string();
        assert!(
            help.contains("\n  cp ") && help.contains("\n  layout ") && help.contains("\n  doctor "),
            "{help}"
        );
        assert!(!help.contains("session  ") && !help.contains("\n  man "), "{help}");
        assert!(help.contains("130"), "{help}");
    }
}
