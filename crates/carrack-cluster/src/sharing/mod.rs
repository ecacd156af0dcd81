//! Sharing a file system's targets among transfers (L10, L11): what the site knows of them. The rules are `carrack-plan`'s
//! (`grants/`, `forecast/`).

pub mod health;
