//! The commands with the real binary, each test in a directory of its own. One program for all of them, so that the
//! helper is compiled once.

mod books;
#[path = "../common/mod.rs"]
mod common;
