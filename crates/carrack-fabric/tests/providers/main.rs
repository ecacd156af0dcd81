//! Endpoints on the providers that need no hardware: one program, one link.

mod common;
mod endings;
mod processes;
mod transfers;
