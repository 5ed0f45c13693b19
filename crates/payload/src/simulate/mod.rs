//! A simulation of a real program: reads or makes events, uses CPU and memory according to a profile, writes
//! event files and a job report, and fails on demand.

mod fault;
mod load_generator;
pub mod planning_simulation;
mod profile;
mod task;

pub use fault::parse_fault;
pub use profile::{ProgramProfile, ResourceDemand, compute_demand, find_profile};
pub use task::{SimulationTask, SimulationTaskError};

use crate::event_files::{self, EventCounter, EventFileContents, EventLine, EventReadError, EventSelection};
use crate::exit_codes;
use crate::processing_job::StepInput;
use crate::report::{self, FrameworkError, JobReport, ReportedFileName, ReportedInput, ReportedOutput};
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::time::Instant;
use windlass_types::payload::{EventGeneration, SimulatedFailureKind};

/// Runs the simulation. Returns the exit status; a signal or a hang does not return.
pub fn run_simulation(task: &SimulationTask) -> io::Result<u8> {
    let begin = Instant::now();
    let fault = fault::find_due_fault(&task.simulation.faults, task.node, &task.site, task.attempt);
    let mut job = SimulatedProgram { task, report: JobReport::default(), events_read: 0, bytes: (0, 0) };
    let produced = job.produce(fault)?;
    let code = match produced {
        Ok(()) => job.inject_fault(fault)?,
        Err(code) => code,
    };
    job.report_usage(begin);
    if let Some(path) = &task.report {
        fs::write(path, report::render_report(&job.report))?;
    }
    Ok(code)
}

struct SimulatedProgram<'a> {
    task: &'a SimulationTask,
    report: JobReport,
    events_read: u64,
    /// Events read and written.
    bytes: (u64, u64),
}

