//! Measures the expansion of a large sweep and prints the peak memory of the process.
//!
//! `cargo run --release -p windlass-spec --example expand -- [plain|files|stages] [JOBS]`

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Instant;
use windlass_spec::{NoAttachments, SpecSource};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let shape = arguments.next().unwrap_or_else(|| "plain".to_owned());
    let jobs: usize = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(1_000_000);
    let text = match shape.as_str() {
        "files" => files(jobs / 2),
        "stages" => stages(jobs / 2),
        _ => plain(jobs),
    };
    println!("{shape}, {jobs} jobs from {} bytes, peak {}", text.len(), peak_memory());
    let start = Instant::now();
    let workflow =
        match windlass_spec::load_spec(SpecSource::new("sweep.yaml", text.as_bytes()), &NoAttachments) {
            Ok(workflow) => workflow,
            Err(diagnostics) => return println!("{diagnostics}"),
        };
    println!("expanded in {:.3?}, peak {}", start.elapsed(), peak_memory());
    let start = Instant::now();
    let bytes: usize = workflow.jobs().map(|job| job.command(1).len()).sum();
    println!("{} commands of {bytes} bytes in {:.3?}", workflow.job_count(), start.elapsed());
    let start = Instant::now();
    let lists: usize = workflow.jobs().map(|job| job.depends_on().count()).sum();
    println!("{lists} lists of dependencies in {:.3?}, peak {}", start.elapsed(), peak_memory());
}

fn plain(jobs: usize) -> String {
    format!(
        "name: sweep\njobs:\n- {{name: 'sim_{{i}}', command: './simulate --seed {{i}} --out out/{{i:07d}}.dat', parameters: {{i: '1:{jobs}'}}}}\n"
    )
}

/// Each job of the second half reads the output of one of the first half.
fn files(half: usize) -> String {
    format!(
        "name: sweep\nparameters: {{i: '1:{half}'}}\n\
         files: [{{name: 'f_{{i}}', path: 'out/{{i}}.dat', use_parameters: [i]}}]\n\
         jobs:\n- {{name: 'make_{{i}}', command: 'make > ${{files.output.f_{{i}}}}', use_parameters: [i]}}\n\
         - {{name: 'read_{{i}}', command: 'read ${{files.input.f_{{i}}}}', use_parameters: [i]}}\n"
    )
}

/// Each job of the second half depends on all jobs of the first half.
fn stages(half: usize) -> String {
    format!(
        "name: sweep\nparameters: {{i: '1:{half}'}}\n\
         jobs:\n- {{name: 'a_{{i}}', command: 'true', use_parameters: [i]}}\n\
         - {{name: 'b_{{i}}', command: 'true', depends_on_regexes: ['^a_'], use_parameters: [i]}}\n"
    )
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
}
