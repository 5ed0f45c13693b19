//! `cargo xtask bench dag`: the cost of Windlass for runs on HTCondor, without that of HTCondor itself.

mod latency;
mod post;
mod render;
mod watch;

use anyhow::{Result, bail};

use super::machine::MachineLoad;

const HELP: &str = "\
cargo xtask bench dag [PART] [OPTIONS]: runs as DAGs of HTCondor; without a PART all of them

  render      a large run is written to disk
  post        the POST script of one attempt, for groups of any size
  watch       many running DAGs are followed, with status files and logs as DAGMan writes them
  latency     on the pool of the tests: from the end of a unit's DAG until a server says that it is over

  each has --help for its options
";

type Part = (&'static str, fn(&[String]) -> Result<()>);

const PARTS: [Part; 4] =
    [("render", render::main), ("post", post::main), ("watch", watch::main), ("latency", latency::main)];

pub(super) fn main(words: &[String]) -> Result<()> {
    match words.split_first() {
        None => {
            println!("{}", MachineLoad::look().describe());
            PARTS.iter().try_for_each(|(_, part)| part(&[]))
        }
        Some((word, _)) if word == "--help" || word == "-h" => {
            print!("{HELP}");
            Ok(())
        }
        Some((word, rest)) => match PARTS.iter().find(|(name, _)| name == word) {
            Some((_, part)) => part(rest),
            None => bail!("`bench dag` has no part `{word}`; see --help"),
        },
    }
}
