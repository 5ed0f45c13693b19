//! A server, its database and workers that are killed, frozen and cut off at random moments. In the end every job
//! is completed exactly once in the database, and no two attempts of a job have run at the same time.
//!
//! Workers reach the server through a proxy of the test's own, so that each can be cut off alone. Every attempt
//! writes a line ("beat") twenty times a second; beats of two attempts of one job must not interleave. An attempt
//! that is frozen because its worker lost its lease writes no beats, which is the purpose of freezing it.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot be set up should panic; the seed is printed so that a failure can be reproduced"
)]

#[path = "../common/mod.rs"]
#[expect(dead_code, reason = "this test needs only a part of the shared module")]
mod common;
mod database;
#[path = "../../../store/tests/free_port/mod.rs"]
mod free_port;
#[path = "../../../store/tests/postgres_server/mod.rs"]
#[expect(dead_code, reason = "this test has a PostgreSQL of its own")]
mod postgres_server;
mod proxy;

use common::{Sandbox, children_of, eventually, is_alive, kill};
use database::Database;
use free_port::free_port;
use proxy::Proxy;
use std::collections::{BTreeMap, HashMap};
use std::fmt::Write as _;
use std::fs;
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const JOBS: usize = 240;
const WORKERS: usize = 3;
/// Each kind of fault occurs this often, in random order.
const ROUNDS: usize = 2;
/// Short, so that many leases expire during the test.
const LEASE: Duration = Duration::from_secs(3);
/// Longer than the lease, and than any rounding of it.
const LONGER_THAN_LEASE: Duration = Duration::from_secs(5);

/// One beat at once, then one for each unit of the job's length. The clock is monotonic.
const JOB: &str = r#"beat() { read -r up _ < /proc/uptime; echo "$WINDLASS_ATTEMPT $$ $up" >> "beats/$1"; }
beat "$1"
n=0
while [ "$n" -lt "$2" ]; do sleep 0.05; beat "$1"; n=$((n + 1)); done
"#;

#[test]
fn each_job_completes_once_despite_kills_freezes_and_cuts() {
    let disruptions = [
        Disruption::KillServer,
        Disruption::KillAgent,
        Disruption::KillExecutor,
        Disruption::CutOff,
        Disruption::CutShortly,
        Disruption::FreezeAgent,
        Disruption::FreezeServer,
    ];
    have_a_bad_day(None, &disruptions);
}

#[test]
fn each_job_completes_once_despite_postgres_outages() {
    let disruptions = [
        Disruption::StopDatabase,
        Disruption::StopDatabaseForLong,
        Disruption::KillServer,
        Disruption::CutShortly,
    ];
    have_a_bad_day(Some(Database::start()), &disruptions);
}

/// Injects all faults; in the end all jobs are completed. Without PostgreSQL the database is a file.
fn have_a_bad_day(database: Option<Database>, disruptions: &[Disruption]) {
    let mut random = Random(seed());
    println!("seed {} ({SEED}={0} reproduces this run)", random.0);
    let chaos_test = ChaosTest::set(&mut random, database);
    let mut server = chaos_test.serve();
    chaos_test.create();
    let mut workers: Vec<Worker> = (0..WORKERS).map(|_| chaos_test.worker()).collect();

    let mut disruptions = disruptions.repeat(ROUNDS);
    random.shuffle(&mut disruptions);
    for (number, disruption) in disruptions.iter().enumerate() {
        chaos_test.some_progress(number, disruptions.len());
        let victim = random.below(WORKERS);
        println!("{disruption:?} at worker {victim}");
        match disruption {
            Disruption::KillServer => server = chaos_test.replace_server(server),
            Disruption::KillAgent => workers[victim] = chaos_test.replace(&mut workers[victim]),
            Disruption::KillExecutor => workers[victim].kill_executor(),
            Disruption::CutOff => workers[victim].proxy.cut_for(LONGER_THAN_LEASE),
            Disruption::CutShortly => workers[victim].proxy.cut_for(Duration::from_millis(300)),
            Disruption::FreezeAgent => freeze(workers[victim].agent.id(), LONGER_THAN_LEASE),
            Disruption::FreezeServer => freeze(server.id(), LONGER_THAN_LEASE),
            Disruption::StopDatabase => chaos_test.stop_database_for(Duration::from_millis(300)),
            Disruption::StopDatabaseForLong => chaos_test.stop_database_for(LONGER_THAN_LEASE),
        }
        for worker in &mut workers {
            // A worker that was ended by its own watchdog, or could not continue, is replaced as a batch
            // system would.
            if worker.agent.try_wait().unwrap().is_some() {
                *worker = chaos_test.worker();
            }
        }
    }
    chaos_test.wait_until_done(&mut server);
    chaos_test.check_database();
    chaos_test.check_beats();

    for worker in &mut workers {
        end(&mut worker.agent);
    }
    end(&mut server);
}

/// The variable with the seed of a run to reproduce.
const SEED: &str = "WINDLASS_CHAOS_SEED";

