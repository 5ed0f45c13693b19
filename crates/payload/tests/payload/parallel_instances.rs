//! Steps that run in several instances side by side: the output equals that of a single instance.

use super::units::{TAKE_ALL, Unit, node};
use std::collections::BTreeMap;
use std::fs;
use windlass_types::payload::{
    EventCountSource, EventGeneration, EventWindow, ProcessingJob, ProcessingReport, StepParallelism,
    StepProfile, StepTuning,
};

/// Takes the events of its share, from any file.
const TAKE_SHARE: &str = r#"
    f=$(cat "$WINDLASS_INPUTS"); last=$((WINDLASS_SKIP_EVENTS + WINDLASS_MAX_EVENTS))
    [ "$WINDLASS_MAX_EVENTS" -lt 0 ] && last='$'
    sed -n "$((WINDLASS_SKIP_EVENTS + 1)),${last}p" "$f" | sed "s/\$/ $WINDLASS_STEP/" > "$WINDLASS_OUTPUT"
    echo "$WINDLASS_INSTANCE/$WINDLASS_INSTANCES $WINDLASS_THREADS $WINDLASS_EVENTS $WINDLASS_MEMORY_MB" \
        >> "$WINDLASS_MANIFEST_DIR/shares""#;
const PUT_TOGETHER: &str = r#"xargs cat < "$WINDLASS_INPUTS" > "$WINDLASS_OUTPUT""#;

const MAKE_SHARE: &str = r#"
    e=$WINDLASS_FIRST_EVENT; l=$WINDLASS_FIRST_LUMI; n=0
    while [ "$e" -le "$WINDLASS_LAST_EVENT" ]; do
        echo "1 $((l + n / WINDLASS_EVENTS_PER_LUMI)) $e"; e=$((e + 1)); n=$((n + 1))
    done > "$WINDLASS_OUTPUT""#;

/// Events of a run by section and number.
fn lines(events: impl Iterator<Item = (u64, u64)>) -> String {
    events.map(|(lumi, event)| format!("1 {lumi} {event}")).collect::<Vec<_>>().join("\n") + "\n"
}

/// A unit of one node with ten events, whose last step can be split.
fn unit() -> Unit {
    let mut unit = Unit::new();
    let events = lines((1..=10u64).map(|event| (event.div_ceil(3), event)));
    unit.write("t1/store/in/a.txt", &events);
    unit.manifest.nodes = vec![ProcessingJob { expected_events: 10, ..node(0, "/store/in/a.txt") }];
    unit.manifest.steps[1].command = Some(TAKE_SHARE.to_owned());
    unit.manifest.steps[1].join = Some(PUT_TOGETHER.to_owned());
    unit.manifest.steps[1].threads = 8;
    unit
}

fn tune(unit: &Unit, step: &str, tuning: StepTuning) {
    let profile =
        StepProfile { steps: BTreeMap::from([(step.to_owned(), tuning)]), ..StepProfile::default() };
    unit.write("run/step_profile.json", &serde_json::to_string(&profile).unwrap());
}

fn shares(unit: &Unit) -> Vec<String> {
    let mut told: Vec<String> = unit.read("run/shares").lines().map(str::to_owned).collect();
    fs::remove_file(unit.path("run/shares")).unwrap();
    told.sort();
    told
}

fn written(unit: &Unit, report: &ProcessingReport) -> String {
    unit.read(&format!("t1{}", report.outputs[0].lfn))
}

#[test]
fn parallel_instances_write_same_output_as_one() {
    let unit = unit();
    let alone = unit.run(0).unwrap();
    let expected = written(&unit, &alone);
    assert_eq!(expected.lines().count(), 10);
    assert_eq!(shares(&unit), ["/ 8 10 0"]);
    let tuning = StepTuning {
        run_threads: Some(2),
        instances: Some(3),
        instance_mb: Some(500.0),
        ..StepTuning::default()
    };
    tune(&unit, "RECO", tuning);
    let split = unit.run(0).unwrap();
    assert_eq!(written(&unit, &split), expected);
    let (before, now) = (&alone.outputs[0], &split.outputs[0]);
    assert_eq!((now.events, now.events_from), (10, EventCountSource::File));
    assert_eq!((&now.adler32, &now.lumis), (&before.adler32, &before.lumis));
    assert_eq!(shares(&unit), ["0/3 2 3 0", "1/3 2 3 0", "2/3 2 4 0"]);
    let step = &split.steps[1];
    assert_eq!((step.threads, step.instances, step.can_split), (2, 3, true));
    assert_eq!((step.events_read, step.events_written), (10, 10));
    assert!(!split.steps[0].can_split && split.steps[0].instances == 1, "its outputs cannot be joined");
}

