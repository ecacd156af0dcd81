//! Options that several subcommands share, those of `carrack cp` and `carrack verify`, and the configuration
//! that gives them defaults.
//!
//! The options of every transfer are in a crate of their own (`carrack-options`).

pub mod compared_metadata;
pub mod config;
pub mod cp;
pub mod daemon_connection;
pub mod far_end_connection;
pub mod foreign;
pub mod help;
pub mod load;
pub mod nats;
pub mod start_time;
pub mod transfer_server;
pub mod unsupported;

pub use daemon_connection::DaemonConnectionArgs;
pub use far_end_connection::FarArgs;

#[cfg(test)]
pub mod tests {
    use clap::{Args, CommandFactory, Parser};

    // No documentation comment: clap would take it for that of the options.
    #[derive(Parser)]
    struct TestOptionsParser<T: Args> {
        #[command(flatten)]
        options: T,
    }

    pub fn command<T: Args>() -> clap::Command {
        TestOptionsParser::<T>::command()
    }

    pub fn parse<T: Args>(words: &[&str]) -> Result<T, clap::Error> {
        TestOptionsParser::try_parse_from([&["command"], words].concat()).map(|command| command.options)
    }
}
