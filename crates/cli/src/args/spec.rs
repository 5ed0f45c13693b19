//! Commands about spec files, and about jobs that jobs add: `spec`, `jobs spawn`.

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
    /// Convert a spec to another format.
    Convert(SpecConvertArgs),
    /// Format spec files in the standard layout; comments are kept.
    Format(SpecFormatArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass spec schema -o windlass.schema.json
  windlass spec reference | less")]
pub(crate) struct SpecOutputArgs {
    /// File to write. Default: standard output.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Debug, Args)]
#[command(after_help = "\
The format is that of the output file's extension, or of --to. The new file defines the same workflow, without the \
comments.

Examples:
  windlass spec convert sweep.yaml sweep.kdl
  windlass spec convert sweep.yaml --to json
  windlass spec convert - --to toml < sweep.yaml")]
pub(crate) struct SpecConvertArgs {
    /// Spec file to read; `-` reads standard input.
    #[arg(value_name = "IN")]
    pub(crate) input: PathBuf,
    /// File to write. Default: standard output.
    #[arg(value_name = "OUT")]
    pub(crate) output: Option<PathBuf>,
    /// Output format.
    #[arg(short, long, value_enum, value_name = "FORMAT", required_unless_present = "output")]
    pub(crate) to: Option<SpecFileFormat>,
    /// Overwrite an existing file.
    #[arg(long)]
    pub(crate) force: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  windlass spec format sweep.yaml
  windlass spec format --check *.windlass.yaml      for tests: exit code 1 if a file is not formatted
  windlass spec format - < sweep.yaml")]
pub(crate) struct SpecFormatArgs {
    /// Spec files to change; `-` reads standard input and writes standard output. Default: the spec of this
    /// directory.
    #[arg(value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    /// Change nothing; list the files that would change, and exit with 1 if there are any.
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
For use in a running job: the new jobs are added to its workflow, and start after it has completed. Repeating the command \
adds no job twice. The file, in any format of a spec, contains:

  jobs:                          the new jobs
    - name: refine_1
      command: ./refine 1
      depends_on: [...]          jobs in this file to wait for; every new job waits for the job that adds it
      resource_requirements:     as in the spec, as are description, priority, labels, env,
                                 invocation_script and cancel_on_blocking_job_failure
  lineage: refinement            name of the sequence of iterations; default: name of its first job
  state: {...}                   any value, stored as user data of each iteration

Added jobs can add jobs too; each addition is the next iteration of the same lineage. The spec limits their number: \
`dynamic_jobs: {max_iterations: 1000}`.

Examples:
  windlass jobs spawn next.yaml
  ./choose-next | windlass jobs spawn -")]
pub(crate) struct JobSpawnArgs {
    /// File with the new jobs; `-` reads standard input.
    #[arg(value_name = "FILE")]
    pub(crate) file: PathBuf,
}
