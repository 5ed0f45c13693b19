//! How an allocation is asked for: the arguments of `sbatch`, and the script that it hands to Slurm.
//!
//! Options are arguments and never lines of the script: what somebody wrote is then a word, whatever is in it, and the
//! script is short enough to be read. What users ask for comes first and ours last, because with `sbatch` the last one
//! counts: nobody takes the tag away that an allocation is found by.

use super::shell_words::{WordSplitError, quote_word, split_words};
use std::path::{Path, PathBuf};
use std::time::Duration;
use windlass_core::slurm::allocation_rows::is_valid_tag;
use windlass_core::slurm::database_id::mark_tag;
use windlass_types::settings::WorkflowSettings;
use windlass_types::slurm::{Allocation, AllocationRequest};

/// What a batch script needs to know besides the allocation.
#[derive(Clone, Debug)]
pub struct BatchContext<'a> {
    /// The program that the worker is.
    pub windlass: &'a Path,
    /// Where the worker finds its server.
    pub server: &'a str,
    /// Where the workflow's output goes; what the allocation prints is kept here.
    pub output_dir: &'a Path,
    /// Where the batch script starts.
    pub directory: &'a Path,
    /// Of the books: what tells our jobs from those of a copy. May be empty.
    pub tag_prefix: &'a str,
    /// So long before its end the worker is told. Slurm may be a minute early, never late.
    pub warning: Duration,
    /// What the worker has to know of its workflow should the server be away when it begins.
    pub settings: WorkflowSettings,
}

impl BatchContext<'_> {
    /// So long before its end the worker of such an allocation is told.
    fn warning_seconds(&self, request: &AllocationRequest) -> u64 {
        self.warning.min(request.walltime / 2).as_secs().max(1)
    }
}

/// An allocation that can be asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchSubmission {
    /// Of `sbatch`, which reads the script from its standard input.
    pub arguments: Vec<String>,
    pub script: String,
    /// Where Slurm writes what the allocation prints.
    pub outputs: [PathBuf; 2],
}

