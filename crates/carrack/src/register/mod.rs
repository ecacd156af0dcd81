//! The register of this user's copies: what each is, how it stands, and what it has said.
//!
//! Submitted transfers are in registers of their own, of a machine's queue or of a fleet (`carrack-register`); the commands that list and follow
//! transfers show both.

pub mod background;
pub mod copies;
pub mod process;
mod view;

pub use copies::{Copies, Copy, Noted, Standing, nowhere};
pub use view::{Log, StandingView};