fn seed() -> u64 {
    let named = std::env::var(SEED).ok().map(|seed| seed.parse().unwrap());
    // Process ids alone are the same every time in a namespace of its own.
    named
        .unwrap_or_else(|| windlass_types::SystemClock.now().0.unsigned_abs() ^ u64::from(std::process::id()))
}

#[derive(Clone, Copy, Debug)]
enum Disruption {
    KillServer,
    KillAgent,
    KillExecutor,
    CutOff,
    CutShortly,
    FreezeAgent,
    FreezeServer,
    StopDatabase,
    StopDatabaseForLong,
}

struct ChaosTest {
    sandbox: Sandbox,
    port: u16,
    database: Option<Database>,
}

/// A worker and its own connection to the server.
struct Worker {
    agent: Child,
    proxy: Proxy,
}

impl ChaosTest {
    fn set(random: &mut Random, database: Option<Database>) -> Self {
        let sandbox = Sandbox::new();
        fs::create_dir(sandbox.path("beats")).unwrap();
        sandbox.write("job.sh", JOB);
        let mut spec = String::from("name: chaos\njobs:\n");
        for job in 0..JOBS {
            // Most are short, some outlast a lease.
            let beats = if job % 12 == 5 { 40 + random.below(60) } else { random.below(12) };
            let after = if job % 3 == 2 { format!(", depends_on: [j{}]", job - 2) } else { String::new() };
            writeln!(spec, "  - {{name: j{job}, command: sh job.sh {job} {beats}{after}}}").unwrap();
        }
        sandbox.write("spec.yaml", &spec);
        // Used again by every server that follows.
        Self { sandbox, port: free_port(), database }
    }

    /// The database URL for commands.
    fn job_store(&self) -> String {
        self.database.as_ref().map_or_else(|| "w.db".to_owned(), Database::url)
    }

    fn stop_database_for(&self, time: Duration) {
        self.database.as_ref().expect("a database that can be stopped").stop_for(time);
    }

    fn serve(&self) -> Child {
        let listen = format!("127.0.0.1:{}", self.port);
        let lease = format!("{}s", LEASE.as_secs());
        let log =
            fs::File::options().create(true).append(true).open(self.sandbox.path("server.log")).unwrap();
        self.sandbox
            .command(&["serve", "--db", &self.job_store(), "--listen", &listen, "--lease", &lease])
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap()
    }

    /// Retries until the server has accepted the workflow; it may be down meanwhile.
    fn create(&self) {
        eventually("the server accepts the workflow", || {
            self.sandbox.windlass(&["submit", "spec.yaml", "--db", &self.job_store()]).code == 0
        });
    }

    fn worker(&self) -> Worker {
        let proxy = Proxy::to(self.port);
        let log =
            fs::File::options().create(true).append(true).open(self.sandbox.path("workers.log")).unwrap();
        let agent = self
            .sandbox
            .command(&[
                "worker",
                "--url",
                &proxy.url(),
                "--num-cpus",
                "6",
                "--persistent",
                "--state-dir",
                "state",
            ])
            .env("WINDLASS_TOKEN", self.token())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .unwrap();
        Worker { agent, proxy }
    }

    /// Valid after restarts of the server, unlike the owner's token.
    fn token(&self) -> String {
        let kept = self.sandbox.path("worker.token");
        if !kept.exists() {
            let args = [
                "auth",
                "token",
                "create",
                "--name",
                "chaos",
                "--scope",
                "worker",
                "--db",
                &self.job_store(),
            ];
            eventually("a token is created", || {
                let made = self.sandbox.windlass(&args);
                made.code == 0 && fs::write(&kept, made.stdout.trim()).is_ok()
            });
        }
        fs::read_to_string(&kept).unwrap()
    }

    fn replace_server(&self, mut old: Child) -> Child {
        kill(old.id(), "KILL");
        old.wait().unwrap();
        self.serve()
    }

    /// Kills the agent alone; its processes have to notice by themselves.
    fn replace(&self, worker: &mut Worker) -> Worker {
        kill(worker.agent.id(), "KILL");
        worker.agent.wait().unwrap();
        self.worker()
    }

    /// Waits until it works, if possible, so that faults hit a working system.
    fn some_progress(&self, disruption: usize, disruptions: usize) {
        let goal = JOBS * (disruption + 1) / (disruptions + 3);
        let deadline = Instant::now() + Duration::from_secs(20);
        while fs::read_dir(self.sandbox.path("beats")).unwrap().count() < goal && Instant::now() < deadline {
            sleep(Duration::from_millis(20));
        }
    }

    fn wait_until_done(&self, server: &mut Child) {
        let deadline = Instant::now() + Duration::from_mins(3);
        while self.statuses().get("completed") != Some(&JOBS) {
            let ended = server.try_wait().unwrap();
            assert!(ended.is_none(), "the server ended: {ended:?}\n{}", self.logs());
            let in_vain = self.statuses().contains_key("failed");
            assert!(
                Instant::now() < deadline && !in_vain,
                "not completed in time: {:?}\n{}\n{}",
                self.statuses(),
                self.unfinished(),
                self.logs()
            );
            sleep(Duration::from_millis(200));
        }
    }

