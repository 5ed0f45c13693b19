//! `squeue --steps`: the steps in allocations.

use windlass_core::slurm::job_steps::SlurmStep;

/// Free text comes last.
pub const FORMAT: &str = "%i|%j";

/// All steps with a number: the batch script and Slurm's own steps are not jobs of a workflow.
pub fn parse_steps(text: &str) -> Vec<SlurmStep> {
    text.lines().filter_map(parse_row).collect()
}

fn parse_row(line: &str) -> Option<SlurmStep> {
    let (id, name) = line.split_once('|')?;
    let (job, number) = id.trim().split_once('.')?;
    Some(SlurmStep { job_id: job.parse().ok()?, number: number.parse().ok()?, name: name.trim().to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn squeue_steps_are_parsed() {
        let found = parse_steps(
            "459.0|job_wf3_j7_r1_a2\n459.batch|batch\n459.extern|extern\n8+1.2|x\n\nrest\n460.12|a|b\n",
        );
        let step = |job_id, number, name: &str| SlurmStep { job_id, number, name: name.to_owned() };
        assert_eq!(found, [step(459, 0, "job_wf3_j7_r1_a2"), step(460, 12, "a|b")]);
    }
}