/// R-165.
#[test]
fn instance_count_is_limited_by_memory() {
    let mut unit = unit();
    unit.manifest.nodes[0].estimates.memory_mb = 1500;
    let tuning = StepTuning {
        run_threads: Some(2),
        instances: Some(4),
        instance_mb: Some(700.0),
        ..StepTuning::default()
    };
    tune(&unit, "RECO", tuning);
    let report = unit.run(0).unwrap();
    assert_eq!((report.steps[1].instances, report.steps[1].threads), (2, 4));
    assert_eq!(shares(&unit), ["0/2 4 5 750", "1/2 4 5 750"]);
}

#[test]
fn probe_overrides_measured_tuning() {
    let mut unit = unit();
    tune(&unit, "RECO", StepTuning { run_threads: Some(8), ..StepTuning::default() });
    unit.manifest.nodes[0].probe = Some(StepParallelism { instances: 2, threads: 4 });
    unit.run(0).unwrap();
    assert_eq!(shares(&unit), ["0/2 4 5 0", "1/2 4 5 0"]);
}

#[test]
fn instances_keep_event_windows_and_lumis() {
    let mut unit = unit();
    unit.manifest.steps.remove(0);
    let tuning = StepTuning { run_threads: Some(1), instances: Some(4), ..StepTuning::default() };
    tune(&unit, "RECO", tuning);
    unit.manifest.nodes[0].inputs[0].events = Some(EventWindow { first: 3, last: 9 });
    let report = unit.run(0).unwrap();
    let numbers: Vec<String> =
        written(&unit, &report).lines().map(|line| line.split(' ').nth(2).unwrap().to_owned()).collect();
    assert_eq!(numbers.join(" "), "3 4 5 6 7 8 9");
    // Generated events: numbers and sections are those of the node.
    unit.manifest.steps[0].command = Some(MAKE_SHARE.to_owned());
    let generate = EventGeneration {
        first_event: 101,
        last_event: 115,
        run: 1,
        first_lumi: 9,
        events_per_lumi: Some(4),
    };
    unit.manifest.nodes = vec![ProcessingJob { generate: Some(generate), ..ProcessingJob::default() }];
    let report = unit.run(0).unwrap();
    let expected = lines((101..=115).map(|event| (9 + (event - 101) / 4, event)));
    assert_eq!((written(&unit, &report), report.steps[0].instances), (expected, 4));
}

#[test]
fn instance_failure_fails_step_and_ends_other_instances() {
    let mut unit = unit();
    unit.manifest.steps[1].command = Some(format!(
        "if [ $WINDLASS_INSTANCE = 1 ]; then exit 7; elif [ $WINDLASS_INSTANCE = 2 ]; then {TAKE_ALL}; else sleep 1000; fi"
    ));
    tune(&unit, "RECO", StepTuning { instances: Some(3), ..StepTuning::default() });
    let failure = unit.run(0).unwrap_err();
    assert_eq!((failure.code, failure.step.as_deref()), (7, Some("RECO")));
    let report = unit.report(0);
    assert_eq!((report.steps[1].exit_code, report.outputs.len()), (7, 0));
}

#[test]
fn events_lost_in_join_are_detected() {
    let mut unit = unit();
    unit.manifest.steps[1].join =
        Some(r#"head -n 1 "$WINDLASS_INPUTS" | xargs cat > "$WINDLASS_OUTPUT""#.to_owned());
    tune(&unit, "RECO", StepTuning { instances: Some(2), ..StepTuning::default() });
    let failure = unit.run(0).unwrap_err();
    assert!(failure.message.contains("joined from parts with 10 events and has 5"), "{failure}");
}
