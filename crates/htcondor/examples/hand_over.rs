//! Submits the DAG of a directory exactly once: `hand_over TOOLS DIRECTORY BATCH NUMBER`, where `TOOLS` is the
//! directory of HTCondor's commands, and `NUMBER` is 1 for the first submission and larger for a rescue. Prints
//! the cluster id of the DAG.
//!
//! Tests kill it at every step.
#![expect(clippy::print_stdout, reason = "a command line tool prints")]

use std::error::Error;
use std::path::{Path, PathBuf};
use windlass_htcondor::commands::CondorClient;
use windlass_htcondor::submit;

fn main() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [tools, directory, batch, number] = words.as_slice() else {
        return Err("usage: hand_over TOOLS DIRECTORY BATCH NUMBER".into());
    };
    let condor = CondorClient { tools_directory: Some(PathBuf::from(tools)), ..CondorClient::default() };
    let submitted = match number.parse()? {
        1 => submit::submit(&condor, Path::new(directory), batch)?,
        number => submit::submit_rescue(&condor, Path::new(directory), batch, number)?,
    };
    println!("{}", submitted.cluster);
    Ok(())
}
