//! What goes into the store ([`new`]), what comes out of it ([`rows`]), and a workflow as a file ([`export`]).

pub mod export;
pub mod new;
pub mod rows;

pub use export::{Export, ExportOptions, ImportOptions};
pub use new::*;
pub use rows::*;
