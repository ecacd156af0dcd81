//! The commands that carrack has, and nothing of what they do.

use clap::{Parser, Subcommand};

use crate::commands::{
    completions, cp, doctor, keys, layout, ls, man, mkdir, rm, serve, session, stat, topo,
};
use crate::exit::Exit;

/// Move big data sets between storage systems: in parallel, verified end to end, over ssh
#[derive(Debug, Parser)]
#[command(name = "carrack", version, after_long_help = crate::exit::help())]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    Cp(Box<cp::CpArgs>),
    Ls(Box<ls::LsArgs>),
    Stat(Box<stat::StatArgs>),
    Mkdir(Box<mkdir::MkdirArgs>),
    Rm(Box<rm::RmArgs>),
    Layout(layout::LayoutArgs),
    Doctor(doctor::DoctorArgs),
    Topo(topo::TopoArgs),
    Keys(keys::KeysArgs),
    Serve(serve::ServeArgs),
    #[command(hide = true)]
    Session(session::SessionArgs),
    /// Answer one client of `carrack serve`, which starts this
    #[command(hide = true)]
    ServeSession,
    #[command(hide = true)]
    Man,
    Completions(completions::CompletionsArgs),
}

impl Cli {
    /// Does what was asked.
    pub fn run(self) -> Exit {
        match self.command {
            Command::Cp(args) => cp::run(&args),
            Command::Ls(args) => ls::run(&args),
            Command::Stat(args) => stat::run(&args),
            Command::Mkdir(args) => mkdir::run(&args),
            Command::Rm(args) => rm::run(&args),
            Command::Layout(args) => layout::run(&args),
            Command::Doctor(args) => doctor::run(&args),
            Command::Topo(args) => topo::run(&args),
            Command::Keys(args) => keys::run(&args),
            Command::Serve(args) => serve::run(&args),
            Command::Session(args) => session::run(&args),
            Command::ServeSession => serve::run_session(),
            Command::Man => man::run(),
            Command::Completions(args) => completions::run(&args),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_definition_is_sound() {
        Cli::command().debug_assert();
    }

    #[test]
    fn hidden_commands_stay_hidden() {
        let help = Cli::command().render_long_help().to_string();
        assert!(
            help.contains("\n  cp ") && help.contains("\n  layout ") && help.contains("\n  doctor "),
            "{help}"
        );
        assert!(!help.contains("session  ") && !help.contains("\n  man"), "{help}");
        assert!(help.contains("130"), "{help}");
    }
}