    fn statuses(&self) -> BTreeMap<String, usize> {
        let mut counts = BTreeMap::new();
        let output =
            self.sandbox.windlass(&["jobs", "list", "1", "--db", &self.job_store(), "--format", "json"]);
        let list: serde_json::Value = serde_json::from_str(&output.stdout).unwrap_or_default();
        for job in items(&list) {
            *counts.entry(job["status"].as_str().unwrap_or("?").to_owned()).or_default() += 1;
        }
        counts
    }

    /// The jobs in the database that are not completed, with their attempts.
    fn unfinished(&self) -> String {
        let list = self.sandbox.json(&["jobs", "list", "1", "--db", &self.job_store()]);
        let open = items(&list).iter().filter(|job| job["status"] != "completed");
        let open: HashMap<i64, &serde_json::Value> =
            open.map(|job| (job["id"].as_i64().unwrap(), job)).collect();
        let mut text = String::from("--- not completed\n");
        for job in open.values() {
            writeln!(text, "{} is {}", job["name"], job["status"]).unwrap();
        }
        let list = self.sandbox.json(&["results", "list", "1", "--all-runs", "--db", &self.job_store()]);
        for result in
            items(&list).iter().filter(|result| open.contains_key(&result["job_id"].as_i64().unwrap()))
        {
            let (name, attempt, reason) = (&result["job_name"], &result["attempt_id"], &result["reason"]);
            writeln!(text, "{name} attempt {attempt}: {} ({reason})", result["return_code"]).unwrap();
        }
        text
    }

    /// Exactly one attempt of each job completed it, and every lost attempt is recorded.
    fn check_database(&self) {
        let list = self.sandbox.json(&["results", "list", "1", "--all-runs", "--db", &self.job_store()]);
        let mut completed: HashMap<i64, usize> = HashMap::new();
        for result in items(&list) {
            if result["status"] == "completed" {
                *completed.entry(result["job_id"].as_i64().unwrap()).or_default() += 1;
            }
        }
        assert_eq!(completed.len(), JOBS);
        assert!(completed.values().all(|n| *n == 1), "{completed:?}");
    }

    fn check_beats(&self) {
        let mut again = 0;
        for job in 0..JOBS {
            let text = self.sandbox.read(&format!("beats/{job}"));
            let executions = executions(&text);
            again += executions.len() - 1;
            for pair in executions.windows(2) {
                assert!(
                    pair[0].last <= pair[1].first,
                    "job {job}: {:?} and {:?} ran at the same time\n{text}\n{}",
                    pair[0],
                    pair[1],
                    self.logs()
                );
            }
        }
        println!("{again} executions were repeated");
    }

    fn logs(&self) -> String {
        let tail = |name: &str| {
            let text = fs::read_to_string(self.sandbox.path(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            lines[lines.len().saturating_sub(80)..].join("\n")
        };
        format!("--- server\n{}\n--- workers\n{}", tail("server.log"), tail("workers.log"))
    }
}

impl Worker {
    /// Kills the process that starts the jobs, not the one that talks to the server. Returns when the agent has
    /// handled that: if the agent were stopped first, no process would be left that ends the jobs.
    fn kill_executor(&self) {
        let agent = self.agent.id();
        let killed = children_of(agent);
        for pid in &killed {
            kill(*pid, "KILL");
        }
        eventually("the agent starts a new executor", || {
            !is_alive(agent) || children_of(agent).iter().any(|pid| !killed.contains(pid))
        });
    }
}

/// From the first beat of an execution to its last, in hundredths of a second.
#[derive(Debug)]
struct JobExecution {
    first: u64,
    last: u64,
}

/// In the order of their starts. An execution is identified by its attempt and its process.
fn executions(text: &str) -> Vec<JobExecution> {
    let mut found: HashMap<(&str, &str), JobExecution> = HashMap::new();
    for line in text.lines() {
        let fields: Vec<&str> = line.split(' ').collect();
        let [attempt, pid, up] = fields[..] else { panic!("a beat is incomplete: `{line}`") };
        let at: u64 = up.replace('.', "").parse().unwrap();
        let execution = found.entry((attempt, pid)).or_insert(JobExecution { first: at, last: at });
        execution.last = at;
    }
    let mut found: Vec<JobExecution> = found.into_values().collect();
    found.sort_by_key(|execution| (execution.first, execution.last));
    found
}

fn items(list: &serde_json::Value) -> &[serde_json::Value] {
    list.as_array().or_else(|| list["items"].as_array()).map_or(&[], Vec::as_slice)
}

fn freeze(pid: u32, time: Duration) {
    kill(pid, "STOP");
    sleep(time);
    kill(pid, "CONT");
}

/// Asks the process to end twice, and waits.
fn end(child: &mut Child) {
    kill(child.id(), "TERM");
    kill(child.id(), "TERM");
    let pid = child.id();
    eventually("it ends when asked to", || !is_alive(pid));
    child.wait().unwrap();
}

/// A small generator: the seed is printed, so that a failure can be reproduced.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % n as u64) as usize
    }

    fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
