//! `windlass remote`: workers on machines that ssh reaches.
//!
//! On each machine a worker of a workflow has a directory of its own in the home directory, with its log and a note of
//! its process: pid and start time, so that a pid that was given to somebody else is never taken for it.

use crate::args::worker::{OfferArgs, RemoteLogsArgs, RemoteRunArgs, RemoteStopArgs, RemoteVerb, SshArgs};
use crate::context::Context;
use crate::error::{CliError, Exit};
use crate::select;
use crate::ssh::Remote;
use crate::ui::listing::{Field, Listing};
use crate::ui::table::Column;
use crate::ui::text::shell_quote;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use windlass_api::tokens::NewToken;
use windlass_client::Client;
use windlass_store::model::WorkflowRow;

/// What a machine said.
#[derive(Debug)]
struct Said {
    host: String,
    ok: bool,
    state: String,
    detail: String,
}

const SAID: &[Field<Said>] = &[
    Field::new("host", |s: &Said| (&s.host).into()).column(Column::text("HOST")),
    Field::new("state", |s: &Said| (&s.state).into()).column(Column::text("STATE")),
    Field::new("detail", |s: &Said| (&s.detail).into()).column(Column::elastic("DETAIL")),
];

/// The beginning of every script: in the worker's directory, with a way to tell whether it lives.
const PROLOGUE: &str = r#"set -u
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

pub(crate) fn run(ctx: &Context, verb: &RemoteVerb) -> Result<Exit, CliError> {
    let wanted = match verb {
        RemoteVerb::Add(args) => &args.workflow,
        RemoteVerb::Remove(args) => &args.workflow,
        RemoteVerb::List(args) => &args.workflow,
        RemoteVerb::Run(args) => &args.workflow,
        RemoteVerb::Status(args) => &args.workflow,
        RemoteVerb::Stop(args) => &args.workflow,
        RemoteVerb::CollectLogs(args) => &args.workflow,
    };
    let workflow = select::workflow(&*ctx.open_read()?, wanted)?;
    let list = HostList::of(ctx, &workflow)?;
    match verb {
        RemoteVerb::Add(args) => {
            let hosts = parse(&args.hosts)?;
            let script = script(&workflow, "echo reached");
            if !args.skip_ssh_check {
                let said = ask_all(&hosts, &args.ssh, |_| script.clone());
                if said.iter().any(|said| !said.ok) {
                    return tell(ctx, said);
                }
            }
            list.write(&list.read()?.union(&hosts).cloned().collect())?;
            show_list(ctx, &list)
        }
        RemoteVerb::Remove(args) => {
            list.write(&list.read()?.difference(&parse(&args.hosts)?).cloned().collect())?;
            show_list(ctx, &list)
        }
        RemoteVerb::List(_) => show_list(ctx, &list),
        RemoteVerb::Run(args) => {
            let script = start_script(ctx, &workflow, args)?;
            tell(ctx, ask_all(&list.require()?, &args.ssh, |_| script.clone()))
        }
        RemoteVerb::Status(args) => {
            let script = script(&workflow, STATUS);
            tell(ctx, ask_all(&list.require()?, &args.ssh, |_| script.clone()))
        }
        RemoteVerb::Stop(args) => {
            let script = script(&workflow, stop_script(args));
            tell(ctx, ask_all(&list.require()?, &args.ssh, |_| script.clone()))
        }
        RemoteVerb::CollectLogs(args) => collect(ctx, &workflow, &list.require()?, args),
    }
}

fn parse(words: &[String]) -> Result<BTreeSet<Remote>, CliError> {
    words.iter().map(|word| word.parse().map_err(CliError::user)).collect()
}

/// A script that runs in the worker's directory.
fn script(workflow: &WorkflowRow, body: &str) -> String {
    format!("dir=\"$HOME\"/.windlass-remote/{}\n{PROLOGUE}{body}\n", shell_quote(&workflow.uuid))
}

const STATUS: &str = r#"if alive; then echo "running	process $pid: $(tail -n 1 worker.log)"
elif [ -f worker.log ]; then echo "ended	$(tail -n 1 worker.log)"
else echo "never started"; fi"#;

fn start_script(ctx: &Context, workflow: &WorkflowRow, args: &RemoteRunArgs) -> Result<String, CliError> {
    let client = ctx.require_server()?;
    let mut words = vec![args.program.clone(), "worker".to_owned()];
    words.extend(["--workflow".to_owned(), workflow.id.to_string()]);
    words.extend(args.label.iter().flat_map(|label| ["--label".to_owned(), label.clone()]));
    words.extend(["--site".to_owned(), args.worker_site.clone()]);
    words.extend(offered(&args.offer));
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
    Ok(script(workflow, &body))
}

/// What the workers show to the server. The token of its owner may do everything and ends with the server, so it stays here.
fn worker_token(client: &Client, workflow: &WorkflowRow) -> Result<Option<String>, CliError> {
    let Some(own) = client.token() else { return Ok(None) };
    if client.me()?.how != "owner" {
        return Ok(Some(own));
    }
    let new = NewToken {
        name: format!("remote workers of workflow {}", workflow.id),
        user: None,
        role: None,
        scopes: vec!["worker".to_owned()],
        expires_in: None,
    };
    Ok(Some(client.create_token(&new)?.token))
}

