//! Each reason by example, and properties of random workflows.

use super::*;
use crate::dependency_edges::DependencyEdgesBuilder;
use proptest::prelude::*;
use std::borrow::Cow;
use std::collections::BTreeMap;

fn state(mtime_ns: i64, hash: Option<&str>) -> FileSnapshot {
    FileSnapshot { mtime_ns, size: 1, hash: hash.map(str::to_owned) }
}

/// `prepare` reads raw and writes clean; `solve` reads clean and writes out; `plot` waits for solve.
#[derive(Clone)]
struct Fixture {
    old: Vec<PreviousJob<'static>>,
    now: Vec<ReuseDefinition<'static>>,
    disk: BTreeMap<String, FileSnapshot>,
    /// A directory that contains other declared files.
    shared: &'static str,
    accepted: Vec<AcceptedChange>,
    edges: DependencyEdges,
}

fn job(name: &'static str, inputs: &[&'static str], outputs: &[&'static str]) -> ReuseDefinition<'static> {
    let paths = |paths: &[&'static str]| paths.iter().map(|path| Cow::Borrowed(*path)).collect();
    ReuseDefinition {
        name: Cow::Borrowed(name),
        command: Cow::Owned(format!("run {name}")),
        inputs: paths(inputs),
        outputs: paths(outputs),
        ..ReuseDefinition::default()
    }
}

impl Fixture {
    fn new() -> Self {
        let now = vec![
            job("prepare", &["raw"], &["clean"]),
            job("solve", &["clean"], &["out"]),
            job("plot", &[], &[]),
        ];
        let seen = |definition: &ReuseDefinition<'static>| {
            let states = |paths: &[Cow<'_, str>]| paths.iter().map(|_| Some(state(7, None))).collect();
            AttemptFiles { inputs: states(&definition.inputs), outputs: states(&definition.outputs) }
        };
        let before = |definition: &ReuseDefinition<'static>| PreviousJob {
            definition: definition.clone(),
            status: JobStatus::Completed,
            files: Some(seen(definition)).filter(|_| definition.name != "plot"),
            has_added: false,
        };
        let mut builder = DependencyEdgesBuilder::default();
        builder.add_dependencies(1, &[0]);
        builder.add_dependencies(2, &[1]);
        Self {
            old: now.iter().map(before).collect(),
            now,
            disk: ["raw", "clean", "out"].map(|path| (path.to_owned(), state(7, None))).into(),
            shared: "",
            accepted: Vec::new(),
            edges: builder.finish(),
        }
    }

    fn decide(&self) -> Vec<ReuseDecision> {
        decide_reuse(&ReuseQuery {
            jobs: self.now.len() as u32,
            edges: &self.edges,
            current: &|job| self.now[job as usize].clone(),
            previous: &|_, name| self.old.iter().find(|old| old.definition.name == name).cloned(),
            file: &|path| self.disk.get(path).cloned(),
            is_shared: &|path| self.shared == path,
            accepted: &self.accepted,
        })
        .unwrap()
    }

    /// Expected decisions; `None` means because of the first job that runs.
    fn expect(&self, reasons: [Option<RerunReason>; 3]) {
        let expected = reasons.map(|reason| reason.map_or(ReuseDecision::Reuse, ReuseDecision::Run));
        assert_eq!(self.decide(), expected);
    }
}

fn upstream(job: u32, through: u32) -> RerunReason {
    RerunReason::Upstream { job, through }
}

#[test]
fn rerun_reasons_are_described() {
    let file = |hash| FileSnapshot { mtime_ns: 1_700_000_000_000_000_000, size: 2048, hash };
    let sized = |size| FileSnapshot { size, ..file(None) };
    let name = |job: u32| ["prepare", "solve"][job as usize].to_owned();
    for (reason, words) in [
        (RerunReason::NotCompleted { status: JobStatus::Failed }, "was failed"),
        (
            RerunReason::Changed { field: DefinitionField::Command, old: "a".into(), new: "b".into() },
            "command changed: a → b",
        ),
        (
            RerunReason::InputChanged { file: "raw".into(), old: None, new: file(None) },
            "input raw changed: missing → 2 KiB",
        ),
        (
            RerunReason::InputChanged { file: "raw".into(), old: Some(sized(2048)), new: sized(4096) },
            "input raw changed: 2 KiB → 4 KiB",
        ),
        (
            RerunReason::InputChanged {
                file: "raw".into(),
                old: Some(sized(5 << 30)),
                new: sized((5 << 30) + 1),
            },
            "input raw changed: 5368709120 bytes → 5368709121 bytes",
        ),
        (
            RerunReason::InputChanged {
                file: "raw".into(),
                old: Some(FileSnapshot { mtime_ns: 0, ..file(None) }),
                new: file(None),
            },
            "input raw changed: 1970-01-01T00:00:00.000Z → 2023-11-14T22:13:20.000Z",
        ),
        (
            RerunReason::InputChanged {
                file: "raw".into(),
                old: Some(file(Some("0123456789abcdef".into()))),
                new: file(Some("fedcba9876543210".into())),
            },
            "input raw changed: contents 0123456789ab → contents fedcba987654",
        ),
        (upstream(1, 1), "depends on solve, which runs"),
        (upstream(0, 1), "depends on solve, which runs because of prepare"),
    ] {
        assert_eq!(reason.describe(name), words);
    }
}

#[test]
fn unchanged_workflow_reruns_nothing() {
    let fixture = Fixture::new();
    fixture.expect([None, None, None]);
    assert_eq!(
        ReuseSummary::from_decisions(&fixture.decide()),
        ReuseSummary { reused: 3, ..ReuseSummary::default() }
    );
}

#[test]
fn new_job_and_its_dependents_run() {
    let mut fixture = Fixture::new();
    fixture.old.remove(1);
    fixture.expect([None, Some(RerunReason::New), Some(upstream(1, 1))]);
}

#[test]
fn incomplete_jobs_run_and_disabled_stay_disabled() {
    let mut fixture = Fixture::new();
    fixture.old[1].status = JobStatus::Failed;
    fixture.expect([
        None,
        Some(RerunReason::NotCompleted { status: JobStatus::Failed }),
        Some(upstream(1, 1)),
    ]);
    fixture.old[1].status = JobStatus::Disabled;
    fixture.expect([None, None, None]);
}

#[test]
fn rerun_names_its_nearest_cause() {
    let mut fixture = Fixture::new();
    fixture.disk.insert("raw".into(), state(8, None));
    let changed =
        RerunReason::InputChanged { file: "raw".into(), old: Some(state(7, None)), new: state(8, None) };
    fixture.expect([Some(changed), Some(upstream(0, 0)), Some(upstream(0, 1))]);
    let summary = ReuseSummary::from_decisions(&fixture.decide());
    assert_eq!((summary.files, summary.upstream, summary.rerun_count()), (1, 2, 3));
}

type Edit = fn(&mut ReuseDefinition<'static>);

#[test]
fn every_changed_field_is_shown_with_old_and_new_value() {
    let changed = |field, old: &str, new: &str| {
        Some(RerunReason::Changed { field, old: old.to_owned(), new: new.to_owned() })
    };
    let cases: [(Edit, Option<RerunReason>); 8] = [
        (
            |d| d.command = "run plot --big".into(),
            changed(DefinitionField::Command, "run plot", "run plot --big"),
        ),
        (
            |d| d.invocation_script = Some("srun".into()),
            changed(DefinitionField::InvocationScript, "(none)", "srun"),
        ),
        (
            |d| d.env = vec![("B".to_owned(), "1".to_owned())].into(),
            changed(DefinitionField::Env, "(no B)", "B=1"),
        ),
        (
            |d| d.user_data.push(("u".into(), "{}".into())),
            changed(DefinitionField::UserData, "(no u)", "u={}"),
        ),
        (|d| d.output_user_data.push("u".into()), changed(DefinitionField::OutputUserData, "(none)", "u")),
        (|d| d.inputs.push("out".into()), changed(DefinitionField::InputFiles, "(none)", "out")),
        (|d| d.outputs.push("png".into()), changed(DefinitionField::OutputFiles, "(none)", "png")),
        (
            |d| d.depends_on = Some(NameSetDigest::from_names(["solve", "x"])),
            changed(DefinitionField::DependsOn, "1 job", "2 jobs"),
        ),
    ];
    for (edit, reason) in cases {
        let mut fixture = Fixture::new();
        fixture.old[2].definition.depends_on = Some(NameSetDigest::from_names(["solve"]));
        fixture.now[2].depends_on = Some(NameSetDigest::from_names(["solve"]));
        edit(&mut fixture.now[2]);
        fixture.expect([None, None, reason.clone()]);
        let Some(RerunReason::Changed { field, .. }) = reason else { unreachable!() };
        fixture.accepted = vec![format!("plot:{field}").parse().unwrap()];
        if field != DefinitionField::OutputFiles && field != DefinitionField::InputFiles {
            fixture.expect([None, None, None]);
        }
    }
}

#[test]
fn order_of_variables_files_and_dependencies_is_ignored() {
    let pair = |name: &str| (name.to_owned(), "1".to_owned());
    let mut fixture = Fixture::new();
    fixture.old[2].definition.env = vec![pair("A"), pair("B")].into();
    fixture.now[2].env = vec![pair("B"), pair("A")].into();
    fixture.old[2].definition.depends_on = Some(NameSetDigest::from_names(["a", "b"]));
    fixture.now[2].depends_on = Some(NameSetDigest::from_names(["b"]) + NameSetDigest::from_names(["a"]));
    fixture.expect([None, None, None]);
}

#[test]
fn files_with_equal_contents_are_unchanged() {
    let mut fixture = Fixture::new();
    fixture.old[0].files.as_mut().unwrap().inputs[0] = Some(state(7, Some("abc")));
    fixture.disk.insert("raw".into(), state(9, Some("abc")));
    fixture.expect([None, None, None]);
    let new = state(7, Some("xyz"));
    fixture.disk.insert("raw".into(), new.clone());
    let old = Some(state(7, Some("abc")));
    fixture.expect([
        Some(RerunReason::InputChanged { file: "raw".into(), old, new }),
        Some(upstream(0, 0)),
        Some(upstream(0, 1)),
    ]);
}

#[test]
fn missing_files_rerun_a_job() {
    let mut fixture = Fixture::new();
    fixture.disk.remove("out");
    fixture.expect([None, Some(RerunReason::OutputMissing { file: "out".into() }), Some(upstream(1, 1))]);
    fixture.disk.remove("raw");
    fixture.expect([
        Some(RerunReason::InputMissing { file: "raw".into() }),
        Some(RerunReason::OutputMissing { file: "out".into() }),
        Some(upstream(1, 1)),
    ]);
}

/// An output that was overwritten: the result is lost although the file exists.
#[test]
fn modified_output_reruns_its_job() {
    let mut fixture = Fixture::new();
    fixture.disk.insert("out".into(), state(8, None));
    let reason =
        RerunReason::OutputChanged { file: "out".into(), old: Some(state(7, None)), new: state(8, None) };
    assert_eq!(
        reason.describe(|_| String::new()),
        "output out changed since: 1970-01-01T00:00:00.000Z → 1970-01-01T00:00:00.000Z"
    );
    assert_eq!(ReuseSummary::from_decisions(&[ReuseDecision::Run(reason.clone())]).files, 1);
    fixture.expect([None, Some(reason.clone()), Some(upstream(1, 1))]);
    fixture.accepted = vec!["solve:output_files".parse().unwrap()];
    fixture.expect([None, None, None]);
    fixture.accepted.clear();
    fixture.shared = "out";
    fixture.expect([None, None, None]);
    fixture.shared = "";
    // Equal contents: only touched.
    fixture.old[1].files.as_mut().unwrap().outputs[0] = Some(state(7, Some("abc")));
    fixture.disk.insert("out".into(), state(9, Some("abc")));
    fixture.expect([None, None, None]);
    fixture.old[1].files.as_mut().unwrap().outputs.clear();
    let lost = RerunReason::OutputChanged { file: "out".into(), old: None, new: state(9, Some("abc")) };
    fixture.expect([None, Some(lost), Some(upstream(1, 1))]);
}

#[test]
fn file_modified_in_place_is_compared_after_the_job() {
    let mut fixture = Fixture::new();
    for definition in [&mut fixture.old[0].definition, &mut fixture.now[0]] {
        definition.outputs = vec!["raw".into()];
    }
    fixture.old[0].files =
        Some(AttemptFiles { inputs: vec![Some(state(3, None))], outputs: vec![Some(state(7, None))] });
    fixture.expect([None, None, None]);
    fixture.disk.insert("raw".into(), state(9, None));
    assert!(matches!(fixture.decide()[0], ReuseDecision::Run(RerunReason::OutputChanged { .. })));
}

#[test]
fn file_to_be_rewritten_is_no_rerun_reason() {
    let mut fixture = Fixture::new();
    fixture.disk.remove("clean");
    fixture.expect([
        Some(RerunReason::OutputMissing { file: "clean".into() }),
        Some(upstream(0, 0)),
        Some(upstream(0, 1)),
    ]);
}

#[test]
fn files_without_a_record_count_as_changed() {
    let mut fixture = Fixture::new();
    fixture.old[1].files = None;
    fixture.expect([None, Some(RerunReason::NoRecord), Some(upstream(1, 1))]);
}

#[test]
fn accepted_new_input_causes_no_rerun() {
    let mut fixture = Fixture::new();
    fixture.now[1].inputs.push("raw".into());
    fixture.accepted = vec!["solve:input_files".parse().unwrap()];
    fixture.expect([None, None, None]);
}

#[test]
fn accepted_changes_are_parsed() {
    let accept = |job: Option<&str>, field| Ok(AcceptedChange { job: job.map(str::to_owned), field });
    for (text, expected) in [
        ("solve:command", accept(Some("solve"), Some(DefinitionField::Command))),
        ("solve", accept(Some("solve"), None)),
        ("*:env", accept(None, Some(DefinitionField::Env))),
        (":env", Err(ParseAcceptError::NoJob(":env".into()))),
        ("solve:colour", Err(ParseAcceptError::UnknownField("colour".into()))),
    ] {
        assert_eq!(text.parse::<AcceptedChange>(), expected, "{text}");
    }
}

proptest! {
    /// The jobs that run are exactly those with a reason of their own and their dependents, also through
    /// groups.
    #[test]
    fn changed_jobs_and_their_dependents_run(
        failed in proptest::collection::vec(any::<bool>(), 1..25),
        raw in proptest::collection::vec((0usize..25, proptest::collection::vec(0usize..25, 1..5)), 0..20),
    ) {
        let count = failed.len();
        let mut pairs = Vec::new();
        let mut builder = DependencyEdgesBuilder::default();
        for (job, on) in raw.iter().map(|(job, on)| (job % count, on)).filter(|(job, _)| *job > 0) {
            let on: Vec<u32> = on.iter().map(|on| (on % job) as u32).collect();
            builder.add_dependencies(job as u32, &on);
            pairs.extend(on.iter().map(|&on| (job, on as usize)));
        }
        let definition = |job: u32| ReuseDefinition { name: job.to_string().into(), ..ReuseDefinition::default() };
        let decisions = decide_reuse(&ReuseQuery {
            jobs: count as u32,
            edges: &builder.finish(),
            current: &definition,
            previous: &|job, _| Some(PreviousJob {
                definition: definition(job),
                status: if failed[job as usize] { JobStatus::Failed } else { JobStatus::Completed },
                files: None,
                has_added: false,
            }),
            file: &|_| None,
            is_shared: &|_| false,
            accepted: &[],
        }).unwrap();
        // Jobs only depend on lower numbers, so one pass is sufficient.
        let mut runs = failed.clone();
        for job in 0..count {
            runs[job] |= pairs.iter().any(|&(waiter, on)| waiter == job && runs[on]);
        }
        for job in 0..count {
            prop_assert_eq!(decisions[job].runs(), runs[job], "job {}", job);
            if let ReuseDecision::Run(RerunReason::Upstream { job: cause, through }) = decisions[job] {
                prop_assert!(failed[cause as usize] && runs[through as usize]);
                prop_assert!(pairs.contains(&(job, through as usize)));
            }
        }
    }
}
