//! How a job runs as a step of the allocation: what precedes `bash -c COMMAND`.

use std::path::Path;
use std::time::Duration;
use windlass_types::settings::ExecutionConfig;
use windlass_types::worker_messages::{Assignment, StdioMode};

/// The program and its options, one word each: no shell reads them.
///
/// Slurm enforces the memory limit. The worker enforces the runtime by the second; `--time`, which counts
/// minutes, is a fallback.
pub fn render_srun(
    program: &Path,
    job_id: u64,
    assignment: &Assignment,
    config: Option<&ExecutionConfig>,
) -> Vec<String> {
    let asked = &assignment.resources;
    let nodes = asked.nodes.max(1);
    let mut words = vec![
        program.display().to_string(),
        format!("--jobid={job_id}"),
        format!("--job-name={}", assignment.key.log_stem()),
        format!("--nodes={nodes}"),
        format!("--ntasks={nodes}"),
        "--ntasks-per-node=1".to_owned(),
        format!("--cpus-per-task={}", asked.cpus.max(1)),
        "--exact".to_owned(),
        "--export=ALL".to_owned(),
        "--input=none".to_owned(),
        "--kill-on-bad-exit=1".to_owned(),
    ];
    // The messages of `srun` itself are read as well. Alone, `--output` would apply to standard error too.
    match assignment.stdio.mode {
        StdioMode::None => words.extend(["--output=none".to_owned(), "--error=none".to_owned()]),
        StdioMode::NoStderr => words.push("--error=none".to_owned()),
        StdioMode::Separate | StdioMode::Combined | StdioMode::NoStdout => {}
    }
    match asked.memory.0 >> 20 {
        // Without a memory option a step would take all of it, and the others would wait.
        0 => words.extend(["--mem=0".to_owned(), "--overlap".to_owned()]),
        megabytes => words.push(format!("--mem={megabytes}M")),
    }
    // A step that requests none would get all of them.
    words.push(if asked.gpus > 0 {
        format!("--gpus-per-node={}", asked.gpus)
    } else {
        "--gres=none".to_owned()
    });
    if let Some(runtime) = assignment.limits.runtime {
        words.push(format!("--time={}", render_minutes(runtime)));
    }
    let signal = config.and_then(|config| config.srun_termination_signal.as_deref());
    if let Some(signal) = signal.filter(|signal| is_signal(signal) && assignment.limits.runtime.is_some()) {
        words.push(format!("--signal={signal}"));
    }
    if config.and_then(|config| config.enable_cpu_bind) != Some(true) {
        words.push("--cpu-bind=none".to_owned());
    }
    if let Some(mpi) = config.and_then(|config| config.srun_mpi.as_deref()).filter(|mpi| is_plain_word(mpi)) {
        words.push(format!("--mpi={mpi}"));
    }
    words
}

/// A minute more than the runtime, so that Slurm never acts before the worker.
fn render_minutes(runtime: Duration) -> u64 {
    runtime.as_secs().div_ceil(60) + 1
}

/// `TERM@120`, `USR1`.
fn is_signal(text: &str) -> bool {
    let (name, time) = text.split_once('@').unwrap_or((text, "1"));
    let is_name = !name.is_empty() && name.bytes().all(|b| b.is_ascii_uppercase() || b.is_ascii_digit());
    is_name && time.parse::<u16>().is_ok()
}

fn is_plain_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"_-.".contains(&b))
}

#[cfg(test)]
mod tests {
    use super::*;
    use windlass_types::worker_messages::{AttemptKey, AttemptLimits};
    use windlass_types::{Attempt, Bytes, JobId, Resources, RunId, WorkflowId};

    const KEY: AttemptKey =
        AttemptKey { workflow: WorkflowId(3), job: JobId(7), run: RunId(1), attempt: Attempt(2) };

    fn line(resources: Resources, runtime: Option<Duration>, config: Option<&ExecutionConfig>) -> String {
        let mut assignment = Assignment::from_command(KEY, "it's $(x)".into(), "true".into(), resources);
        assignment.limits = AttemptLimits { memory: None, runtime };
        render_srun(Path::new("/usr/bin/srun"), 42, &assignment, config).join(" ")
    }

    #[test]
    fn srun_command_line_is_exact() {
        let asked = Resources { cpus: 2, memory: Bytes(300 << 20), ..Resources::DEFAULT };
        assert_eq!(
            line(asked, Some(Duration::from_secs(90)), None),
            "/usr/bin/srun --jobid=42 --job-name=job_wf3_j7_r1_a2 --nodes=1 --ntasks=1 --ntasks-per-node=1 \
             --cpus-per-task=2 --exact --export=ALL --input=none --kill-on-bad-exit=1 --mem=300M --gres=none --time=3 \
             --cpu-bind=none"
        );
        let config = ExecutionConfig {
            enable_cpu_bind: Some(true),
            srun_mpi: Some("pmix".into()),
            srun_termination_signal: Some("TERM@120".into()),
            ..ExecutionConfig::default()
        };
        let asked = Resources { cpus: 4, memory: Bytes(0), gpus: 2, nodes: 3, ..Resources::DEFAULT };
        assert_eq!(
            line(asked, Some(Duration::from_hours(1)), Some(&config)),
            "/usr/bin/srun --jobid=42 --job-name=job_wf3_j7_r1_a2 --nodes=3 --ntasks=3 --ntasks-per-node=1 \
             --cpus-per-task=4 --exact --export=ALL --input=none --kill-on-bad-exit=1 --mem=0 --overlap \
             --gpus-per-node=2 --time=61 --signal=TERM@120 --mpi=pmix"
        );
    }

    #[test]
    fn discarded_output_is_not_sent_to_srun() {
        for (mode, words) in [
            (StdioMode::Separate, &[][..]),
            (StdioMode::Combined, &[]),
            (StdioMode::NoStdout, &[]),
            (StdioMode::NoStderr, &["--error=none"]),
            (StdioMode::None, &["--output=none", "--error=none"]),
        ] {
            let mut assignment = Assignment::from_command(KEY, "a".into(), "true".into(), Resources::DEFAULT);
            assignment.stdio.mode = mode;
            let line = render_srun(Path::new("/usr/bin/srun"), 42, &assignment, None);
            let message: Vec<&String> = line.iter().filter(|word| word.ends_with("=none")).collect();
            let message: Vec<&String> = message
                .into_iter()
                .filter(|word| word.starts_with("--output") || word.starts_with("--error"))
                .collect();
            assert_eq!(message, words, "{mode:?}");
        }
    }

    #[test]
    fn invalid_srun_options_are_omitted() {
        let config = ExecutionConfig {
            srun_mpi: Some("pmix --jobid=1".into()),
            srun_termination_signal: Some("TERM@1; rm".into()),
            ..ExecutionConfig::default()
        };
        let line = line(Resources::DEFAULT, Some(Duration::from_secs(1)), Some(&config));
        assert!(!line.contains("--mpi") && !line.contains("--signal"), "{line}");
    }
}
