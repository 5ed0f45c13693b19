//! Commands about spec files themselves, and about jobs that jobs add: `spec`, `jobs spawn`.

use clap::{Args, Subcommand, ValueEnum};
use std::path::PathBuf;

#[derive(Debug, Args)]
pub(crate) struct SpecArgs {
    #[command(subcommand)]
    pub(crate) verb: SpecSubcommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SpecSubcommand {
    /// Print the JSON Schema of spec files, for editors.
    Schema(SpecOutputArgs),
    /// Print the reference of all fields, as Markdown.
    Reference(SpecOutputArgs),
    /// Write a spec in another format; it keeps its meaning.
    Convert(SpecConvertArgs),
    /// Give spec files the canonical layout; comments stay.
    Format(SpecFormatArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass spec schema -o windlass.schema.json
  windlass spec reference | less")]
pub(crate) struct SpecOutputArgs {
    /// Write to this file instead of to standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The format follows from the name of the file that is written, or is named with --to. The result makes the same plan. \
Comments cannot follow into another format.

Examples:
  windlass spec convert sweep.yaml sweep.kdl
  windlass spec convert sweep.yaml --to json
  windlass spec convert - --to toml < sweep.yaml")]
pub(crate) struct SpecConvertArgs {
    /// Spec file to read; `-` is stdin.
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// File to write; standard output if none is named.
    #[arg(value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Format to write.
    #[arg(short, long, value_enum, value_name = "FORMAT", required_unless_present = "output")]
    pub(crate) to: Option<SpecFileFormat>,
    /// Replace the file if it is there.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass spec format sweep.yaml
  windlass spec format --check *.windlass.yaml      for use in tests: exit code 1 if one is not in shape
  windlass spec format - < sweep.yaml")]
pub(crate) struct SpecFormatArgs {
    /// Spec files, changed in place; `-` reads stdin and writes to standard output. The spec of this directory by default.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Change nothing; say which files would change, and exit with 1 if there are any.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum SpecFileFormat {
    Yaml,
    Json,
    Json5,
    Toml,
    Kdl,
}

#[derive(Debug, Args)]
#[command(after_help = "\
For use inside a running job: the new jobs belong to its workflow and start after it has completed. Doing the same twice \
adds nothing twice. The file, in any format of a spec, says:

  jobs:                          the new jobs
    - name: refine_1
      command: ./refine 1
      depends_on: [...]          others in this file; all of them wait for the job that adds them
      resource_requirements:     as in the spec, as are priority, labels, env, invocation_script and
                                 cancel_on_blocking_job_failure
  lineage: refinement            who counts the rounds; by default the job that began
  state: {...}                   anything, kept as user data, one piece for each round

How many rounds a lineage may have is said in the spec: `dynamic_jobs: {max_iterations: 1000}`.

Examples:
  windlass jobs spawn next.yaml
  ./choose-next | windlass jobs spawn -")]
pub(crate) struct JobSpawnArgs {
    /// File with the new jobs; `-` is stdin.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
