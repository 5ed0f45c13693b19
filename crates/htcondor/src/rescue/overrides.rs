//! Changes by an operator before a run continues: retries and memory of its nodes. The DAGs stay as they were
//! submitted; rescue files may contain another number of retries, as DAGMan's own do.

use super::{RescueError, find_newest_rescue, io_error_at, list_file_names, rescue_files, unit_names};
use crate::file_layout;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::fs;
use std::io;
use std::path::Path;

const RETRY_PREFIX: &str = "RETRY proc_";
const MEMORY_PREFIX: &str = "request_memory = ";

/// Must be called after [`prepare_rescue`](super::prepare_rescue), never while the DAG runs. Completed units are
/// left alone. May be called again.
pub fn apply_overrides(run: &Path, retries: u32, memory_mb: Option<u64>) -> Result<(), RescueError> {
    let done: BTreeSet<String> =
        find_newest_rescue(run)?.map(|(_, rescue)| rescue.done.into_iter().collect()).unwrap_or_default();
    for name in unit_names(run)?.into_iter().filter(|name| !done.contains(name)) {
        let unit = run.join(name);
        set_retries(&unit, retries)?;
        if let Some(memory_mb) = memory_mb {
            raise_memory(&unit, memory_mb)?;
        }
    }
    Ok(())
}

/// Sets the retries of the processing nodes of a unit in the newest rescue file; if there is none, in a new one
/// with nothing else in it.
fn set_retries(unit: &Path, retries: u32) -> Result<(), RescueError> {
    let path = unit.join(file_layout::GROUP_DAG);
    let dag = match fs::read_to_string(&path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        read => read.map_err(io_error_at(&path))?,
    };
    let newest = rescue_files(unit, file_layout::GROUP_DAG)?.into_iter().max();
    let message = match &newest {
        Some((_, path)) => fs::read_to_string(path).map_err(io_error_at(path))?,
        None => String::new(),
    };
    let path =
        newest.map_or_else(|| unit.join(format!("{}.rescue001", file_layout::GROUP_DAG)), |(_, path)| path);
    let text = render_with_retries(&message, &dag, retries);
    if text == message { Ok(()) } else { write_atomically(&path, &text) }
}

/// A rescue file with this number of retries for processing nodes. Lines that agree with the DAG are omitted.
fn render_with_retries(rescue: &str, dag: &str, retries: u32) -> String {
    let count = retries.to_string();
    let mut text: String =
        rescue.lines().filter(|line| !line.starts_with(RETRY_PREFIX)).flat_map(|line| [line, "\n"]).collect();
    for line in dag.lines().filter(|line| line.starts_with(RETRY_PREFIX)) {
        // `RETRY proc_000003 3 UNLESS-EXIT 42`
        let mut words: Vec<&str> = line.split(' ').collect();
        if let Some(planned) = words.get_mut(2).filter(|planned| **planned != count) {
            *planned = &count;
            writeln!(text, "{}", words.join(" ")).ok();
        }
    }
    text
}

/// Resources raised after an attempt are kept, unless they are below the new ones.
fn raise_memory(unit: &Path, memory_mb: u64) -> Result<(), RescueError> {
    let is_override =
        |name: &String| name.strip_suffix(".inc").and_then(file_layout::processing_index).is_some();
    for name in list_file_names(unit)?.into_iter().filter(is_override) {
        let path = unit.join(name);
        let message = fs::read_to_string(&path).map_err(io_error_at(&path))?;
        let text = render_with_memory(&message, memory_mb);
        if text != message {
            write_atomically(&path, &text)?;
        }
    }
    Ok(())
}

fn render_with_memory(override_text: &str, memory_mb: u64) -> String {
    let raised =
        |line: &str| match line.strip_prefix(MEMORY_PREFIX).and_then(|message| message.parse::<u64>().ok()) {
            Some(message) if message < memory_mb => format!("{MEMORY_PREFIX}{memory_mb}\n"),
            _ => format!("{line}\n"),
        };
    override_text.lines().map(raised).collect()
}

fn write_atomically(path: &Path, text: &str) -> Result<(), RescueError> {
    let hidden = path.with_file_name(".adapted");
    fs::write(&hidden, text).and_then(|()| fs::rename(&hidden, path)).map_err(io_error_at(path))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::PathBuf;

    const DAG: &str = "JOB landing ../landing.sub\nRETRY landing 3 UNLESS-EXIT 42\nRETRY proc_000000 3 UNLESS-EXIT 42\n\
        RETRY proc_000001 3 UNLESS-EXIT 42\nRETRY merge 2 UNLESS-EXIT 42\n";
    const OVERRIDE: &str = "request_cpus = 4\nrequest_memory = 3000\nallowed_execute_duration = 7200\n";

    fn unit(run: &Path, number: u32, files: &[(&str, &str)]) -> PathBuf {
        let directory = file_layout::unit_directory(run, number);
        fs::create_dir(&directory).unwrap();
        for (name, text) in [&[(file_layout::GROUP_DAG, DAG)], files].concat() {
            fs::write(directory.join(name), text).unwrap();
        }
        directory
    }

    #[test]
    fn overrides_raise_retries_and_memory_of_unfinished_units() {
        let run = tempfile::tempdir().unwrap();
        let run = run.path();
        fs::write(run.join("workflow.dag.rescue001"), "DONE mg_000000\n").unwrap();
        let old = "# Rescue\nDONE landing\nRETRY proc_000001 4 UNLESS-EXIT 42\n";
        let one = "RETRY proc_000001 1\n";
        let done = unit(run, 0, &[("group.dag.rescue001", one), ("proc_000000.inc", OVERRIDE)]);
        let failed = unit(run, 1, &[("group.dag.rescue001", "no\n"), ("group.dag.rescue002", old)]);
        fs::write(failed.join("proc_000001.inc"), OVERRIDE).unwrap();
        let fresh = unit(run, 2, &[]);
        let read = |unit: &Path, name: &str| fs::read_to_string(unit.join(name)).unwrap();
        let more = "RETRY proc_000000 5 UNLESS-EXIT 42\nRETRY proc_000001 5 UNLESS-EXIT 42\n";
        let raised = OVERRIDE.replace("3000", "4000");
        for _ in 0..2 {
            apply_overrides(run, 5, Some(4000)).unwrap();
            assert_eq!(read(&failed, "group.dag.rescue002"), format!("# Rescue\nDONE landing\n{more}"));
            assert_eq!(read(&fresh, "group.dag.rescue001"), more);
            assert_eq!(read(&failed, "proc_000001.inc"), raised);
        }
        apply_overrides(run, 3, Some(2000)).unwrap();
        assert_eq!(
            read(&failed, "group.dag.rescue002"),
            "# Rescue\nDONE landing\n",
            "the same as in the DAG"
        );
        assert_eq!(read(&failed, "proc_000001.inc"), raised, "raised after an attempt");
        assert_eq!(read(&failed, "group.dag.rescue001"), "no\n");
        assert_eq!(
            (read(&done, "group.dag.rescue001"), read(&done, "proc_000000.inc")),
            (one.into(), OVERRIDE.into())
        );
        assert!([&done, &failed, &fresh].iter().all(|unit| read(unit, file_layout::GROUP_DAG) == DAG));
    }

    #[test]
    fn unchanged_settings_write_no_override() {
        let run = tempfile::tempdir().unwrap();
        let fresh = unit(run.path(), 0, &[]);
        apply_overrides(run.path(), 3, None).unwrap();
        assert_eq!(fs::read_dir(fresh).unwrap().count(), 1);
    }
}
