//! Slurm, decided purely: what is asked of it, what became of what was asked, and what is to be asked next.
//!
//! | file | what |
//! |---|---|
//! | `book.rs` | the rows of allocations as values, and what a decision changes of them |
//! | `sight.rs` | what Slurm says about its jobs |

pub mod book;
pub mod sight;
//! | `request.rs` | what a scheduler of a workflow asks for |

pub mod book;
pub mod request;
