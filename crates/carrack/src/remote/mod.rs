//! Locations as they are typed, and connections to other hosts: over ssh, and to daemons with accounts of
//! their own.

pub mod bootstrap;
pub mod browser;
pub mod daemon;
pub mod far_end;
pub mod location;
pub mod route;
pub mod ssh;
pub mod stop_control;
pub mod tuner_endpoints;
pub mod wildcards;
