//! How an allocation is requested: the arguments of `sbatch`, and the script.
//!
//! Options are arguments and never lines of the script: text from a user is then always one word, and the
//! script stays short. The user's options come first and ours last, because with `sbatch` the last one
//! counts: no option can remove the tag by which an allocation is found.

use super::shell_words::{WordSplitError, quote_word, split_words};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::slurm::allocation_rows::is_valid_tag;
use windlass_core::slurm::database_id::add_database_id;
use windlass_types::settings::WorkflowSettings;
use windlass_types::slurm::{Allocation, AllocationRequest};

/// What a batch script needs besides the allocation.
#[derive(Clone, Debug)]
pub struct BatchContext<'a> {
    /// The worker program.
    pub windlass: &'a Path,
    /// The URL of the server.
    pub server: &'a str,
    /// The output directory of the workflow; the output of the allocation is stored here.
    pub output_dir: &'a Path,
    /// The working directory of the batch script.
    pub directory: &'a Path,
    /// The identity of the database, which distinguishes its jobs from those of a copy. May be empty.
    pub tag_prefix: &'a str,
    /// Time before its end at which the worker is warned. Slurm may be a minute early, never late.
    pub warning: Duration,
    /// Settings of the workflow for a worker that starts while the server is away.
    pub settings: WorkflowSettings,
}

impl BatchContext<'_> {
    /// Time before its end at which the worker of such an allocation is warned.
    fn warning_seconds(&self, request: &AllocationRequest) -> u64 {
        self.warning.min(request.walltime / 2).as_secs().max(1)
    }
}

/// An allocation that can be submitted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSubmission {
    /// Arguments of `sbatch`, which reads the script from its standard input.
    pub arguments: Vec<String>,
    pub script: String,
    /// The output file of the allocation.
    pub outputs: [PathBuf; 2],
}

