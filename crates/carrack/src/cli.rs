//! The table of carrack's commands, without their work.

use clap::{Parser, Subcommand};

use crate::commands::{
    completions, config, cp, doctor, fabric, fleet, forecast, journals, keys, layout, log, ls, man, mkdir,
    movers, orders, resume, rm, serve, session, stat, status, submit, sync, targets, topo, transfers, tune,
    verify, wait,
};
use crate::exit::Exit;

/// Move big data sets between storage systems: in parallel, verified end to end, over ssh
#[derive(Debug, Parser)]
#[command(name = "carrack", version, after_long_help = crate::exit::help(""))]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Cp(Box<cp::CpArgs>),
    Sync(Box<sync::SyncArgs>),
    #[command(visible_alias = "retry")]
    Resume(resume::ResumeArgs),
    Submit(Box<submit::SubmitArgs>),
    Status(status::StatusArgs),
    Transfers(transfers::TransfersArgs),
    Log(log::LogArgs),
    Wait(wait::WaitArgs),
    Pause(orders::PauseArgs),
    Cancel(orders::CancelArgs),
    Movers(movers::MoversArgs),
    Targets(targets::TargetsArgs),
    Ls(Box<ls::LsArgs>),
    Stat(Box<stat::StatArgs>),
    Mkdir(Box<mkdir::MkdirArgs>),
    Rm(Box<rm::RmArgs>),
    Verify(Box<verify::VerifyArgs>),
    Layout(layout::LayoutArgs),
    Doctor(doctor::DoctorArgs),
    Topo(topo::TopoArgs),
    Fabric(fabric::FabricListArgs),
    Forecast(forecast::ForecastArgs),
    Tune(tune::TuneArgs),
    Journals(journals::JournalsArgs),
    Config(config::ConfigArgs),
    Keys(keys::KeysArgs),
    Serve(serve::ServeArgs),
    Mover(Box<fleet::MoverArgs>),
    Manager(Box<fleet::ManagerArgs>),
    Api(Box<fleet::ApiArgs>),
    #[command(hide = true)]
    Session(session::SessionArgs),
    /// Answer one client of `carrack serve`, which starts this
    #[command(hide = true)]
    ServeSession,
    /// Keep the queue of a machine for `carrack serve`, which starts this
    #[command(hide = true)]
    ServeQueue(serve::ServeQueueArgs),
    /// Become a copy of the queue's, which starts this
    #[command(hide = true)]
    QueueCopy(serve::QueueCopyArgs),
    #[command(hide = true)]
    Man,
    Completions(completions::CompletionsArgs),
}

impl Cli {
    /// Runs the command.
    pub fn run(self) -> Exit {
        match self.command {
            Command::Cp(args) => cp::run(&args),
            Command::Sync(args) => sync::run(*args),
            Command::Resume(args) => resume::run(&args),
            Command::Submit(args) => submit::run(&args),
            Command::Status(args) => status::run(&args),
            Command::Transfers(args) => transfers::run(&args),
            Command::Log(args) => log::run(&args),
            Command::Wait(args) => wait::run(&args),
            Command::Pause(args) => orders::pause(&args),
            Command::Cancel(args) => orders::cancel(&args),
            Command::Movers(args) => movers::run(&args),
            Command::Targets(args) => targets::run(&args),
            Command::Ls(args) => ls::run(&args),
            Command::Stat(args) => stat::run(&args),
            Command::Mkdir(args) => mkdir::run(&args),
            Command::Rm(args) => rm::run(&args),
            Command::Verify(args) => verify::run(&args),
            Command::Layout(args) => layout::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Topo(args) => topo::run(&args),
            Command::Fabric(args) => fabric::run(&args),
            Command::Forecast(args) => forecast::run(&args),
            Command::Tune(args) => tune::run(&args),
            Command::Journals(args) => journals::run(&args),
            Command::Config(args) => config::run(&args),
            Command::Keys(args) => keys::run(&args),
            Command::Serve(args) => serve::run(&args),
            Command::Mover(args) => fleet::run_mover(&args),
            Command::Manager(args) => fleet::run_manager(&args),
            Command::Api(args) => fleet::run_api(&args),
            Command::Session(args) => session::run(&args),
            Command::ServeSession => serve::run_session(),
            Command::ServeQueue(args) => serve::run_queue(&args),
            Command::QueueCopy(args) => serve::run_copy(&args),
            Command::Man => man::run(),
            Command::Completions(args) => completions::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_definition_is_sound() {
        crate::options::config::command().debug_assert();
    }

    #[test]
    fn hidden_commands_stay_hidden() {
        let help = crate::options::config::command().render_long_help().to_string();
        assert!(
            help.contains("\n  cp ") && help.contains("\n  layout ") && help.contains("\n  doctor "),
            "{help}"
        );
        assert!(!help.contains("session  ") && !help.contains("\n  man "), "{help}");
        assert!(help.contains("130"), "{help}");
    }
}
