//! The life of requests, decided purely: what may follow what, and what is to be done next.

pub mod book;
pub mod change;
