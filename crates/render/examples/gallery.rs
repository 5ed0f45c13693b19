//! Writes one picture of each kind into a folder for inspection: `cargo run -p windlass-render --example gallery -- DIR`.

use std::path::Path;
use std::time::Duration;
use windlass_core::dependency_edges::DependencyEdgesBuilder;
use windlass_core::workflow_outline::{
    OutlineGranularity, OutlineJob, OutlineRequest, WorkflowOutline, outline_workflow,
};
use windlass_render::usage_plot::{AttemptBar, PlotJob, PlotLimits, PlotSeries, UsagePlot};
use windlass_render::{GraphDrawing, StatusTone};
use windlass_types::{Bytes, Resources, Timestamp};

fn main() -> std::io::Result<()> {
    let folder = std::env::args().nth(1).unwrap_or_else(|| "gallery".to_owned());
    let folder = Path::new(&folder);
    std::fs::create_dir_all(folder)?;
    let graphs = [
        ("kinds", pipeline(OutlineGranularity::Entries)),
        ("jobs", pipeline(OutlineGranularity::Jobs)),
        ("large", large()),
    ];
    for (name, outline) in graphs {
        let mut drawing = GraphDrawing::from_outline(&outline);
        if name == "jobs" {
            drawing.nodes.iter_mut().enumerate().for_each(|(n, node)| node.tone = tone(n));
        }
        std::fs::write(folder.join(format!("{name}.svg")), windlass_render::render_svg(&drawing))?;
        std::fs::write(folder.join(format!("{name}.dot")), windlass_render::render_dot(&drawing))?;
        std::fs::write(folder.join(format!("{name}.mmd")), windlass_render::render_mermaid(&drawing))?;
        std::fs::write(folder.join(format!("{name}.txt")), windlass_render::render_text(&drawing, 100))?;
    }
    std::fs::write(folder.join("usage.html"), windlass_render::usage_plot::render_usage_html(&usage()))
}

fn tone(n: usize) -> StatusTone {
    [StatusTone::Good, StatusTone::Good, StatusTone::Active, StatusTone::Bad, StatusTone::Quiet][n % 5]
}

/// Fetch and mesh, then a sweep, two analyses of it, and a report.
fn pipeline(grain: OutlineGranularity) -> WorkflowOutline {
    let mut names = vec!["fetch".to_owned(), "mesh".to_owned()];
    names.extend((0..4).flat_map(|nu| (0..3).map(move |seed| format!("solve_{nu}_{seed}"))));
    names.extend((0..4).map(|nu| format!("average_{nu}")));
    names.extend(["plot", "statistics", "report"].map(str::to_owned));
    let kinds = ["solve_{nu}_{seed}", "average_{nu}"];
    let mut builder = DependencyEdgesBuilder::default();
    builder.add_dependencies(1, &[0]);
    (2..14).for_each(|job| builder.add_dependencies(job, &[1]));
    (0..4).for_each(|nu| builder.add_dependencies(14 + nu, &[2 + nu * 3, 3 + nu * 3, 4 + nu * 3]));
    builder.add_dependencies(18, &[14, 15, 16, 17]);
    builder.add_dependencies(19, &[14, 15, 16, 17]);
    builder.add_dependencies(20, &[18, 19]);
    builder.add_dependencies(20, &[0]);
    let facts = |job: u32| OutlineJob {
        name: &names[job as usize],
        entry: match job {
            2..14 => Some(0),
            14..18 => Some(1),
            _ => None,
        },
        resources: Resources {
            cpus: if (2..14).contains(&job) { 8 } else { 1 },
            memory: Bytes(if (2..14).contains(&job) { 16 << 30 } else { 1 << 30 }),
            runtime: Some(Duration::from_mins(u64::from(5 + job * 7 % 60))),
            ..Resources::DEFAULT
        },
        priority: 0,
        measured_runtime: None,
        is_reused: false,
    };
    let edges = builder.finish();
    let jobs = names.len() as u32;
    outline_workflow(&OutlineRequest {
        jobs,
        edges: &edges,
        entries: &kinds,
        facts: &facts,
        grain,
        capacity: None,
    })
    .expect("no cycle")
}

