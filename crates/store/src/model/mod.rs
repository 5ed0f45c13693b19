//! What goes into the store ([`new`]) and what comes out of it ([`rows`]).

pub mod new;
pub mod rows;

pub use new::*;
pub use rows::*;
