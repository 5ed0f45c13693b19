//! `sbatch`: the job id, or the reason of a rejection.

/// What `--parsable` prints: `11`, or `12;testcluster`.
pub fn parse_job_id(printed: &str) -> Option<u64> {
    let line = printed.lines().map(str::trim).rfind(|line| !line.is_empty())?;
    line.split(';').next()?.parse().ok().filter(|number| *number > 0)
}

/// The reason of a rejection, without the name of the command and the constant parts.
pub fn parse_refusal(complaint: &str) -> String {
    let words = complaint.lines().map(str::trim).filter(|line| !line.is_empty()).map(|line| {
        let line = line.strip_prefix("sbatch: ").unwrap_or(line);
        let line = line.strip_prefix("error: ").or_else(|| line.strip_prefix("fatal: ")).unwrap_or(line);
        line.strip_prefix("Batch job submission failed: ").unwrap_or(line)
    });
    let mut message: Vec<&str> = Vec::new();
    for line in words.take(4) {
        if !message.contains(&line) {
            message.push(line);
        }
    }
    message.join("; ")
}

/// The limit of submitted jobs of this user is reached; later submissions may succeed.
pub fn is_job_limit(message: &str) -> bool {
    let words = ["job submit limit", "MaxSubmit", "GrpSubmit", "Job limit exceeded", "Reached"];
    words.iter().any(|word| message.contains(word))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_id_is_parsed_before_the_cluster_name() {
        assert_eq!(parse_job_id("11\n"), Some(11));
        assert_eq!(parse_job_id("12;testcluster\n"), Some(12));
        for other in ["", "\n", "Submitted batch job 10\n", "0\n", "x;y\n"] {
            assert_eq!(parse_job_id(other), None, "{other:?}");
        }
    }

    #[test]
    fn refusals_keep_the_text_of_slurm() {
        let rows = [
            (
                "sbatch: error: invalid partition specified: nope\n\
                 sbatch: error: Batch job submission failed: Invalid partition name specified\n",
                "invalid partition specified: nope; Invalid partition name specified",
            ),
            (
                "sbatch: error: Memory specification can not be satisfied\n\
                 sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
                "Memory specification can not be satisfied; Requested node configuration is not available",
            ),
            (
                "sbatch: error: Batch job submission failed: Requested node configuration is not available\n",
                "Requested node configuration is not available",
            ),
            ("", ""),
        ];
        for (complaint, message) in rows {
            assert_eq!(parse_refusal(complaint), message);
        }
    }

    #[test]
    fn limits_differ_from_other_refusals() {
        let policy = "Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)";
        assert!(is_job_limit(policy) && is_job_limit("QOSMaxSubmitJobPerUserLimit"));
        assert!(!is_job_limit("Invalid partition name specified"));
    }
}
