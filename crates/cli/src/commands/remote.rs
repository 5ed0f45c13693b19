//! `windlass worker remote`: workers on hosts that ssh reaches.
//!
//! On each host the worker of a workflow has its own directory in the home directory, with its log and a file
//! with the pid and start time of its process, so that a reused pid is never mistaken for the worker.

use crate::args::worker::{
    RemoteLogsArgs, RemoteRunArgs, RemoteStopArgs, RemoteSubcommand, SshArgs, WorkerCapacityArgs,
};
use crate::context::CliContext;
use crate::error::{CliError, CliExit};
use crate::object_selection;
use crate::ssh::RemoteHost;
use crate::ui::listing::{ListField, ListFields};
use crate::ui::table::TableColumn;
use crate::ui::text::shell_quote;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass_api::tokens::CreateToken;
use windlass_client::Client;
use windlass_store::model::WorkflowRow;

/// The answer of a host.
#[derive(Debug)]
struct HostResult {
    host: String,
    is_ok: bool,
    state: String,
    detail: String,
}

const RESULT_FIELDS: &[ListField<HostResult>] = &[
    ListField::new("host", |s: &HostResult| (&s.host).into()).column(TableColumn::text("HOST")),
    ListField::new("state", |s: &HostResult| (&s.state).into()).column(TableColumn::text("STATE")),
    ListField::new("detail", |s: &HostResult| (&s.detail).into()).column(TableColumn::flexible("DETAIL")),
];

/// Common part of the scripts: enters the worker's directory and defines `alive`.
const SCRIPT_PROLOGUE: &str = r#"set -u
umask 077
mkdir -p "$dir" && cd "$dir" || exit 1
alive() {
    [ -f worker.pid ] && read -r pid start < worker.pid || return 1
    case "$(cut -d' ' -f3,22 "/proc/$pid/stat" 2>/dev/null)" in
        [ZX]*) return 1 ;;
        *" $start") return 0 ;;
        *) return 1 ;;
    esac
}
"#;

pub(crate) fn run(ctx: &CliContext, verb: &RemoteSubcommand) -> Result<CliExit, CliError> {
    let wanted = match verb {
        RemoteSubcommand::Add(args) => &args.workflow,
        RemoteSubcommand::Remove(args) => &args.workflow,
        RemoteSubcommand::List(args) => &args.workflow,
        RemoteSubcommand::Run(args) => &args.workflow,
        RemoteSubcommand::Status(args) => &args.workflow,
        RemoteSubcommand::Stop(args) => &args.workflow,
        RemoteSubcommand::CollectLogs(args) => &args.workflow,
    };
    let workflow = object_selection::find_workflow(&*ctx.open_read()?, wanted)?;
    let list = HostList::for_workflow(ctx, &workflow)?;
    match verb {
        RemoteSubcommand::Add(args) => {
            let hosts = parse_hosts(&args.hosts)?;
            let script = worker_script(&workflow, "echo reached");
            if !args.skip_ssh_check {
                let host_results = run_on_all(&hosts, &args.ssh, |_| script.clone());
                if host_results.iter().any(|host_results| !host_results.is_ok) {
                    return print_results(ctx, host_results);
                }
            }
            list.write(&list.read()?.union(&hosts).cloned().collect())?;
            print_hosts(ctx, &list)
        }
        RemoteSubcommand::Remove(args) => {
            list.write(&list.read()?.difference(&parse_hosts(&args.hosts)?).cloned().collect())?;
            print_hosts(ctx, &list)
        }
        RemoteSubcommand::List(_) => print_hosts(ctx, &list),
        RemoteSubcommand::Run(args) => {
            let script = start_script(ctx, &workflow, args)?;
            print_results(ctx, run_on_all(&list.require_hosts()?, &args.ssh, |_| script.clone()))
        }
        RemoteSubcommand::Status(args) => {
            let script = worker_script(&workflow, STATUS_SCRIPT);
            print_results(ctx, run_on_all(&list.require_hosts()?, &args.ssh, |_| script.clone()))
        }
        RemoteSubcommand::Stop(args) => {
            let script = worker_script(&workflow, stop_script(args));
            print_results(ctx, run_on_all(&list.require_hosts()?, &args.ssh, |_| script.clone()))
        }
        RemoteSubcommand::CollectLogs(args) => collect_logs(ctx, &workflow, &list.require_hosts()?, args),
    }
}

fn parse_hosts(words: &[String]) -> Result<BTreeSet<RemoteHost>, CliError> {
    words.iter().map(|word| word.parse().map_err(CliError::user)).collect()
}

/// A script that runs in the worker's directory.
fn worker_script(workflow: &WorkflowRow, body: &str) -> String {
    format!("dir=\"$HOME\"/.windlass-remote/{}\n{SCRIPT_PROLOGUE}{body}\n", shell_quote(&workflow.uuid))
}

const STATUS_SCRIPT: &str = r#"if alive; then echo "running	process $pid: $(tail -n 1 worker.log)"
elif [ -f worker.log ]; then echo "ended	$(tail -n 1 worker.log)"
else echo "never started"; fi"#;

