//! Draws the plan of a request: a summary of its work units, or a single one.

use crate::{DrawingLink, DrawingNode, GraphDrawing, StatusTone};
use windlass_core::round_plan::{PlanUnit, RoundPlan};
use windlass_types::format_duration;

const ROLES: [&str; 4] = ["landing", "processing", "merge", "cleanup"];

impl GraphDrawing {
    /// Draws all work units: a box for each role. Units do not depend on each other.
    pub fn from_plan(plan: &RoundPlan) -> Self {
        let summary = plan.summary();
        let units = summary.work_units as u32;
        let per_unit = summary.nodes_per_unit.map_or_else(String::new, |spread| match spread {
            spread if spread.least == spread.most => format!("{} per unit", spread.most),
            spread => format!("{}–{} per unit", spread.least, spread.most),
        });
        let processing = summary.nodes_by_role.get("Processing").copied().unwrap_or(0) as u32;
        let sites = match summary.sites.iter().filter(|site| site.work_units > 0).count() {
            1 => "1 site".to_owned(),
            count => format!("{count} sites"),
        };
        unit_drawing([
            (units, sites),
            (processing, per_unit),
            (units, format!("{} of outputs", render_size(summary.output_kb))),
            (units, "unmerged files".to_owned()),
        ])
    }

    /// Draws one work unit.
    pub fn from_unit(unit: &PlanUnit<'_>) -> Self {
        let sites: Vec<&str> = unit.sites().collect();
        let longest = unit.nodes().map(|node| node.time_sec()).max().unwrap_or(0);
        let time = format_duration(std::time::Duration::from_secs(longest));
        unit_drawing([
            (1, sites.join(", ")),
            (unit.len(), format!("{} events · {time}", unit.events())),
            (1, format!("{} of outputs", render_size(unit.output_kb()))),
            (1, "unmerged files".to_owned()),
        ])
    }
}

/// Creates the boxes for landing, processing, merge and cleanup, with their numbers of jobs and details.
fn unit_drawing(roles: [(u32, String); 4]) -> GraphDrawing {
    let nodes = roles.into_iter().zip(ROLES).map(|((jobs, detail), label)| DrawingNode {
        label: label.to_owned(),
        jobs,
        detail,
        tone: StatusTone::Plain,
        is_critical: false,
    });
    let link = |from| DrawingLink { from, to: from + 1, label: String::new(), is_critical: false };
    GraphDrawing {
        stages: (0..ROLES.len()).map(|stage| vec![stage]).collect(),
        headings: (1..=ROLES.len()).map(|stage| format!("stage {stage}")).collect(),
        nodes: nodes.collect(),
        links: (0..ROLES.len() - 1).map(link).collect(),
    }
}

fn render_size(kb: u64) -> String {
    const UNITS: [&str; 5] = ["KB", "MB", "GB", "TB", "PB"];
    let mut amount = kb as f64;
    let mut unit = 0;
    while amount >= 1000.0 && unit + 1 < UNITS.len() {
        amount /= 1000.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && amount < 100.0);
    format!("{amount:.digits$} {}", UNITS[unit])
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::{BTreeMap, BTreeSet};
    use windlass_core::round_plan::{PlanInput, PlanSettings, RoundStart, plan_round};
    use windlass_types::catalog::CatalogFile;

    fn planned() -> RoundPlan {
        let request = serde_json::json!({
            "request_name": "r", "requestor": "user", "input_dataset": "/a/b/RAW",
            "output_datasets": ["/a/b/AOD"], "memory_mb": 2000, "time_per_event_sec": 1.5,
            "size_per_event_kb": 2000.0, "multicore": 1, "splitting_algo": "FileBased",
            "splitting_params": {"files_per_job": 1}, "processing_version": 1, "priority": 1,
            "cleanup_policy": "keep_until_replaced",
        });
        let files: Vec<CatalogFile> = (0..5)
            .map(|n| CatalogFile {
                lfn: format!("/{n}"),
                size: 1,
                events: 800,
                replicas: BTreeMap::from([
                    ("A".to_owned(), "/".to_owned()),
                    ("B".to_owned(), "/".to_owned()),
                ]),
                ..CatalogFile::default()
            })
            .collect();
        plan_round(&PlanInput {
            request: &serde_json::from_value(request).unwrap(),
            files: &files,
            attempted: &BTreeSet::new(),
            remaining: &BTreeMap::new(),
            sites: &BTreeMap::from([("A".to_owned(), None), ("B".to_owned(), None)]),
            settings: &PlanSettings::default(),
            start: RoundStart::default(),
            events_wanted: None,
            memory_mb: None,
            time_per_event: None,
            metrics: None,
            max_units: None,
            max_jobs: None,
            until_step: None,
        })
        .unwrap()
    }

    #[test]
    fn plan_renders_as_line_of_four_roles() {
        let expected = "
   ┌─────────────┐
   │ landing × 3 │
   │ 2 sites     │
   └──────┬──────┘
          ▼
  ┌────────────────┐
  │ processing × 5 │
  │ 1–2 per unit   │
  └───────┬────────┘
          ▼
┌───────────────────┐
│ merge × 3         │
│ 8.0 GB of outputs │
└─────────┬─────────┘
          ▼
  ┌────────────────┐
  │ cleanup × 3    │
  │ unmerged files │
  └────────────────┘
";
        assert_eq!(format!("\n{}", crate::render_text(&GraphDrawing::from_plan(&planned()), 80)), expected);
    }

    #[test]
    fn unit_boxes_show_sites_and_duration() {
        let plan = planned();
        let drawing = GraphDrawing::from_unit(&plan.unit(0).unwrap());
        let boxes: Vec<_> = drawing.nodes.iter().map(|node| (node.jobs, node.detail.as_str())).collect();
        assert_eq!(
            boxes,
            [(1, "A, B"), (2, "1600 events · 20m"), (1, "3.2 GB of outputs"), (1, "unmerged files")]
        );
    }

    #[test]
    fn sizes_render_with_fitting_unit() {
        let said = [0, 999, 1000, 40_600, 4_000_000, 123_000_000_000].map(render_size);
        assert_eq!(said, ["0 KB", "999 KB", "1.0 MB", "40.6 MB", "4.0 GB", "123 TB"]);
    }
}