impl SimulatedProgram<'_> {
    /// Reads, works, writes. The inner error is the exit status.
    fn produce(&mut self, fault: Option<SimulatedFailureKind>) -> io::Result<Result<(), u8>> {
        let task = self.task;
        let profile = find_profile(task.simulation.profile.as_deref().unwrap_or(&task.step));
        let speed = task.simulation.speed.unwrap_or(1.0);
        let size = compute_demand(profile, 1, task.threads, speed).event_size;
        if fault == Some(SimulatedFailureKind::BadInput) {
            let first = task.inputs.first().cloned().unwrap_or_default();
            return Ok(Err(self.report_bad_input(&first, "unexpected end of file")));
        }
        let keep = task.simulation.filter_efficiency.unwrap_or(1.0);
        let mut writer = EventWriter::create(
            task,
            size,
            if fault == Some(SimulatedFailureKind::NoEvents) { 0.0 } else { keep },
        )?;
        if let Some(made) = task.generate {
            self.events_read += generate_events(made, &mut writer)?;
        }
        for input in &task.inputs {
            if let Err(code) = self.read_input(input, &mut writer)? {
                return Ok(Err(code));
            }
        }
        let contents = writer.finish()?;
        let needs = compute_demand(profile, self.events_read, task.threads, speed);
        let memory = load_generator::allocate_memory(needs.memory);
        load_generator::use_cpu(needs.serial, needs.parallel, task.threads);
        drop(memory);
        self.report_outputs(&contents);
        Ok(Ok(()))
    }

    fn read_input(&mut self, input: &StepInput, writer: &mut EventWriter) -> io::Result<Result<(), u8>> {
        let wanted = EventSelection { events: input.events, lumis: input.lumis.as_ref() };
        let mut reported = ReportedInput {
            name: ReportedFileName { lfn: input.lfn.clone(), pfn: input.path.to_string_lossy().into_owned() },
            kind: "primaryFiles".to_owned(),
            ..ReportedInput::default()
        };
        let mut write_error = None;
        let read = event_files::read_events(&input.path, wanted, |event| {
            reported.events_read += 1;
            reported.lumis.insert(event.run, event.lumi);
            writer.process(&event).inspect_err(|error| write_error = Some(io::Error::from(error.kind())))
        });
        self.events_read += reported.events_read;
        self.bytes.0 += fs::metadata(&input.path).map_or(0, |metadata| metadata.len());
        self.report.inputs.push(reported);
        match (read, write_error) {
            (_, Some(error)) => Err(error),
            (Ok(()), None) => Ok(Ok(())),
            (Err(EventReadError::Io(error)), None) => {
                Ok(Err(self.report_bad_input(input, &error.to_string())))
            }
            (Err(error @ EventReadError::NoEvent(_)), None) => {
                Ok(Err(self.report_bad_input(input, &error.to_string())))
            }
        }
    }

    fn report_bad_input(&mut self, input: &StepInput, why: &str) -> u8 {
        let path = input.path.to_string_lossy().into_owned();
        self.report.skipped.push(ReportedFileName { lfn: input.lfn.clone(), pfn: path.clone() });
        let text = format!("An exception of category 'FileReadError' occurred while reading {path}: {why}");
        self.add_error(exit_codes::FILE_READ, "FileReadError", text)
    }

    fn add_error(&mut self, status: i32, kind: &str, text: String) -> u8 {
        self.report.errors.push(FrameworkError { status, kind: kind.to_owned(), text });
        // As real programs end: the low eight bits, and never 0.
        u8::try_from(status & 0xff).ok().filter(|code| *code != 0).unwrap_or(1)
    }

    /// Failures that are due after the work.
    fn inject_fault(&mut self, fault: Option<SimulatedFailureKind>) -> io::Result<u8> {
        match fault {
            None | Some(SimulatedFailureKind::NoEvents | SimulatedFailureKind::BadInput) => Ok(0),
            Some(SimulatedFailureKind::Exit(code)) => {
                Ok(self.add_error(code, "Simulated", format!("told to fail with {code}")))
            }
            Some(SimulatedFailureKind::Signal(signal)) => {
                let signal = rustix::process::Signal::from_named_raw(signal)
                    .ok_or_else(|| io::Error::other(format!("there is no signal {signal}")))?;
                // The first SIGSEGV from outside only removes the handler for stack overflows.
                loop {
                    rustix::process::kill_process(rustix::process::getpid(), signal)?;
                    std::thread::yield_now();
                }
            }
            Some(SimulatedFailureKind::Memory(most)) => {
                load_generator::grow_memory(most << 20);
                Ok(self.add_error(
                    exit_codes::BAD_ALLOC,
                    "BadAlloc",
                    "std::bad_alloc: no memory is left".to_owned(),
                ))
            }
            Some(SimulatedFailureKind::Hang) => hang_forever(),
            Some(SimulatedFailureKind::NoOutput) => {
                self.task.outputs.iter().try_for_each(fs::remove_file)?;
                self.report.outputs.clear();
                Ok(0)
            }
        }
    }

    fn report_outputs(&mut self, contents: &EventFileContents) {
        let inputs: Vec<String> =
            self.task.inputs.iter().map(|input| input.lfn.clone()).filter(|lfn| !lfn.is_empty()).collect();
        for path in &self.task.outputs {
            self.bytes.1 += fs::metadata(path).map_or(0, |metadata| metadata.len());
            self.report.outputs.push(ReportedOutput {
                name: ReportedFileName { lfn: String::new(), pfn: path.to_string_lossy().into_owned() },
                module: format!("{}output", self.task.step),
                module_class: "PoolOutputModule".to_owned(),
                guid: windlass_types::digest_bytes(
                    format!("{} {}", self.task.seed, path_name(path)).as_bytes(),
                ),
                events: Some(contents.events),
                lumis: contents.lumis.clone(),
                inputs: inputs.clone(),
            });
        }
    }

    fn report_usage(&mut self, begin: Instant) {
        const MB: f64 = 1024.0 * 1024.0;
        let (wall, cpu) = (begin.elapsed().as_secs_f64(), load_generator::process_time().as_secs_f64());
        let events = self.events_read as f64;
        let rss = windlass_process::usage_sample::own_peak_rss().map_or(0.0, |peak| peak.0 as f64 / MB);
        let each = |total: f64, count: f64| if count > 0.0 { total / count } else { 0.0 };
        let summaries: [(&str, &[(&str, f64)]); 4] = [
            ("ApplicationMemory", &[("PeakValueRss", rss), ("PeakValueVsize", rss * 1.2)]),
            ("ProcessingSummary", &[("NumberEvents", events)]),
            (
                "StorageStatistics",
                &[
                    ("Timing-file-read-totalMegabytes", self.bytes.0 as f64 / MB),
                    ("Timing-file-write-totalMegabytes", self.bytes.1 as f64 / MB),
                ],
            ),
            (
                "Timing",
                &[
                    ("TotalJobTime", wall),
                    ("TotalJobCPU", cpu),
                    ("NumberOfThreads", f64::from(self.task.threads)),
                    ("EventThroughput", each(events, wall)),
                    ("AvgEventTime", each(wall, events)),
                ],
            ),
        ];
        for (summary, metrics) in summaries {
            let metrics: BTreeMap<String, f64> =
                metrics.iter().map(|(name, value)| ((*name).to_owned(), *value)).collect();
            self.report.performance.insert(summary.to_owned(), metrics);
        }
    }
}

