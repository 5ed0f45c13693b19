//! Meanings of lines in the output of an allocation, with remedies.
//!
//! The table covers messages of Slurm, its nodes and their environment; messages of programs are covered by
//! [`crate::log_excerpt`], which is used if the table has no match. A line proves little by itself: Slurm
//! writes `CANCELLED AT` also for a warning, so the end of an allocation is read from the database, never from
//! its output.

use crate::classify::FailureClassifier;
use crate::log_excerpt::{self, LogSeverity};
use crate::log_lines::is_harmless;
use serde::Serialize;
use windlass_types::FailureClass;

/// The meaning of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct LogLineMeaning {
    pub name: &'static str,
    pub weight: LogSeverity,
    pub means: &'static str,
    /// `None`: depends on the program.
    pub remedy: Option<&'static str>,
}

/// One row of the table.
struct SlurmLogPattern {
    name: &'static str,
    weight: LogSeverity,
    /// Alternatives in lower case. ` * ` matches any text between two parts.
    words: &'static [&'static str],
    means: &'static str,
    remedy: &'static str,
    /// Lines that this row matches, and no earlier one.
    #[cfg_attr(not(test), expect(dead_code, reason = "checked against the table by a test"))]
    examples: &'static [&'static str],
}

use LogSeverity::{Cause, Error, Hint};