/// Ten stages with about two hundred boxes.
fn large() -> WorkflowOutline {
    let (stages, wide) = (10u32, 20u32);
    let names: Vec<String> = (0..stages * wide).map(|n| format!("task_{}_{}", n / wide, n % wide)).collect();
    let mut builder = DependencyEdgesBuilder::default();
    for job in wide..stages * wide {
        let (stage, place) = (job / wide, job % wide);
        builder.add_dependencies(job, &[(stage - 1) * wide + place]);
        if place % 3 == 0 {
            builder.add_dependencies(job, &[(stage - 1) * wide + (place + 1) % wide]);
        }
    }
    let facts = |job: u32| OutlineJob {
        name: &names[job as usize],
        entry: None,
        resources: Resources {
            runtime: Some(Duration::from_mins(u64::from(1 + job % 9))),
            ..Resources::DEFAULT
        },
        priority: 0,
        measured_runtime: None,
        is_reused: false,
    };
    let edges = builder.finish();
    let jobs = names.len() as u32;
    outline_workflow(&OutlineRequest {
        jobs,
        edges: &edges,
        entries: &[],
        facts: &facts,
        grain: OutlineGranularity::Jobs,
        capacity: None,
    })
    .expect("no cycle")
}

/// Twelve solvers, four at a time.
fn usage() -> UsagePlot {
    let gib = f64::from(1 << 30);
    let mut jobs = Vec::new();
    let mut bars = Vec::new();
    for n in 0..12u32 {
        let start = f64::from(n / 4) * 640.0 + f64::from(n % 4) * 25.0;
        let length = 480.0 + f64::from(n * 37 % 160);
        let at = |share: f64| start + share * length;
        let wave = |i: u32, weight: f64| (f64::from(i) / 9.0 + f64::from(n)).sin() * weight;
        let points =
            |value: &dyn Fn(u32) -> f64| (0..=100).map(|i| (at(f64::from(i) / 100.0), value(i))).collect();
        let name = format!("solve_{}_{}", n / 4, n % 4);
        jobs.push(PlotJob {
            name: name.clone(),
            series: PlotSeries {
                cpu_percent: points(&|i| 165.0 + wave(i, 25.0) + f64::from(n % 3) * 8.0),
                memory: points(&|i| gib * (0.4 + f64::from(i) / 100.0 * (1.0 + f64::from(n % 5) * 0.3))),
            },
            requested: PlotLimits { cpus: Some(2.0), memory: Some(2.5 * gib) },
        });
        let tone = if n == 6 { StatusTone::Bad } else { StatusTone::Good };
        let note = if n == 6 { "out of memory" } else { "completed" };
        bars.push(AttemptBar { name, start, end: start + length, tone, end_note: note.to_owned() });
    }
    let total = |of: fn(&PlotSeries) -> &Vec<(f64, f64)>, idle: f64| {
        let at = |t: f64| {
            let now = jobs
                .iter()
                .filter_map(|job| of(&job.series).windows(2).find(|pair| pair[0].0 <= t && t < pair[1].0));
            idle + now.map(|pair| pair[0].1).sum::<f64>()
        };
        (0..2000).step_by(5).map(|t| (f64::from(t), at(f64::from(t)))).collect()
    };
    let node = PlotSeries { cpu_percent: total(|s| &s.cpu_percent, 12.0), memory: total(|s| &s.memory, gib) };
    UsagePlot {
        title: "heat_sweep, run 1".to_owned(),
        origin: Timestamp(1_790_000_000_000_000),
        node,
        node_limits: PlotLimits { cpus: Some(8.0), memory: Some(16.0 * gib) },
        jobs,
        attempts: bars.len(),
        bars,
    }
}