fn path_name(path: &Path) -> String {
    path.file_name().unwrap_or_default().to_string_lossy().into_owned()
}

fn hang_forever() -> ! {
    loop {
        std::thread::park();
    }
}

/// Generates events and returns their number.
fn generate_events(made: EventGeneration, writer: &mut EventWriter) -> io::Result<u64> {
    for number in made.first_event..=made.last_event {
        let section = made.events_per_lumi.map_or(0, |size| (number - made.first_event) / size.max(1));
        let value = mix_bits(writer.seed, number);
        writer.write(made.run, made.first_lumi + section, number, value)?;
    }
    Ok(made.last_event - made.first_event + 1)
}

/// Writes the same events to every output.
struct EventWriter {
    files: Vec<BufWriter<File>>,
    counter: EventCounter,
    step: String,
    seed: u64,
    size: usize,
    /// The fraction of events that is kept.
    kept_fraction: f64,
    line: String,
}

impl EventWriter {
    fn create(task: &SimulationTask, size: usize, keep: f64) -> io::Result<Self> {
        let files = task.outputs.iter().map(|path| File::create(path).map(BufWriter::new));
        Ok(Self {
            files: files.collect::<io::Result<_>>()?,
            counter: EventCounter::default(),
            step: task.step.clone(),
            seed: task.seed,
            size,
            kept_fraction: keep,
            line: String::new(),
        })
    }

    /// The output depends on the input.
    fn process(&mut self, event: &EventLine<'_>) -> io::Result<()> {
        let word = event.rest.split(' ').next().unwrap_or_default();
        let value =
            word.bytes().chain(self.step.bytes()).fold(event.number, |sum, byte| mix_bits(sum, byte.into()));
        self.write(event.run, event.lumi, event.number, value)
    }

    fn write(&mut self, run: u64, lumi: u64, number: u64, value: u64) -> io::Result<()> {
        use std::fmt::Write as _;
        // The value is practically random, so the fraction of values below a limit equals the limit.
        if mix_bits(value, 1) as f64 / u64::MAX as f64 >= self.kept_fraction {
            return Ok(());
        }
        self.line.clear();
        write!(self.line, "{run} {lumi} {number} {}:{value:016x}", self.step).map_err(io::Error::other)?;
        let padding = self.size.saturating_sub(self.line.len() + 2);
        if padding > 0 {
            self.line.push(' ');
            self.line.extend(std::iter::repeat_n('x', padding));
        }
        self.line.push('\n');
        self.counter.add(self.line.as_bytes());
        self.files.iter_mut().try_for_each(|file| file.write_all(self.line.as_bytes()))
    }

    fn finish(self) -> io::Result<EventFileContents> {
        for file in self.files {
            file.into_inner().map_err(io::IntoInnerError::into_error)?;
        }
        Ok(self.counter.finish().unwrap_or_default())
    }
}

/// Mixes two numbers into one in which every bit of both counts (`splitmix64`).
fn mix_bits(a: u64, b: u64) -> u64 {
    let mut z = a.rotate_left(32) ^ b.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}
