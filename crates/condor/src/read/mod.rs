//! What DAGMan and HTCondor write, understood even when it is cut off.
//!
//! | module | what it reads |
//! |---|---|
//! | [`events`] | event logs: the life of each job, as the schedd and DAGMan write it down |
//!
//! All of it is read while others write it, and may have been cut off by a full disk or a crash. So the same rules hold
//! everywhere: input is bytes, what cannot be understood is left out, nothing panics, and *what is not whole is not
//! there*: a line without its end, an event without its dots. A file that is half there may say less than the whole
//! one, and never more.

pub mod events;