fn start_script(ctx: &CliContext, workflow: &WorkflowRow, args: &RemoteRunArgs) -> Result<String, CliError> {
    let client = ctx.require_server()?;
    let mut words = vec![args.program.clone(), "worker".to_owned()];
    words.extend(["--workflow".to_owned(), workflow.id.to_string()]);
    words.extend(args.label.iter().flat_map(|label| ["--label".to_owned(), label.clone()]));
    words.extend(["--site".to_owned(), args.worker_site.clone()]);
    words.extend(capacity_args(&args.offer));
    let words: Vec<String> = words.iter().map(|word| shell_quote(word)).collect();
    let url = shell_quote(client.url());
    let token = worker_token(client, workflow)?;
    let token = token.map(|token| format!("export WINDLASS_TOKEN={}\n", shell_quote(&token)));
    let body = format!(
        "if alive; then echo \"running\tprocess $pid, as before\"; exit 0; fi\n\
         export WINDLASS_URL={url}\n{}\
         nohup setsid {} > worker.log 2>&1 < /dev/null &\n\
         pid=$!\n\
         echo \"$pid $(cut -d' ' -f22 /proc/$pid/stat)\" > worker.pid\n\
         sleep 1\n\
         if alive; then echo \"started\tprocess $pid\"; else echo \"died at once: $(tail -n 1 worker.log)\" >&2; exit 1; fi",
        token.unwrap_or_default(),
        words.join(" ")
    );
    Ok(worker_script(workflow, &body))
}

/// The token for the workers. The owner's token has full access and expires with the server, so it is not sent
/// to other hosts.
fn worker_token(client: &Client, workflow: &WorkflowRow) -> Result<Option<String>, CliError> {
    let Some(own) = client.token() else { return Ok(None) };
    if client.caller_info()?.how != "owner" {
        return Ok(Some(own));
    }
    let new = CreateToken {
        name: format!("remote workers of workflow {}", workflow.id),
        user: None,
        role: None,
        scopes: vec!["worker".to_owned()],
        expires_in: None,
    };
    Ok(Some(client.create_token(&new)?.token))
}

fn capacity_args(offer: &WorkerCapacityArgs) -> Vec<String> {
    let number = |flag: &str, value: Option<u32>| value.map(|n| [flag.to_owned(), n.to_string()]);
    let memory = offer.memory.map(|bytes| ["--memory".to_owned(), format!("{}B", bytes.0)]);
    [
        number("--max-jobs", offer.max_jobs),
        number("--num-cpus", offer.num_cpus),
        number("--num-gpus", offer.num_gpus),
        memory,
    ]
    .into_iter()
    .flatten()
    .flatten()
    .collect()
}

/// The first signal drains, the second stops; the pause in between lets the worker handle the first.
const fn stop_script(args: &RemoteStopArgs) -> &'static str {
    if args.force {
        "if alive; then kill -KILL \"$pid\"; echo \"killed\tprocess $pid\"; else echo 'not running'; fi"
    } else if args.drain {
        "if alive; then kill -TERM \"$pid\"; echo \"draining\tprocess $pid\"; else echo 'not running'; fi"
    } else {
        "if alive; then kill -TERM \"$pid\"; sleep 1; alive && kill -TERM \"$pid\"; echo \"stopping\tprocess $pid\"; \
         else echo 'not running'; fi"
    }
}

/// Runs a script on all hosts, several in parallel. The answer begins with a word and a tab.
fn run_on_all(
    hosts: &BTreeSet<RemoteHost>,
    ssh: &SshArgs,
    script: impl Fn(&RemoteHost) -> String + Sync,
) -> Vec<HostResult> {
    for_each_host(hosts, ssh, |host| {
        let output =
            host.run_script(&script(host), &ssh.ssh_option).map_err(|e| format!("cannot run ssh: {e}"))?;
        if output.status.success() { Ok(last_line(&output.stdout)) } else { Err(last_line(&output.stderr)) }
    })
}

fn for_each_host(
    hosts: &BTreeSet<RemoteHost>,
    ssh: &SshArgs,
    ask: impl Fn(&RemoteHost) -> Result<String, String> + Sync,
) -> Vec<HostResult> {
    let hosts: Vec<&RemoteHost> = hosts.iter().collect();
    let (next, host_results) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..usize::from(ssh.max_parallel_ssh).min(hosts.len()) {
            scope.spawn(|| {
                while let Some(host) = hosts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = to_host_result(host, ask(host));
                    host_results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(answer);
                }
            });
        }
    });
    let mut host_results = host_results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    host_results.sort_by(|a, b| a.host.cmp(&b.host));
    host_results
}

fn to_host_result(host: &RemoteHost, answer: Result<String, String>) -> HostResult {
    let ok = answer.is_ok();
    let text = answer.unwrap_or_else(|problem| format!("unreachable\t{problem}"));
    let (state, detail) = text.split_once('\t').unwrap_or((&text, ""));
    HostResult { host: host.to_string(), is_ok: ok, state: state.to_owned(), detail: detail.to_owned() }
}