/// In order: the first match counts.
const SLURM_LOG_PATTERNS: &[SlurmLogPattern] = &[
    SlurmLogPattern {
        name: "time-limit",
        weight: Cause,
        words: &["cancelled at * due to time limit"],
        means: "the allocation reached its time limit",
        remedy: "completed work is kept; request longer allocations (--walltime-multiplier, --walltime) if jobs were cut off",
        examples: &[
            "slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-15T06:31:14 DUE TO TIME LIMIT ***",
        ],
    },
    SlurmLogPattern {
        name: "preempted",
        weight: Cause,
        words: &["cancelled at * due to preemption", "due to preemption"],
        means: "it was preempted by jobs of higher priority",
        remedy: "its jobs run again in the next allocation; if this happens often, use a partition or QOS without preemption",
        examples: &[
            "slurmstepd: error: *** JOB 30 ON n4 CANCELLED AT 2026-11-15T06:25:53 DUE TO PREEMPTION ***",
        ],
    },
    SlurmLogPattern {
        name: "node-failure",
        weight: Cause,
        words: &["due to node failure", "node failure on", "node_fail", "has failed health check"],
        means: "a node of the allocation failed",
        remedy: "its jobs run again in the next allocation; report the node to the administrators, and exclude it with `extra: --exclude=NODE`",
        examples: &[
            "srun: error: Node failure on n3",
            "slurmstepd: error: *** JOB 34 ON n3 CANCELLED AT 2026-11-15T06:25:53 DUE TO NODE FAILURE, SEE SLURMCTLD LOG FOR DETAILS ***",
        ],
    },
    SlurmLogPattern {
        name: "memory-limit",
        weight: Cause,
        words: &[
            "oom-kill event",
            "oom_kill event",
            "oom killed",
            "exceeded step memory limit",
            "exceeded job memory limit",
            "srun: error: * task * out of memory",
            "exceeded memory limit",
        ],
        means: "a process exceeded its memory limit and was killed",
        remedy: "`windlass recover` gives such jobs more memory; or increase `memory` in their resource_requirements",
        examples: &[
            "slurmstepd: error: Detected 1 oom_kill event in StepId=2.batch. Some of the step tasks have been OOM Killed.",
            "srun: error: n1: task 0: Out Of Memory",
        ],
    },
    SlurmLogPattern {
        name: "signalled",
        weight: Hint,
        words: &["*** * on * cancelled at"],
        means: "Slurm sent a signal; it also writes this for a warning before the end",
        remedy: "`windlass slurm allocations` shows how the allocation ended",
        examples: &["slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-15T06:31:14 ***"],
    },
    SlurmLogPattern {
        name: "controller-away",
        weight: Error,
        words: &[
            "unable to contact slurm controller",
            "socket timed out on send/recv operation",
            "zero bytes were transmitted or received",
        ],
        means: "Slurm's controller did not answer; this does not affect allocations and jobs",
        remedy: "usually none: the call is repeated. `scontrol ping` shows whether the controller is up",
        examples: &[
            "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
            "srun: error: slurm_receive_msgs: Socket timed out on send/recv operation",
        ],
    },
    SlurmLogPattern {
        name: "munge",
        weight: Cause,
        words: &["munge * fail", "munge_decode", "munge_encode", "protocol authentication error"],
        means: "Slurm could not authenticate the user (munge)",
        remedy: "ask the administrators: is munged running on that node, with the same key and a correct clock?",
        examples: &[
            "sbatch: error: Munge encode failed: Failed to access \"/run/munge/munge.socket.2\"",
            "slurm_load_jobs error: Protocol authentication error",
        ],
    },
    SlurmLogPattern {
        name: "accounting-away",
        weight: Hint,
        words: &["problem talking to the database", "slurm accounting storage is disabled"],
        means: "Slurm's accounting did not answer",
        remedy: "none: accounting is queried again, and its data is replaced by other sources",
        examples: &[
            "sacct: error: slurm_persist_conn_open: Problem talking to the database: Connection refused",
        ],
    },
    SlurmLogPattern {
        name: "quota",
        weight: Cause,
        words: &["disk quota exceeded", "quota exceeded"],
        means: "your quota on a filesystem is used up",
        remedy: "delete files, or write the output elsewhere (`--output-dir`); then `windlass recover`",
        examples: &["cp: error writing 'out.h5': Disk quota exceeded"],
    },
    SlurmLogPattern {
        name: "disk-full",
        weight: Cause,
        words: &["no space left on device"],
        means: "a filesystem is full; on a node usually /tmp",
        remedy: "free some space, or set TMPDIR to a larger filesystem; `tmp` of a scheduler requests nodes with enough space",
        examples: &["OSError: [Errno 28] No space left on device"],
    },
    SlurmLogPattern {
        name: "no-worker-program",
        weight: Cause,
        words: &[
            "windlass: not found",
            "windlass: no such file",
            "windlass: permission denied",
            "exec: * windlass * not found",
        ],
        means: "the node cannot start Windlass: the program is missing",
        remedy: "install it on a filesystem shared by the nodes, or set its path: `windlass serve --slurm --slurm-windlass PATH`",
        examples: &["/var/spool/slurmd/job00007/slurm_script: 6: exec: /home/ada/bin/windlass: not found"],
    },
    SlurmLogPattern {
        name: "no-output-file",
        weight: Cause,
        words: &[
            "could not open stdout file",
            "could not open stderr file",
            "unable to open * stdout",
            "slurm_script: no such file",
        ],
        means: "the node could not write the output of the allocation",
        remedy: "the workflow's output directory must be on a filesystem shared by the nodes (`--output-dir`)",
        examples: &[
            "slurmstepd: error: Could not open stdout file /scratch/out/slurm_output_wf1_sl2.o: No such file or directory",
        ],
    },
    SlurmLogPattern {
        name: "launch-failed",
        weight: Cause,
        words: &[
            "prolog failed",
            "prolog failure",
            "launch failed",
            "task launch for",
            "error configuring interconnect",
            "unable to satisfy cpu bind request",
        ],
        means: "the node could not start a step or script",
        remedy: "report the node to the administrators; exclude it with `extra: --exclude=NODE`",
        examples: &["srun: error: Task launch for StepId=4711.0 failed on node n7: Invalid job credential"],
    },
    SlurmLogPattern {
        name: "step-waits",
        weight: Hint,
        words: &[
            "step creation temporarily disabled",
            "step creation still disabled",
            "requested nodes are busy",
        ],
        means: "a step waits until others of the allocation end",
        remedy: "none, unless it persists: then jobs request more than the allocation has left",
        examples: &["srun: Job 37 step creation temporarily disabled, retrying (Requested nodes are busy)"],
    },
    SlurmLogPattern {
        name: "step-refused",
        weight: Cause,
        words: &[
            "unable to create step for job",
            "memory required by task is not available",
            "more processors requested than permitted",
        ],
        means: "a job requests more than its allocation has",
        remedy: "use larger allocations: `windlass slurm regenerate` creates them from the present requests of jobs",
        examples: &[
            "srun: error: Unable to create step for job 37: Memory required by task is not available",
        ],
    },
    SlurmLogPattern {
        name: "never-fits",
        weight: Cause,
        words: &[
            "requested node configuration is not available",
            "requested partition configuration not available",
        ],
        means: "no node of the partition has the requested resources",
        remedy: "`windlass slurm hpc match` shows partitions that have them",
        examples: &[
            "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        ],
    },
    SlurmLogPattern {
        name: "not-allowed",
        weight: Cause,
        words: &[
            "invalid account or account/partition combination",
            "invalid partition name specified",
            "invalid qos",
            "violates accounting/qos policy",
            "user's group not permitted to use this partition",
            "invalid partition specified",
        ],
        means: "Slurm rejected the account, the partition or the QOS",
        remedy: "`sacctmgr show associations user=$USER` lists yours; set another with `--account`, `--partition` or in the scheduler",
        examples: &[
            "sbatch: error: Batch job submission failed: Invalid partition name specified",
            "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        ],
    },
    SlurmLogPattern {
        name: "module-missing",
        weight: Cause,
        words: &[
            "module: command not found",
            "module: not found",
            "lmod has detected the following error",
            "unable to locate a modulefile",
            "the following module(s) are unknown",
        ],
        means: "an environment module cannot be loaded",
        remedy: "`module avail` lists available modules; scripts that use `module` must start with `#!/bin/bash -l`, or source its setup first",
        examples: &["/bin/sh: 1: module: not found", "ERROR: Unable to locate a modulefile for 'gcc/99'"],
    },
    SlurmLogPattern {
        name: "no-cards",
        weight: Cause,
        words: &[
            "no cuda-capable device",
            "cuda driver version is insufficient",
            "nvidia-smi has failed",
            "no cuda gpus are available",
            "cuda_error_no_device",
        ],
        means: "the program found no GPU, or its driver is too old",
        remedy: "set `num_gpus` in the job's resource_requirements, so that its allocation has GPUs",
        examples: &["RuntimeError: No CUDA GPUs are available"],
    },
    SlurmLogPattern {
        name: "card-memory",
        weight: Cause,
        words: &[
            "cuda out of memory",
            "cuda_error_out_of_memory",
            "outofmemoryerror: cuda",
            "cublas_status_alloc_failed",
        ],
        means: "the memory of a GPU was used up",
        remedy: "use smaller batches, or GPUs with more memory (`gres: gpu:a100:1`); more `memory` for the job does not help",
        examples: &["torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"],
    },
    SlurmLogPattern {
        name: "card-error",
        weight: Cause,
        words: &["cuda error", "cudnn_status", "uncorrectable ecc error", "nccl * unhandled", "nvrm: xid"],
        means: "a GPU or its interconnect failed",
        remedy: "run the job again on another node; if it is always the same node, report it to the administrators",
        examples: &["RuntimeError: CUDA error: uncorrectable ECC error encountered"],
    },
    SlurmLogPattern {
        name: "filesystem",
        weight: Cause,
        words: &[
            "stale file handle",
            "stale nfs file handle",
            "transport endpoint is not connected",
            "input/output error",
            "cannot send after transport endpoint shutdown",
        ],
        means: "a shared filesystem failed on that node",
        remedy: "run the job again; if it persists, report it to the administrators",
        examples: &["cat: /home/ada/in.csv: Stale file handle"],
    },
    SlurmLogPattern {
        name: "old-system",
        weight: Cause,
        words: &["version `glibc", "version `cxxabi", "version `glibcxx"],
        means: "the program was built for a newer system than that of the node",
        remedy: "build it there, or load the compiler's module in the job",
        examples: &["./solve: /lib64/libc.so.6: version `GLIBC_2.34' not found (required by ./solve)"],
    },
    SlurmLogPattern {
        name: "step-killed",
        weight: Error,
        words: &[
            "srun: error: * task * killed",
            "srun: error: * task * terminated",
            "srun: error: * task * segmentation fault",
            "srun: error: * task * aborted",
        ],
        means: "a job of the allocation was ended by a signal",
        remedy: "`windlass jobs results` shows the job and the reason",
        examples: &["srun: error: n1: task 0: Killed"],
    },
    SlurmLogPattern {
        name: "step-failed",
        weight: Error,
        words: &["srun: error: * task * exited with exit code"],
        means: "a job of the allocation failed",
        remedy: "`windlass failures` shows the job and the reason",
        examples: &["srun: error: n1: task 0: Exited with exit code 9"],
    },
    SlurmLogPattern {
        name: "srun",
        weight: Error,
        words: &["srun: error:", "sbatch: error:", "slurmstepd: error:"],
        means: "Slurm reported an error",
        remedy: "see the lines around it",
        examples: &["srun: error: some unknown condition"],
    },
];

/// Returns the meaning of a line, if known.
pub fn explain_line(line: &str) -> Option<LogLineMeaning> {
    let lower = line.to_lowercase();
    let knows = |sign: &&SlurmLogPattern| sign.words.iter().any(|words| contains_parts(&lower, words));
    if let Some(sign) = SLURM_LOG_PATTERNS.iter().find(knows) {
        let SlurmLogPattern { name, weight, means, remedy, .. } = *sign;
        return Some(LogLineMeaning { name, weight, means, remedy: Some(remedy) });
    }
    if is_harmless(&lower) {
        return None;
    }
    let sign = log_excerpt::match_line(line)?;
    let class = FailureClassifier::standard().rule_for_line(line).map(|rule| rule.class);
    Some(LogLineMeaning {
        name: sign.name,
        weight: sign.weight,
        means: sign.means,
        remedy: class.and_then(remedy_for_class),
    })
}

/// Returns words of which every matching line contains at least one, in lower case.
pub(crate) fn pattern_words() -> impl Iterator<Item = &'static str> {
    let longest = |words: &&'static str| words.split(" * ").max_by_key(|part| part.len()).unwrap_or(words);
    SLURM_LOG_PATTERNS.iter().flat_map(|sign| sign.words).map(longest)
}

#[cfg(test)]
pub(crate) fn example_lines() -> impl Iterator<Item = &'static str> {
    SLURM_LOG_PATTERNS.iter().flat_map(|sign| sign.examples).copied()
}