fn offered(offer: &OfferArgs) -> Vec<String> {
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

/// The first signal drains, the second stops; between them it must have time to see the first.
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

/// Asks all of them, some at a time. What one says first goes up to a tab.
fn ask_all(hosts: &BTreeSet<Remote>, ssh: &SshArgs, script: impl Fn(&Remote) -> String + Sync) -> Vec<Said> {
    for_all(hosts, ssh, |host| {
        let output = host.run(&script(host), &ssh.ssh_option).map_err(|e| format!("cannot run ssh: {e}"))?;
        if output.status.success() { Ok(last_line(&output.stdout)) } else { Err(last_line(&output.stderr)) }
    })
}

fn for_all(
    hosts: &BTreeSet<Remote>,
    ssh: &SshArgs,
    ask: impl Fn(&Remote) -> Result<String, String> + Sync,
) -> Vec<Said> {
    let hosts: Vec<&Remote> = hosts.iter().collect();
    let (next, said) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..usize::from(ssh.max_parallel_ssh).min(hosts.len()) {
            scope.spawn(|| {
                while let Some(host) = hosts.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let answer = said_by(host, ask(host));
                    said.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(answer);
                }
            });
        }
    });
    let mut said = said.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    said.sort_by(|a, b| a.host.cmp(&b.host));
    said
}

fn said_by(host: &Remote, answer: Result<String, String>) -> Said {
    let ok = answer.is_ok();
    let text = answer.unwrap_or_else(|trouble| format!("unreachable\t{trouble}"));
    let (state, detail) = text.split_once('\t').unwrap_or((&text, ""));
    Said { host: host.to_string(), ok, state: state.to_owned(), detail: detail.to_owned() }
}

fn last_line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().lines().last().unwrap_or_default().to_owned()
}

fn tell(ctx: &Context, said: Vec<Said>) -> Result<Exit, CliError> {
    let failed = said.iter().filter(|said| !said.ok).count();
    ctx.ui.print_list(&Listing::new(SAID), said)?;
    if failed > 0 {
        return Err(CliError::io(format!("{failed} of them could not be reached, or could not do it")).with_hint(
            "`ssh HOST true` must work without a password or a question; the machine needs windlass on its PATH, or --program",
        ));
    }
    Ok(Exit::Success)
}

fn collect(
    ctx: &Context,
    workflow: &WorkflowRow,
    hosts: &BTreeSet<Remote>,
    args: &RemoteLogsArgs,
) -> Result<Exit, CliError> {
    let output = shell_quote(&workflow.output_dir);
    let delete = if args.delete { "if ! alive; then rm -f worker.log; fi" } else { ":" };
    let body = format!(
        "set -- -C \"$dir\" worker.log\n[ -f worker.log ] || set --\n\
         if [ -d {output}/job_stdio ]; then set -- \"$@\" -C {output} job_stdio; fi\n\
         [ $# -gt 0 ] || {{ echo 'there are no logs' >&2; exit 1; }}\n\
         tar -czf - \"$@\" && {delete}"
    );
    let script = script(workflow, &body);
    let said = for_all(hosts, &args.ssh, |host| {
        let directory = args.local_output_dir.join(host.to_string());
        fetch(host, &script, &args.ssh, &ctx.cwd.join(&directory))?;
        Ok(format!("fetched\t{}", directory.display()))
    });
    tell(ctx, said)
}

/// Unpacks what a machine sends; `tar` takes nothing out of the directory that it is given.
fn fetch(host: &Remote, script: &str, ssh: &SshArgs, directory: &Path) -> Result<(), String> {
    let trouble = |what: &str, error: &std::io::Error| format!("{what}: {error}");
    std::fs::create_dir_all(directory).map_err(|e| trouble(&directory.display().to_string(), &e))?;
    let mut remote = host.begin(script, &ssh.ssh_option).map_err(|e| trouble("cannot run ssh", &e))?;
    let stream = remote.stdout.take().map_or_else(Stdio::null, Stdio::from);
    let unpacked = Command::new("tar")
        .args(["--no-same-owner", "--no-same-permissions", "-xzf", "-", "-C"])
        .arg(directory)
        .stdin(stream)
        .stderr(Stdio::piped())
        .output()
        .map_err(|e| trouble("cannot run tar", &e))?;
    let sent = remote.wait_with_output().map_err(|e| trouble("ssh", &e))?;
    match (sent.status.success(), unpacked.status.success()) {
        (true, true) => Ok(()),
        (false, _) => Err(last_line(&sent.stderr)),
        (true, false) => Err(last_line(&unpacked.stderr)),
    }
}

/// Which machines a workflow may use: one per line, in a file of this user.
struct HostList {
    path: PathBuf,
}

impl HostList {
    fn of(_ctx: &Context, workflow: &WorkflowRow) -> Result<Self, CliError> {
        let state =
            windlass_agent::default_state_dir().and_then(|dir| Some(dir.parent()?.parent()?.to_owned()));
        let state = state.ok_or_else(|| CliError::user("there is no home directory to keep the list in"))?;
        Ok(Self { path: state.join("remotes").join(&workflow.uuid) })
    }

    fn read(&self) -> Result<BTreeSet<Remote>, CliError> {
        match std::fs::read_to_string(&self.path) {
            Ok(text) => parse(&text.lines().map(str::to_owned).collect::<Vec<_>>()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(BTreeSet::new()),
            Err(error) => Err(CliError::io(format!("cannot read {}: {error}", self.path.display()))),
        }
    }

    fn require(&self) -> Result<BTreeSet<Remote>, CliError> {
        let hosts = self.read()?;
        if hosts.is_empty() {
            return Err(CliError::user("this workflow has no machines yet")
                .with_hint("`windlass remote add WORKFLOW HOST …` adds some"));
        }
        Ok(hosts)
    }

    fn write(&self, hosts: &BTreeSet<Remote>) -> Result<(), CliError> {
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

fn show_list(ctx: &Context, list: &HostList) -> Result<Exit, CliError> {
    let rows = list.read()?.iter().map(|host| said_by(host, Ok("listed".to_owned()))).collect();
    ctx.ui.print_list(&Listing::new(SAID), rows)?;
    Ok(Exit::Success)
}
