//! Measures the time to render a large run to disk: `cargo xtask bench dag render` runs it once per sample.
//!
//! `render DIRECTORY UNITS NODES` prints one line of JSON. Each unit can run at forty sites and has nodes of
//! three sizes.

use std::collections::BTreeMap;
use std::fs;
use std::io::{Error, Write as _};
use std::path::Path;
use std::time::Instant;
use windlass_htcondor::render::{
    DagUnit, NodeResources, ProgramPaths, RequestDagRun, RoleRetries, StorageCredentials, UnitNodeResources,
    render_run,
};
use windlass_htcondor::script_settings::RequestRetrySettings;

const SITES: usize = 40;

fn main() -> std::io::Result<()> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, units, nodes] = words.as_slice() else {
        return Err(Error::other("render DIRECTORY UNITS NODES"));
    };
    let units: usize = units.parse().map_err(Error::other)?;
    let nodes: u32 = nodes.parse().map_err(Error::other)?;
    let directory = Path::new(directory);
    fs::create_dir_all(directory)?;

    let start = Instant::now();
    render(directory, units, nodes).map_err(Error::other)?;
    let seconds = start.elapsed().as_secs_f64();
    let written = RenderedFiles::below(directory)?;
    let line = serde_json::json!({
        "seconds": seconds,
        "files": written.files,
        "directories": written.directories,
        "bytes": written.bytes,
    });
    writeln!(std::io::stdout(), "{line}")
}

fn render(
    directory: &Path,
    units: usize,
    nodes: u32,
) -> Result<(), windlass_htcondor::render::DagRenderError> {
    let size = |memory_mb| NodeResources { cpus: 8, memory_mb, disk_kb: 20_000_000, runtime_sec: 28_800 };
    let sizes = [size(14_000), size(15_000), size(16_000)];
    let sites = vec![(0..SITES).map(|site| format!("T2_XX_Site{site:02}")).collect()];
    let third = nodes / 3;
    let unit = DagUnit { sites: 0, size: 0, nodes: vec![(0, third), (1, third), (2, nodes - 2 * third)] };
    let units = vec![unit; units];
    let (throttles, accounting) = (BTreeMap::new(), BTreeMap::new());
    render_run(&RequestDagRun {
        directory,
        request: "pdmvserv_task_B2G-RunIII2026-00042__v1_T_261116_042042_1234",
        run: "550e8400-e29b-41d4-a716-446655440000",
        workflow: "9b2f6c1e-3d7a-4f58-8a41-5f1d2c3b4a59",
        programs: ProgramPaths { on_this_host: Path::new("/opt/windlass/bin/windlass"), on_workers: None },
        site_sets: &sites,
        sizes: &sizes,
        unit_sizes: &[UnitNodeResources { landing: sizes[2], merge: sizes[0], cleanup: sizes[0] }],
        units: &units,
        retries: RoleRetries { landing: 3, processing: 3, merge: 2, cleanup: 1 },
        throttles: &throttles,
        retry_policy: RequestRetrySettings::default(),
        priority: 110,
        accounting: &accounting,
        credentials: StorageCredentials::default(),
        banned_sites: &[],
        memory_override_mb: None,
    })
}

#[derive(Default)]
struct RenderedFiles {
    files: u64,
    directories: u64,
    bytes: u64,
}

impl RenderedFiles {
    fn below(directory: &Path) -> std::io::Result<Self> {
        let mut all = Self::default();
        let mut open = vec![directory.to_owned()];
        while let Some(next) = open.pop() {
            for entry in fs::read_dir(next)? {
                let entry = entry?;
                let metadata = entry.metadata()?;
                if metadata.is_dir() {
                    all.directories += 1;
                    open.push(entry.path());
                } else {
                    all.files += 1;
                    all.bytes += metadata.len();
                }
            }
        }
        Ok(all)
    }
}
