//! Runs on HTCondor: plans and workflow specs as DAGMan DAGs.
//!
//! DAGMan owns the nodes; this crate renders, submits and watches them, and decides for DAGMan's scripts what
//! follows each attempt. Nodes have no rows of their own in the database.
//!
//! | module | contents |
//! |---|---|
//! | [`file_layout`] | names and locations of the files of a run |
//! | [`script_settings`] | settings for the scripts of a run |
//! | [`render`] | pure: a run as the text of DAGs and submit files |
//! | [`parsers`] | pure: readers of the files of DAGMan and HTCondor, even truncated ones |
//! | [`watch`] | follows a running DAG from where it was last read |
//! | [`attempt_log`] | the finished attempts of a run, a line each |
//! | [`scripts`] | what PRE and POST scripts of nodes decide |
//! | [`commands`] | the commands of HTCondor, each with a time limit |
//! | [`submit`] | submits a DAG exactly once, in spite of crashes |
//! | [`pause`] | pauses a run: no more of its nodes start |
//! | [`rescue`] | continues a run: which units land again |

pub mod attempt_log;
pub mod commands;
pub mod file_layout;
pub mod parsers;
pub mod pause;
pub mod render;
pub mod rescue;
pub mod script_settings;
pub mod scripts;
pub mod submit;
pub mod watch;
