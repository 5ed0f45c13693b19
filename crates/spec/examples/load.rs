//! Measures the reading of large specs and prints the peak memory of the process.
//!
//! `cargo run --release -p windlass-spec --example load -- [block|flow|stages|wrong] [JOBS]`; `wrong` has one
//! invalid field near its end; with 2500 jobs it has ten thousand lines.

#![expect(clippy::print_stdout, reason = "printing is what it is for")]

use std::time::Instant;
use windlass_spec::NoAttachments;

fn main() {
    let mut arguments = std::env::args().skip(1);
    let shape = arguments.next().unwrap_or_else(|| "block".to_owned());
    let jobs = arguments.next().and_then(|count| count.parse().ok()).unwrap_or(100_000);
    let text = match shape.as_str() {
        "flow" => flow(jobs),
        "stages" => stages(jobs),
        "wrong" => wrong(jobs),
        _ => block(jobs),
    };
    println!("{shape}, {jobs} jobs, {} MB of text, peak {}", text.len() >> 20, peak_memory());
    let start = Instant::now();
    let spec = match windlass_spec::parse_spec("generated.yaml", text.as_bytes()) {
        Ok(spec) => spec,
        Err(diagnostics) => return println!("{diagnostics}\nfound in {:.3?}", start.elapsed()),
    };
    let parsed = start.elapsed();
    let start = Instant::now();
    match windlass_spec::resolve_spec("generated.yaml", spec, &NoAttachments) {
        Ok(workflow) => {
            let resolved = start.elapsed();
            let entries: usize = workflow.jobs().map(|job| job.depends_on().flatten().count()).sum();
            println!("parse {parsed:.3?}, resolve {resolved:.3?}, together {:.3?}", parsed + resolved);
            println!("{} jobs, {entries} dependencies, peak {}", workflow.job_count(), peak_memory());
        }
        Err(diagnostics) => println!("{diagnostics}"),
    }
}

const HEAD: &str = "name: generated\nenv: {MODE: \"0755\"}\nresource_requirements:\n  - {name: small, num_cpus: 1, memory: 1g, runtime: PT1H}\njobs:\n";

fn block(jobs: usize) -> String {
    let mut text = HEAD.to_owned();
    for job in 0..jobs {
        text.extend([format!(
            "  - name: job_{job:07}\n    command: ./simulate --seed {job} --out out/{job}.dat\n    resource_requirements: small\n    priority: {}\n",
            job % 10
        )]);
        if job % 10 == 9 {
            text.extend([format!(
                "    depends_on:\n      - job_{:07}\n      - job_{:07}\n",
                job - 1,
                job - 9
            )]);
        }
    }
    text
}

fn wrong(jobs: usize) -> String {
    let mut text = block(jobs);
    if let Some(at) = text.rfind("priority") {
        text.replace_range(at..at + "priority".len(), "priorty");
    }
    text
}

fn flow(jobs: usize) -> String {
    let mut text = HEAD.to_owned();
    for job in 0..jobs {
        let depends_on = match job % 10 {
            9 => format!(", depends_on: [job_{:07}, job_{:07}]", job - 1, job - 9),
            _ => String::new(),
        };
        text.extend([format!(
            "- {{name: job_{job:07}, command: \"./simulate --seed {job} --out out/{job}.dat\", resource_requirements: small, priority: {}{depends_on}}}\n",
            job % 10
        )]);
    }
    text
}

/// Two stages; each job of the second depends on all jobs of the first through one alias.
fn stages(jobs: usize) -> String {
    let half = jobs / 2;
    let mut text = HEAD.to_owned();
    for job in 0..half {
        text.extend([format!("- {{name: a{job}, command: \"true\"}}\n")]);
    }
    let names: Vec<String> = (0..half).map(|job| format!("a{job}")).collect();
    for job in 0..half {
        let list = if job == 0 { format!("&all [{}]", names.join(", ")) } else { "*all".to_owned() };
        text.extend([format!("- {{name: b{job}, command: \"true\", depends_on: {list}}}\n")]);
    }
    text
}

fn peak_memory() -> String {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.map_or_else(|| "unknown".to_owned(), |value| value.trim().to_owned())
}
