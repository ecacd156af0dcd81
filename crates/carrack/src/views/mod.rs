//! All rendering: reports for people, JSON for programs, the live view, pages and pictures, manifests.

pub mod canvas;
pub mod config;
pub mod doctor;
pub mod entry;
pub mod forecast;
pub mod journals;
pub mod json;
pub mod keys;
pub mod layout;
pub mod live;
pub mod manifest;
pub mod manifest_reader;
pub mod metadata_differences;
pub mod output;
pub mod page;
pub mod pending_file;
pub mod quantity;
pub mod report;
pub mod table;
pub mod targets;
pub mod topo;
pub mod transfer;
pub mod tune;
pub mod verify;