/// Returns the remedy for a failure class.
const fn remedy_for_class(class: FailureClass) -> Option<&'static str> {
    match class {
        FailureClass::Memory => Some("`windlass recover` gives the job more memory"),
        FailureClass::Timeout => Some("`windlass recover` gives the job more time"),
        FailureClass::Transient => Some("run it again: `windlass resume --retry-failed`"),
        FailureClass::Infrastructure => {
            Some("run it again on another node; if it persists, report it to the administrators")
        }
        FailureClass::Data => Some("check the job's inputs"),
        FailureClass::Permanent | FailureClass::Unknown => None,
    }
}

/// Whether the parts of `words` occur in the line, in this order.
fn contains_parts(line: &str, words: &str) -> bool {
    let mut rest = line;
    words.split(" * ").all(|part| match rest.find(part) {
        Some(at) => {
            rest = &rest[at + part.len()..];
            true
        }
        None => false,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn slurm_log_patterns_match_their_examples() {
        let mut names = BTreeSet::new();
        for sign in SLURM_LOG_PATTERNS {
            assert!(names.insert(sign.name), "{} twice", sign.name);
            assert!(!sign.examples.is_empty() && !sign.remedy.is_empty(), "{}", sign.name);
            for words in sign.words {
                assert_eq!(*words, words.to_lowercase());
            }
            for example in sign.examples {
                assert_eq!(explain_line(example).map(|found| found.name), Some(sign.name), "{example}");
            }
        }
    }

    #[test]
    fn warning_is_not_an_end() {
        let warned =
            explain_line("slurmstepd: error: *** JOB 7 ON n1 CANCELLED AT 2026-11-15T06:31:14 ***").unwrap();
        assert_eq!((warned.name, warned.weight), ("signalled", LogSeverity::Hint));
        let step = explain_line("slurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-11-15T06:31:14 ***")
            .unwrap();
        assert_eq!(step.name, "signalled");
    }

    #[test]
    fn program_messages_are_left_to_other_rules() {
        for (line, name) in [
            ("Traceback (most recent call last):", "traceback (most recent call last)"),
            ("solvr: command not found", "program-missing"),
            ("Error: std::bad_alloc", "no-memory"),
        ] {
            assert_eq!(explain_line(line).map(|found| found.name), Some(name), "{line}");
        }
        assert!(explain_line("Error: std::bad_alloc").unwrap().remedy.is_some());
        for line in ["all is well", "worker 3: 12 jobs done", "12 passed, 0 failed"] {
            assert_eq!(explain_line(line), None, "{line}");
        }
    }
}
