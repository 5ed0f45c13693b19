//! Measures the outline of a large workflow: `cargo run --release -p windlass-core --example outline -- JOBS`.
//!
//! Half of the jobs depend on all jobs of the other half, through one dependency group.

use std::io::Write as _;
use std::time::{Duration, Instant};
use windlass_core::dependency_edges::DependencyEdges;
use windlass_core::workflow_outline::{OutlineGranularity, OutlineJob, OutlineRequest, outline_workflow};
use windlass_types::{Bytes, Capacity, Resources};

fn main() -> std::io::Result<()> {
    let jobs: u32 = std::env::args().nth(1).and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let half = jobs / 2;
    let names: Vec<String> =
        (0..jobs).map(|n| if n < half { format!("solve_{n}") } else { format!("plot_{n}") }).collect();
    let edges = DependencyEdges {
        direct: Vec::new(),
        groups: vec![(0..half).collect()],
        waits: (half..jobs).map(|job| (job, 0)).collect(),
    };
    let facts = |job: u32| OutlineJob {
        name: &names[job as usize],
        entry: None,
        resources: Resources { runtime: Some(Duration::from_mins(1)), ..Resources::DEFAULT },
        priority: 0,
        measured_runtime: None,
        is_reused: false,
    };
    let capacity = Some(Capacity { cpus: 64, memory: Bytes(1 << 40), gpus: 0, nodes: 1, max_jobs: None });
    let request = OutlineRequest {
        jobs,
        edges: &edges,
        entries: &[],
        facts: &facts,
        grain: OutlineGranularity::Entries,
        capacity,
    };
    let start = Instant::now();
    let outline = outline_workflow(&request).map_err(std::io::Error::other)?;
    let took = start.elapsed();
    let (stages, pairs) = (outline.stages.len(), outline.dependencies);
    writeln!(
        std::io::stdout(),
        "{jobs} jobs, {pairs} pairs, {stages} stages: {took:?}; {:?}",
        outline.estimate
    )
}
