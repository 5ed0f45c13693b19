//! `cargo xtask soak`: many simulations of requests, each a month long.

use anyhow::Result;

use crate::shell::{cargo, run};

const HELP: &str = "\
cargo xtask soak [OPTIONS]: simulations, each with 300 requests at 100 sites for 30 days, in which sites go down,
files are bad, nodes are slow, services do not answer, the server crashes, and people look after some hours

  --seeds N        number of simulations [20]
  --from N         the first seed [1]
  --requests N     in each world [300]
  --sites N        [100]
  --days N         for which things go wrong; then all has to come to its end [30]
  --jobs N         simulations at a time [2]
  --seed N         this world alone
  --request NAME   with --seed: tells everything that happened to this request

Prints a line for each world. A rule that was broken is printed with its seed, the time, the request and what happened to
it last, and the exit code is 1. The same seed has the same history: `--seed N --request NAME` shows it from the
beginning. The rules are in crates/sim/src/watch; a few seeds are part of the tests.
";

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let command = ["run", "--quiet", "--release", "--package", "windlass-sim", "--example", "soak", "--"];
    run(cargo(command).args(arguments))
}