/// An invalid value in a request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAllocation {
    #[error("{place} is {value:?}, which {why}")]
    Value { place: String, value: String, why: &'static str },
    #[error("`extra` of the scheduler cannot be split into words: {0}")]
    Extra(#[from] WordSplitError),
    #[error("`--{option}` in `extra` or `slurm_defaults` cannot be used: {why}")]
    Option { option: String, why: &'static str },
    #[error("`{word}` in `extra` belongs to no option; write `--option=value`")]
    UnexpectedWord { word: String },
}

/// The arguments and the script of an allocation.
pub fn render_batch(
    allocation: &Allocation,
    site: &BatchContext<'_>,
) -> Result<BatchSubmission, InvalidAllocation> {
    let request = &allocation.request;
    let stem = file_stem(allocation);
    let mut arguments = render_user_options(request)?;
    arguments.extend(render_required_options(allocation, site, &stem)?);
    let outputs = ["o", "e"].map(|end| site.output_dir.join(format!("{stem}.{end}")));
    Ok(BatchSubmission { arguments, script: render_script(allocation, site)?, outputs })
}

/// The arguments for the query when such an allocation would start. Nothing is submitted.
pub fn render_test_only_arguments(request: &AllocationRequest) -> Result<Vec<String>, InvalidAllocation> {
    let mut arguments = vec!["--test-only".to_owned()];
    arguments.extend(render_user_options(request)?);
    arguments.push(format!("--time={}", render_walltime(request.walltime)));
    arguments.extend(["--wrap", "true"].map(str::to_owned));
    Ok(arguments)
}

/// The names of an allocation's files, as Torc names them.
pub fn file_stem(allocation: &Allocation) -> String {
    format!("slurm_output_wf{}_sl{}", allocation.workflow.0, allocation.id.0)
}

/// Jobs of one series share a name, so that Slurm runs one at a time; all others are named by their tag.
pub fn job_name(allocation: &Allocation) -> String {
    if !allocation.request.serialize {
        return allocation.tag.clone();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let scheduler: String = allocation.request.scheduler.chars().map(plain).take(64).collect();
    format!("{}-wf{}-{scheduler}", series_prefix(&allocation.tag), allocation.workflow.0)
}

/// The common prefix of all tags of one server, so that two servers of one user share no series.
fn series_prefix(tag: &str) -> &str {
    tag.rsplit_once('-').map_or(tag, |(prefix, _)| prefix)
}

/// The user's options.
fn render_user_options(request: &AllocationRequest) -> Result<Vec<String>, InvalidAllocation> {
    let mut arguments = parse_extra_options(request.extra.as_deref().unwrap_or_default())?;
    for (name, value) in &request.options {
        arguments.push(render_option(name, value)?);
    }
    let texts = [
        ("account", Some(request.account.as_str()).filter(|account| !account.is_empty())),
        ("partition", request.partition.as_deref()),
        ("qos", request.qos.as_deref()),
        ("mem", request.mem.as_deref()),
        ("gres", request.gres.as_deref()),
        ("tmp", request.tmp.as_deref()),
    ];
    for (name, value) in texts {
        if let Some(value) = value {
            let place = || format!("`{name}` of the scheduler");
            arguments.push(format!("--{name}={}", check_word(place, value)?));
        }
    }
    if request.nodes == 0 {
        return Err(invalid_value("`nodes` of the scheduler", "0", "is not a number of nodes"));
    }
    arguments.push(format!("--nodes={}", request.nodes));
    if let Some(tasks) = request.ntasks_per_node {
        arguments.push(format!("--ntasks-per-node={tasks}"));
    }
    request_whole_nodes(&mut arguments);
    Ok(arguments)
}

/// A scheduler with nodes and without cores requests whole nodes: Slurm would otherwise allocate one core of
/// each, with its share of memory.
fn request_whole_nodes(arguments: &mut Vec<String>) {
    if has_option(arguments, CORE_OPTIONS) {
        return;
    }
    arguments.push("--exclusive".to_owned());
    if !has_option(arguments, MEMORY_OPTIONS) {
        arguments.push("--mem=0".to_owned());
    }
}

/// Options that set the number of cores or the sharing of nodes.
const CORE_OPTIONS: &[(&str, Option<char>)] = &[
    ("cores-per-socket", None),
    ("cpus-per-gpu", None),
    ("cpus-per-task", Some('c')),
    ("exclusive", None),
    ("extra-node-info", Some('B')),
    ("mincpus", None),
    ("ntasks", Some('n')),
    ("ntasks-per-core", None),
    ("ntasks-per-gpu", None),
    ("ntasks-per-node", None),
    ("ntasks-per-socket", None),
    ("overcommit", Some('O')),
    ("oversubscribe", Some('s')),
    ("sockets-per-node", None),
];
const MEMORY_OPTIONS: &[(&str, Option<char>)] =
    &[("mem", None), ("mem-per-cpu", None), ("mem-per-gpu", None)];

/// Whether some argument is one of these options, also abbreviated.
fn has_option(arguments: &[String], options: &[(&str, Option<char>)]) -> bool {
    let is_one = |argument: &String| {
        if let Some(long) = argument.strip_prefix("--") {
            let name = long.split_once('=').map_or(long, |(name, _)| name);
            return options.iter().any(|(option, _)| name.len() > 2 && option.starts_with(name));
        }
        let letter = argument.strip_prefix('-').and_then(|short| short.chars().next());
        letter.is_some() && options.iter().any(|(_, short)| *short == letter)
    };
    arguments.iter().any(is_one)
}

/// Options that users cannot override.
fn render_required_options(
    allocation: &Allocation,
    site: &BatchContext<'_>,
    stem: &str,
) -> Result<Vec<String>, InvalidAllocation> {
    let request = &allocation.request;
    let tag = check_tag(&allocation.tag)?;
    let warning = site.warning_seconds(request);
    // Without a step only the batch script can be signaled, and with one only the step.
    let to = if request.one_worker_per_node { "" } else { "B:" };
    let output = |end: &str| -> Result<String, InvalidAllocation> {
        // Slurm replaces `%` in file names.
        let path = check_path("the output directory", &site.output_dir.join(format!("{stem}.{end}")))?;
        Ok(path.replace('%', "%%"))
    };
    let mut arguments = vec![
        "--parsable".to_owned(),
        format!("--job-name={}", add_database_id(&job_name(allocation), site.tag_prefix)),
        format!("--comment={}", add_database_id(tag, site.tag_prefix)),
        format!("--time={}", render_walltime(request.walltime)),
        "--no-requeue".to_owned(),
        "--open-mode=append".to_owned(),
        format!("--output={}", output("o")?),
        format!("--error={}", output("e")?),
        format!("--chdir={}", check_path("the directory of the workflow", site.directory)?),
        format!("--signal={to}USR1@{warning}"),
    ];
    if request.serialize {
        arguments.push("--dependency=singleton".to_owned());
    }
    Ok(arguments)
}

fn render_script(allocation: &Allocation, site: &BatchContext<'_>) -> Result<String, InvalidAllocation> {
    let (request, tag) = (&allocation.request, check_tag(&allocation.tag)?);
    let program = check_path("the program of the worker", site.windlass)?;
    let server = check_word(|| "the address of the server".to_owned(), site.server)?;
    let step = if request.one_worker_per_node {
        format!(
            "srun --nodes={} --ntasks-per-node=1 --cpus-per-task=\"$SLURM_CPUS_ON_NODE\" --mem=0 \\\n  \
             --wait=0 --kill-on-bad-exit=0 --overlap --export=ALL \\\n  ",
            request.nodes,
        )
    } else {
        String::new()
    };
    let most =
        request.max_parallel_jobs.map(|most| format!(" --max-parallel-jobs {most}")).unwrap_or_default();
    let settings = if site.settings == WorkflowSettings::default() {
        String::new()
    } else {
        // Numbers and flags only, so this cannot fail.
        let text = serde_json::to_string(&site.settings).unwrap_or_else(|_| "{}".to_owned());
        format!(" --settings {}", quote_word(&text))
    };
    Ok(format!(
        "#!/bin/sh\n\
         # Windlass: allocation {allocation} of workflow {workflow}. Its options were arguments of sbatch;\n\
         # `scontrol show job` prints them. Its tag: {tag}\n\
         # These variables would act as options of nested commands, or belong to the server.\n\
         unset {variables}\n\
         exec {step}{program} slurm worker --server {server} \\\n  \
         --workflow {workflow} --allocation {allocation} --walltime {walltime} --warning {warning} \\\n  \
         --output-dir {output}{settings}{most}\n",
        allocation = allocation.id.0,
        workflow = allocation.workflow.0,
        variables = OPTION_VARIABLES.join(" "),
        program = quote_word(&program),
        server = quote_word(server),
        walltime = request.walltime.as_secs(),
        warning = site.warning_seconds(request),
        output = quote_word(&check_path("the output directory", site.output_dir)?),
    ))
}

/// Set in an allocation, and read as options by `srun` and `sbatch` in it. (The worker's capacity is not read
/// from these.) `SLURM_JWT` is in the environment because `sbatch` needed it: it authenticates the user of the
/// server, and jobs must not get it.
pub const OPTION_VARIABLES: &[&str] = &[
    "SLURM_CPUS_PER_TASK",
    "SLURM_CPU_BIND",
    "SLURM_DISTRIBUTION",
    "SLURM_EXPORT_ENV",
    "SLURM_GPUS_PER_NODE",
    "SLURM_GPUS_PER_TASK",
    "SLURM_JWT",
    "SLURM_MEM_BIND",
    "SLURM_NPROCS",
    "SLURM_NTASKS",
    "SLURM_NTASKS_PER_NODE",
    "SLURM_OPEN_MODE",
    "SLURM_TIMELIMIT",
];

/// `D-HH:MM:SS`: unambiguous at any length.
fn render_walltime(limit: Duration) -> String {
    let seconds = limit.as_secs().max(60);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{days}-{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

fn invalid_value(place: &str, value: &str, why: &'static str) -> InvalidAllocation {
    InvalidAllocation::Value { place: place.to_owned(), value: value.to_owned(), why }
}

/// A value that is one word, and cannot be read as an option or as two words.
fn check_word(place: impl Fn() -> String, value: &str) -> Result<&str, InvalidAllocation> {
    let why = if value.is_empty() {
        "is empty"
    } else if value.chars().any(char::is_control) {
        "contains a newline or another control character"
    } else {
        return Ok(value);
    };
    Err(invalid_value(&place(), value, why))
}

fn check_path(place: &str, path: &Path) -> Result<String, InvalidAllocation> {
    let shown = path.to_string_lossy();
    let text = path.to_str().ok_or_else(|| invalid_value(place, &shown, "is not valid UTF-8"))?;
    if !path.is_absolute() {
        return Err(invalid_value(place, text, "is not absolute"));
    }
    check_word(|| place.to_owned(), text).map(str::to_owned)
}

/// The tag is searched in a column of a table: no bars and no spaces.
fn check_tag(tag: &str) -> Result<&str, InvalidAllocation> {
    if !is_valid_tag(tag) {
        return Err(invalid_value(
            "the tag",
            tag,
            "is not a valid tag: allowed are letters, digits, `-`, `_` and `.`",
        ));
    }
    Ok(tag)
}

/// Options that are invalid for the allocation of a worker, with the reason.
const REJECTED_OPTIONS: &[(&str, Option<char>, &str)] = &[
    ("array", Some('a'), "each allocation is one job; request more allocations instead"),
    ("wrap", None, "an allocation runs a worker"),
    ("wait", Some('W'), "the server does not wait for an allocation"),
    ("test-only", None, "nothing would be submitted"),
    (
        "requeue",
        None,
        "an allocation that ends is replaced by a new one, never requeued under the same job id",
    ),
    ("clusters", Some('M'), "allocations are searched on the default cluster only"),
    ("uid", None, "allocations belong to the user of the server"),
    ("gid", None, "allocations belong to the user of the server"),
    ("help", Some('h'), "nothing would be submitted"),
    ("usage", None, "nothing would be submitted"),
    ("version", Some('V'), "nothing would be submitted"),
    ("batch", None, "the worker runs on the first node"),
    ("export-file", None, "the worker has the environment of its server; set `env` of the jobs instead"),
];

/// Options that take no value, or one after `=` only: a following word belongs to nothing.
const FLAG_OPTIONS: &[(&str, Option<char>)] = &[
    ("contiguous", None),
    ("exclusive", None),
    ("get-user-env", None),
    ("hold", Some('H')),
    ("ignore-pbs", None),
    ("nice", None),
    ("no-kill", Some('k')),
    ("no-requeue", None),
    ("overcommit", Some('O')),
    ("oversubscribe", Some('s')),
    ("parsable", None),
    ("propagate", None),
    ("quiet", Some('Q')),
    ("reboot", None),
    ("spread-job", None),
    ("use-min-nodes", None),
    ("verbose", Some('v')),
];

fn reject_option(is_it: impl Fn(&str, Option<char>) -> bool) -> Result<(), InvalidAllocation> {
    match REJECTED_OPTIONS.iter().find(|(name, short, _)| is_it(name, *short)) {
        Some((name, _, why)) => Err(InvalidAllocation::Option { option: (*name).to_owned(), why }),
        None => Ok(()),
    }
}

/// Abbreviations are options, too: `--arr=1-5` is `--array`.
fn check_option_name(name: &str) -> Result<(), InvalidAllocation> {
    let is_plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
    if name.len() < 2 || !name.starts_with(|c: char| c.is_ascii_lowercase()) || !name.chars().all(is_plain) {
        return Err(invalid_value(
            "the name of an option",
            name,
            "has characters other than lowercase letters, digits and `-`",
        ));
    }
    reject_option(|refused, _| {
        refused == name || (name.len() > 2 && refused.starts_with(name) && !is_allowed_option(name))
    })
}

/// Full names of options that are also a prefix of a rejected one.
fn is_allowed_option(name: &str) -> bool {
    ["export", "batch"].contains(&name)
}

fn render_option(name: &str, value: &str) -> Result<String, InvalidAllocation> {
    check_option_name(name)?;
    if value.is_empty() {
        return Ok(format!("--{name}"));
    }
    let place = || format!("`{name}` of `slurm_defaults`");
    Ok(format!("--{name}={}", check_word(place, value)?))
}

/// The words of `extra`, each of which is an option or the value of the previous one: `sbatch` would read the
/// first other word as the script.
fn parse_extra_options(text: &str) -> Result<Vec<String>, InvalidAllocation> {
    let words = split_words(text)?;
    let mut may_be_value = false;
    for word in &words {
        may_be_value = if let Some(long) = word.strip_prefix("--") {
            let (name, value) =
                long.split_once('=').map_or((long, None), |(name, value)| (name, Some(value)));
            check_option_name(name)?;
            value.is_none() && !FLAG_OPTIONS.iter().any(|(flag, _)| *flag == name)
        } else if let Some(short) = word.strip_prefix('-').filter(|short| !short.is_empty()) {
            let letter = short.chars().next();
            reject_option(|_, refused| refused.is_some() && refused == letter)?;
            let is_flag = FLAG_OPTIONS.iter().any(|(_, flag)| flag.is_some() && *flag == letter);
            if is_flag && short.len() > 1 {
                // `-HM other`: combined flags hide what follows them.
                return Err(InvalidAllocation::UnexpectedWord { word: word.clone() });
            }
            short.len() == 1 && !is_flag
        } else if may_be_value {
            false
        } else {
            return Err(InvalidAllocation::UnexpectedWord { word: word.clone() });
        };
    }
    Ok(words)
}

#[cfg(test)]
mod tests;
