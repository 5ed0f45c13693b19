//! `cargo xtask soak`: many simulations of requests, each a month long.

use anyhow::Result;

use crate::shell::{cargo, run};

const HELP: &str = "\
cargo xtask soak [OPTIONS]: simulations, each with 300 requests at 100 sites for 30 days, in which sites go down,
files are bad, nodes are slow, services do not answer, the server crashes, and people look after some hours

  --seeds N        number of simulations [20]
  --from N         the first seed [1]
  --requests N     requests of each [300]
  --sites N        sites of each [100]
  --days N         days with failures; afterwards all requests have to end [30]
  --jobs N         simulations at a time [2]
  --seed N         this simulation alone
  --request NAME   with --seed: prints all events of this request

Prints a line for each simulation. For each violated rule it prints the seed, the time, the request and its last events,
and exits with 1. A seed always gives the same events: `--seed N --request NAME` prints them from the beginning.
The rules are in crates/sim/src/invariants; a few seeds are part of the tests.
";

pub(crate) fn main(arguments: &[String]) -> Result<()> {
    if arguments.iter().any(|word| word == "--help" || word == "-h") {
        print!("{HELP}");
        return Ok(());
    }
    let command = ["run", "--quiet", "--release", "--package", "windlass-sim", "--example", "soak", "--"];
    run(cargo(command).args(arguments))
}
