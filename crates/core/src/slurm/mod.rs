//! Slurm, decided purely: what is asked of it, what became of what was asked, and what is to be asked next.
//!
//! | file | what |
//! |---|---|
//! | `admit.rs` | whether a worker is in the allocation that it says it is in |
//! | `book.rs` | the rows of allocations as values, and what a decision changes of them |
//! | `fate.rs` | what became of an allocation, and what is done about it |
//! | `reasons.rs` | why one waits, in plain words |
//! | `request.rs` | what a scheduler of a workflow asks for |
//! | `sight.rs` | what Slurm says about its jobs |

pub mod admit;
pub mod book;
pub mod fate;
pub mod reasons;
pub mod request;
pub mod sight;
