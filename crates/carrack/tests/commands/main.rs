//! The program as its users run it, on this host, over ssh and in a queue.
//!
//! There is one test program for all files: linking one for each takes longer than most of them run. Two
//! groups have programs of their own: `serving`, as the engine within the test's process clears the process's
//! umask; and `fleets`, whose hosts have mount namespaces that would keep other tests' file systems mounted.
#![allow(clippy::unwrap_used)] // Also in helpers.

#[path = "../common/mod.rs"]
mod common;
#[path = "../daemon/mod.rs"]
mod daemon;

mod background;
mod batch_jobs;
mod book;
mod bootstrap;
mod cli;
mod crash_disks;
mod crash_images;
mod daemon_client;
mod doctor;
mod fabric;
mod faults;
mod filters;
mod filters_differential;
mod forecast;
mod help;
mod journals;
mod keys;
mod layout;
mod long_fat_pipe;
mod partial;
mod queue;
mod retry;
mod selection;
mod sharing_load;
mod signals;
mod spill;
mod ssh;
mod storage_ceph;
mod storage_errors;
mod storage_gluster;
mod storage_lustre;
mod sync;
mod sync_differential;
mod third_party;
mod topo;
mod tune;
mod tune_show;
mod verify;
