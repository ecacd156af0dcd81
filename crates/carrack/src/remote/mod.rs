//! Locations as they are typed, and the ways to other hosts: ssh, and daemons with accounts of their own.

pub mod browser;
pub mod daemon;
pub mod far_end;
pub mod location;
pub mod reins;
pub mod route;
pub mod sites;
pub mod ssh;
