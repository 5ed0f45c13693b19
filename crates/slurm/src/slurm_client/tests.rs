use super::*;
use std::os::unix::fs::PermissionsExt as _;

#[test]
fn unreachable_slurm_differs_from_a_refusal() {
    for away in [
        "slurm_load_jobs error: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Unable to contact slurm controller (connect failure)",
        "scancel: error: Kill job error on job id 1: Unable to contact slurm controller (connect failure)",
        "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation",
        "sacct: error: slurm_persist_conn_open_without_init: failed to open persistent connection to host:localhost:6819: Connection refused\n\
         sacct: error: Problem talking to the database: Connection refused",
        "squeue: error: Munge encode failed: Failed to access \"/run/munge.socket\"",
        "slurm_load_jobs error: Protocol authentication error",
    ] {
        assert!(is_unreachable(SlurmTool::Squeue, away), "{away}");
    }
    for no in [
        "sbatch: error: invalid partition specified: nope\nsbatch: error: Batch job submission failed: Invalid partition name specified",
        "sbatch: error: Batch job submission failed: Requested node configuration is not available",
        "sbatch: error: Batch job submission failed: Job violates accounting/QOS policy (job submit limit, user's size and/or time limits)",
        "scancel: error: Kill job error on job id 29: Access/permission denied",
        "slurm_load_jobs error: Invalid job id specified",
        "Slurm accounting storage is disabled",
        "sbatch: error: Batch job submission failed: Invalid account or account/partition combination specified",
    ] {
        assert!(!is_unreachable(SlurmTool::Sbatch, no), "{no}");
    }
    let unspecified = "sbatch: error: Batch job submission failed: Unspecified error";
    assert!(!is_unreachable(SlurmTool::Sbatch, unspecified), "a submission script of the site rejected it");
    assert!(is_unreachable(
        SlurmTool::Scancel,
        "scancel: error: Kill job error on job id 4: Unspecified error"
    ));
}

/// What a real cluster does not do on demand: commands that hang, or print unknown text.
fn scripted(commands: &[(&str, &str)], limit: Duration) -> (tempfile::TempDir, SlurmClient) {
    scripted_with(commands, limit, &[])
}

/// The same with variables for the commands.
fn scripted_with(
    commands: &[(&str, &str)],
    limit: Duration,
    variables: &[(&str, &str)],
) -> (tempfile::TempDir, SlurmClient) {
    let directory = tempfile::tempdir().unwrap();
    for (name, script) in commands {
        let path = directory.path().join(name);
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    let tools = Some(directory.path().to_owned());
    let slurm = SlurmClient::new(SlurmClientOptions {
        tools_dir: tools,
        timeout: limit,
        environment: variables
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
            .collect(),
        ..SlurmClientOptions::default()
    });
    (directory, slurm)
}

const LONG: Duration = Duration::from_mins(1);

#[test]
fn hanging_command_is_killed_without_answer() {
    let (_directory, slurm) = scripted(&[("sbatch", "exec sleep 1000")], Duration::from_millis(300));
    let outcome = slurm.submit(&[], "#!/bin/sh\n", &[]);
    assert!(
        matches!(outcome, SlurmOutcome::Unknown(SlurmUnavailable::TimedOut { tool: "sbatch", .. })),
        "{outcome:?}"
    );
    assert!(
        matches!(
            slurm.submit(&[], "#!/bin/sh\n", &[]),
            SlurmOutcome::Unknown(SlurmUnavailable::OutOfBudget { .. })
        ),
        "no calls for a while"
    );
    assert_eq!(
        (slurm.total_statistics()["sbatch"].calls, slurm.total_statistics()["sbatch"].timed_out),
        (1, 1)
    );
}

/// Larger than the capacity of a pipe.
#[test]
fn script_is_passed_on_stdin() {
    let script = format!("#!/bin/sh\n: {}\n", "x".repeat(1 << 20));
    let length = script.len();
    let sbatch = format!("[ $# = 0 ] && [ \"$(wc -c)\" -eq {length} ] && echo 42");
    let (_directory, slurm) = scripted(&[("sbatch", &sbatch)], LONG);
    assert_eq!(slurm.submit(&[], &script, &[]), SlurmOutcome::Answered(42));
}

#[test]
fn slurm_token_authenticates_sbatch_but_is_not_exported_to_the_job() {
    let sbatch = "[ \"$SLURM_JWT $*\" = 'secret --wrap true --export=ALL,SLURM_JWT=' ] && echo 42";
    let (_directory, slurm) = scripted_with(&[("sbatch", sbatch)], LONG, &[("SLURM_JWT", "secret")]);
    let arguments = ["--wrap", "true"].map(str::to_owned);
    assert_eq!(slurm.submit(&arguments, "#!/bin/sh\n", &[]), SlurmOutcome::Answered(42));
}

#[test]
fn unreadable_answer_is_not_an_empty_list() {
    let (_directory, slurm) = scripted(&[("sbatch", "echo hello"), ("squeue", "exit 1")], LONG);
    let outcome = slurm.submit(&[], "#!/bin/sh\n", &[]);
    assert!(
        matches!(outcome, SlurmOutcome::Unknown(SlurmUnavailable::UnreadableAnswer { .. })),
        "{outcome:?}"
    );
    assert_eq!(slurm.list_jobs(), SlurmOutcome::Refused(String::new()), "and not that the user has no jobs");
}

#[test]
fn missing_commands_are_reported() {
    let (_directory, slurm) = scripted(&[], LONG);
    let SlurmOutcome::Unknown(why) = slurm.list_jobs() else { panic!("answered") };
    assert!(
        why.is_certainly_not_sent() && why.to_string().starts_with("cannot start `squeue`: install"),
        "{why}"
    );
}

#[test]
fn cancels_are_sent_in_chunks() {
    let (directory, slurm) = scripted(&[("scancel", "echo $# >> \"$0.log\"")], LONG);
    assert_eq!(slurm.cancel_jobs(&(1..=250).collect::<Vec<_>>()), SlurmOutcome::Answered(()));
    let calls = std::fs::read_to_string(directory.path().join("scancel.log")).unwrap();
    assert_eq!(calls, "100\n100\n50\n");
    assert_eq!(slurm.cancel_jobs(&[]), SlurmOutcome::Answered(()));
}

#[test]
fn missing_accounting_is_an_answer() {
    let disabled = "echo 'Slurm accounting storage is disabled' >&2; exit 1";
    let (_directory, slurm) = scripted(&[("sacct", disabled)], LONG);
    let ids = BTreeSet::from([1]);
    assert_eq!(
        slurm.find_accounted_jobs(&ids, &BTreeSet::new(), Timestamp(0)),
        SlurmOutcome::Answered(AccountingRecords::Disabled)
    );
    assert_eq!(render_day_before(Timestamp(86_400_000_000)), "1970-01-01T00:00:00");
}