/// Something in a request that cannot be asked for.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAllocation {
    #[error("{place} is {value:?}, which {why}")]
    Value { place: String, value: String, why: &'static str },
    #[error("`extra` of the scheduler cannot be taken apart: {0}")]
    Extra(#[from] WordSplitError),
    #[error("`--{option}` in `extra` or `slurm_defaults` cannot be used: {why}")]
    Option { option: String, why: &'static str },
    #[error("`{word}` in `extra` belongs to no option: write `--option=value`")]
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

/// What Slurm is asked with when such an allocation would start. Nothing is submitted.
pub fn render_test_only_arguments(request: &AllocationRequest) -> Result<Vec<String>, InvalidAllocation> {
    let mut arguments = vec!["--test-only".to_owned()];
    arguments.extend(render_user_options(request)?);
    arguments.push(format!("--time={}", render_walltime(request.walltime)));
    arguments.extend(["--wrap", "true"].map(str::to_owned));
    Ok(arguments)
}

/// What the files of an allocation are called: as Torc calls what they hold.
pub fn file_stem(allocation: &Allocation) -> String {
    format!("slurm_output_wf{}_sl{}", allocation.workflow.0, allocation.id.0)
}

/// Jobs of one series have one name, so that Slurm lets one run at a time; all others have their tag for a name.
pub fn job_name(allocation: &Allocation) -> String {
    if !allocation.request.serialize {
        return allocation.tag.clone();
    }
    let plain = |c: char| if c.is_ascii_alphanumeric() || "_-.".contains(c) { c } else { '_' };
    let scheduler: String = allocation.request.scheduler.chars().map(plain).take(64).collect();
    format!("{}-wf{}-{scheduler}", series_prefix(&allocation.tag), allocation.workflow.0)
}

/// What all tags of one server begin with, so that two servers of one user have no series in common.
fn series_prefix(tag: &str) -> &str {
    tag.rsplit_once('-').map_or(tag, |(prefix, _)| prefix)
}

/// What the user asks for.
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
        return Err(invalid_value("`nodes` of the scheduler", "0", "is no number of nodes"));
    }
    arguments.push(format!("--nodes={}", request.nodes));
    if let Some(tasks) = request.ntasks_per_node {
        arguments.push(format!("--ntasks-per-node={tasks}"));
    }
    request_whole_nodes(&mut arguments);
    Ok(arguments)
}

/// A scheduler that names nodes and no cores means whole nodes: Slurm would give it one core of each, with the memory that
/// belongs to one.
fn request_whole_nodes(arguments: &mut Vec<String>) {
    if has_option(arguments, CORE_OPTIONS) {
        return;
    }
    arguments.push("--exclusive".to_owned());
    if !has_option(arguments, MEMORY_OPTIONS) {
        arguments.push("--mem=0".to_owned());
    }
}

/// Options that say how many cores an allocation has, or who else is on its nodes.
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

/// Whether some of the arguments is one of these options; abbreviated ones are.
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

/// What is ours to say, whatever the user asks for.
fn render_required_options(
    allocation: &Allocation,
    site: &BatchContext<'_>,
    stem: &str,
) -> Result<Vec<String>, InvalidAllocation> {
    let request = &allocation.request;
    let tag = check_tag(&allocation.tag)?;
    let warning = site.warning_seconds(request);
    // Without a step only the batch script itself can be told, and with one only the step is.
    let to = if request.one_worker_per_node { "" } else { "B:" };
    let output = |end: &str| -> Result<String, InvalidAllocation> {
        // Slurm replaces `%` in names of files.
        let path = check_path("the output directory", &site.output_dir.join(format!("{stem}.{end}")))?;
        Ok(path.replace('%', "%%"))
    };
    let mut arguments = vec![
        "--parsable".to_owned(),
        format!("--job-name={}", mark_tag(&job_name(allocation), site.tag_prefix)),
        format!("--comment={}", mark_tag(tag, site.tag_prefix)),
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
        // Numbers and flags alone: there is nothing in it that cannot be written.
        let text = serde_json::to_string(&site.settings).unwrap_or_else(|_| "{}".to_owned());
        format!(" --settings {}", quote_word(&text))
    };
    Ok(format!(
        "#!/bin/sh\n\
         # Windlass: allocation {allocation} of workflow {workflow}. What it asks of Slurm was said to sbatch as arguments;\n\
         # `scontrol show job` tells. It is known by its tag: {tag}\n\
         # These would be taken for options of what is started below, or are the server's own.\n\
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

/// Set in an allocation, and taken for options by `srun` and `sbatch` that are called there. (What the worker reads its
/// capacity from is not among them.) `SLURM_JWT` is there because `sbatch` needed it to be let in: it speaks for the user of
/// the server, and is not for jobs.
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

/// `D-HH:MM:SS`: the same to everybody, however long.
fn render_walltime(limit: Duration) -> String {
    let seconds = limit.as_secs().max(60);
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    format!("{days}-{hours:02}:{minutes:02}:{:02}", seconds % 60)
}

fn invalid_value(place: &str, value: &str, why: &'static str) -> InvalidAllocation {
    InvalidAllocation::Value { place: place.to_owned(), value: value.to_owned(), why }
}

/// A value that is one word, and cannot be taken for an option or for two.
fn check_word(place: impl Fn() -> String, value: &str) -> Result<&str, InvalidAllocation> {
    let why = if value.is_empty() {
        "is empty"
    } else if value.chars().any(char::is_control) {
        "has a newline or another control character in it"
    } else {
        return Ok(value);
    };
    Err(invalid_value(&place(), value, why))
}

fn check_path(place: &str, path: &Path) -> Result<String, InvalidAllocation> {
    let shown = path.to_string_lossy();
    let text = path
        .to_str()
        .ok_or_else(|| invalid_value(place, &shown, "is not text that Slurm takes: not UTF-8"))?;
    if !path.is_absolute() {
        return Err(invalid_value(place, text, "is not absolute"));
    }
    check_word(|| place.to_owned(), text).map(str::to_owned)
}

/// Found again by it, in a column of a table: no bars and no spaces.
fn check_tag(tag: &str) -> Result<&str, InvalidAllocation> {
    if !is_valid_tag(tag) {
        return Err(invalid_value("the tag", tag, "is no tag: it has letters, digits, `-`, `_` and `.`"));
    }
    Ok(tag)
}

/// Options that are not for a worker's allocation, and why.
const REJECTED_OPTIONS: &[(&str, Option<char>, &str)] = &[
    ("array", Some('a'), "each allocation is one job; ask for more allocations instead"),
    ("wrap", None, "what an allocation runs is a worker"),
    ("wait", Some('W'), "nobody waits for an allocation"),
    ("test-only", None, "nothing would be submitted"),
    (
        "requeue",
        None,
        "an allocation that ends is replaced by a new one, never started twice under one number",
    ),
    ("clusters", Some('M'), "allocations are looked for on one cluster, the default one"),
    ("uid", None, "allocations belong to whoever runs the server"),
    ("gid", None, "allocations belong to whoever runs the server"),
    ("help", Some('h'), "nothing would be submitted"),
    ("usage", None, "nothing would be submitted"),
    ("version", Some('V'), "nothing would be submitted"),
    ("batch", None, "the worker runs on the first node"),
    ("export-file", None, "the worker's environment is its server's; use the jobs' `env`"),
];

/// Options that take no value, or one after `=` only: a word after them belongs to nothing.
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
            "has other characters than small letters, digits and `-`",
        ));
    }
    reject_option(|refused, _| {
        refused == name || (name.len() > 2 && refused.starts_with(name) && !is_allowed_option(name))
    })
}

/// Whole names of options that are also the beginning of one that is refused.
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

/// The words of `extra`, each of which is an option or the value of the one before it: `sbatch` takes the first other one
/// for the script.
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
                // `-HM other`: flags that were put together hide what follows them.
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