fn last_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().lines().last().unwrap_or_default().to_owned()
}

fn print_results(ctx: &CliContext, host_results: Vec<HostResult>) -> Result<CliExit, CliError> {
    let failed = host_results.iter().filter(|host_results| !host_results.is_ok).count();
    ctx.ui.print_list(&ListFields::new(RESULT_FIELDS), host_results)?;
    if failed > 0 {
        return Err(CliError::io(format!("{failed} of them could not be reached, or the command failed there")).with_hint(
            "`ssh HOST true` must work without a password or prompt; the host needs windlass on its PATH, or use --program",
        ));
    }
    Ok(CliExit::Success)
}

fn collect_logs(
    ctx: &CliContext,
    workflow: &WorkflowRow,
    hosts: &BTreeSet<RemoteHost>,
    args: &RemoteLogsArgs,
) -> Result<CliExit, CliError> {
    let output = shell_quote(&workflow.output_dir);
    let delete = if args.delete { "if ! alive; then rm -f worker.log; fi" } else { ":" };
    let body = format!(
        "set -- -C \"$dir\" worker.log\n[ -f worker.log ] || set --\n\
         if [ -d {output}/job_stdio ]; then set -- \"$@\" -C {output} job_stdio; fi\n\
         [ $# -gt 0 ] || {{ echo 'there are no logs' >&2; exit 1; }}\n\
         tar -czf - \"$@\" && {delete}"
    );
    let script = worker_script(workflow, &body);
    let host_results = for_each_host(hosts, &args.ssh, |host| {
        let directory = args.local_output_dir.join(host.to_string());
        fetch_archive(host, &script, &args.ssh, &ctx.cwd.join(&directory))?;
        Ok(format!("fetched\t{}", directory.display()))
    });
    print_results(ctx, host_results)
}

/// Unpacks an archive from a host; `tar` does not extract outside the given directory.
fn fetch_archive(host: &RemoteHost, script: &str, ssh: &SshArgs, directory: &Path) -> Result<(), String> {
    let problem = |what: &str, error: &std::io::Error| format!("{what}: {error}");
    std::fs::create_dir_all(directory).map_err(|e| problem(&directory.display().to_string(), &e))?;
    let mut remote = host.start_script(script, &ssh.ssh_option).map_err(|e| problem("cannot run ssh", &e))?;
    let stream = remote.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let unpacked = Command::new("tar")
        .args(["--no-same-owner", "--no-same-permissions", "-xzf", "-", "-C"])
        .arg(directory)
        .stdin(stream)
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| problem("cannot run tar", &e))?;
    let sent = remote.wait_with_output().map_err(|e| problem("ssh", &e))?;
    match (sent.status.success(), unpacked.status.success()) {
        (true, true) => Ok(()),
        (false, _) => Err(last_line(&sent.stderr)),
        (true, false) => Err(last_line(&unpacked.stderr)),
    }
}

/// The hosts that a workflow may use: one per line, in a file of the user.
struct HostList {
    path: PathBuf,
}

impl HostList {
    fn for_workflow(_ctx: &CliContext, workflow: &WorkflowRow) -> Result<Self, CliError> {
        let state =
            windlass_agent::default_state_dir().and_then(|dir| Some(dir.parent()?.parent()?.to_owned()));
        let state =
            state.ok_or_else(|| CliError::user("cannot store the list of hosts: no home directory"))?;
        Ok(Self { path: state.join("remotes").join(&workflow.uuid) })
    }

    fn read(&self) -> Result<BTreeSet<RemoteHost>, CliError> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => parse_hosts(&text.lines().map(str::to_owned).collect::<Vec<_>>()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(CliError::io(format!("cannot read {}: {error}", self.path.display()))),
        }
    }

    fn require_hosts(&self) -> Result<BTreeSet<RemoteHost>, CliError> {
        let hosts = self.read()?;
        if hosts.is_empty() {
            return Err(CliError::user("this workflow has no hosts yet")
                .with_hint("`windlass worker remote add WORKFLOW HOST …` adds hosts"));
        }
        Ok(hosts)
    }

    fn write(&self, hosts: &BTreeSet<RemoteHost>) -> Result<(), CliError> {
        let text: String = hosts.iter().flat_map(|host| [host.to_string(), "\n".to_owned()]).collect();
        let draft = self.path.with_extension(format!("new-{}", std::process::id()));
        let written = self
            .path
            .parent()
            .map_or(Ok(()), std::fs::create_dir_all)
            .and_then(|()| std::fs::write(&draft, text))
            .and_then(|()| std::fs::rename(&draft, &self.path));
        written.map_err(|e| CliError::io(format!("cannot write {}: {e}", self.path.display())))
    }
}

fn print_hosts(ctx: &CliContext, list: &HostList) -> Result<CliExit, CliError> {
    let rows = list.read()?.iter().map(|host| to_host_result(host, Ok("listed".to_owned()))).collect();
    ctx.ui.print_list(&ListFields::new(RESULT_FIELDS), rows)?;
    Ok(CliExit::Success)
}
