//! Runs on HTCondor: plans and workflow specs as DAGMan DAGs.
//!
//! DAGMan owns the nodes; here they are rendered, submitted and watched, and what its scripts do for each attempt is
//! decided. No node has a row of its own in the books.
//!
//! | room | what |
//! |---|---|
//! | [`layout`] | what the files of a run are called, and where they are |
//! | [`terms`] | what the scripts of a run have to know |
//! | [`render`] | pure: a run as the text of DAGs and submit files |
//! | [`read`] | pure: what DAGMan and HTCondor write, understood even when it is cut off |
//! | [`watch`] | a running DAG, followed from where it was read last |
//! | [`scripts`] | what PRE and POST scripts of nodes decide |
//! | [`pool`] | the commands of HTCondor, each with a time limit |
//! | [`submit`] | handing a DAG over once, whatever happens in between |
//! | [`pausing`] | a run of which nothing more begins for a while |
//! | [`rescue`] | going on with a run: which units land anew |

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
