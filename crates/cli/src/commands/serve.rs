//! `windlass serve`: runs the server.

use crate::args::MachineArgs;
use crate::args::request_backend::RequestBackendArgs;
use crate::args::serve::{DEFAULT_LISTEN, GivenOption, LogFormatArg, ServeArgs};
use crate::classification_rules;
use crate::context::CliContext;
use crate::error::{CliError, CliExit, with_sources};
use crate::local_worker::LocalWorkerHost;
use crate::server_discovery;
use crate::spec_file::current_user;
use serde::Serialize;
use std::ffi::OsString;
use std::io::ErrorKind;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use windlass_auth::{Authenticator, AuthenticatorOptions};
use windlass_requests::{AlertNotifier, BackendKind, CondorOptions};
use windlass_server::discovery::TOKEN_FILE;
use windlass_server::options::{HttpRequestLimits, RequestServiceOptions, ServerTlsOptions};
use windlass_server::{ApiError, ServeError, ServeOptions, ServerRole, logging, tls};
use windlass_slurm::cluster_discovery;
use windlass_slurm::slurm_client::SlurmClient;

/// Result of `--check`.
#[derive(Serialize)]
struct ServeCheckView {
    listen: String,
    database: String,
    tls: bool,
    no_auth: bool,
}

pub(crate) fn run(ctx: &CliContext, args: &ServeArgs) -> Result<CliExit, CliError> {
    ctx.refuse_server("a server needs a database")?;
    let options = serve_options(ctx, args)?;
    if args.print_systemd_unit {
        ctx.ui.print_line(render_systemd_unit(ctx, args)?.trim_end())?;
        if ctx.is_postgres() {
            ctx.ui.print_note(&format!(
                "the database password must not be in the unit file: put PGPASSWORD=… into {ENVIRONMENT_FILE}, readable only by \
                 root (chmod 600)"
            ));
        }
        return Ok(CliExit::Success);
    }
    if args.check {
        return check_server(ctx, &options);
    }
    let format = match args.log_format {
        LogFormatArg::Text => logging::ServerLogFormat::Text,
        LogFormatArg::Json => logging::ServerLogFormat::Json,
    };
    logging::start_logging(format, &args.log_level)?;
    warn_if_unencrypted(ctx, &options);
    let store = ctx.open_or_create_for_server()?;
    if let Some(dir) = &options.run_dir {
        // Without the link, the server is found by --db and in its directory only.
        drop(server_discovery::link_run_dir(&ctx.database(), dir));
    }
    let token_file = options.run_dir.as_ref().filter(|_| !options.no_auth).map(|dir| dir.join(TOKEN_FILE));
    let tell = |role: ServerRole, url: &str| {
        let word = match role {
            ServerRole::Active => "active",
            ServerRole::Standby => "standby",
        };
        if ctx.ui.wants_json() {
            let record = serde_json::json!({"url": url, "role": word, "token_file": token_file});
            // The server runs even if nothing reads its output.
            drop(ctx.ui.print_json_line(&record));
            return;
        }
        if role == ServerRole::Standby {
            ctx.ui.print_note(&format!(
                "standing by at {url}: another server is using {}",
                ctx.database_name()
            ));
            return;
        }
        let token = token_file.as_ref().map(|path| format!("; your token is in {}", path.display()));
        ctx.ui.print_note(&format!("serving {} at {url}{}", ctx.database_name(), token.unwrap_or_default()));
    };
    windlass_server::serve(options, &store, tell)?;
    Ok(CliExit::Success)
}

fn serve_options(ctx: &CliContext, args: &ServeArgs) -> Result<ServeOptions, CliError> {
    let limits = HttpRequestLimits {
        max_in_flight: args.max_requests as usize,
        rate: args.rate_limit,
        burst: args.rate_limit.saturating_mul(4),
        timeout: args.request_timeout,
        ..HttpRequestLimits::default()
    };
    let absolute = |path: &PathBuf| ctx.cwd.join(path);
    let tls = tls_options(args, absolute)?;
    let options = ServeOptions {
        listen: args.listen.unwrap_or(DEFAULT_LISTEN),
        any_port: args.listen.is_none(),
        lease: args.lease,
        stop_grace: args.grace,
        share_node_blame: args.quarantine_for_all_users,
        limits,
        tls,
        no_auth: args.no_auth,
        auth_config: args.auth_config.as_ref().map(absolute),
        password_file: args.password_file.as_ref().map(absolute),
        owner: current_user(),
        mcp: args.mcp.map(Into::into),
        run_dir: Some(server_run_dir(ctx)?),
        earlier_workers: Some(Arc::new(Mutex::new(LocalWorkerHost::new(
            &MachineArgs::default(),
            &ctx.database(),
        )))),
        classifier: classification_rules::configured_classifier(ctx)?,
        requests: requests_options(args, absolute)?,
        slurm: args.reconciler.options(absolute),
        ..ServeOptions::default()
    };
    options.check()?;
    Ok(options)
}

fn requests_options(
    args: &ServeArgs,
    absolute: impl Fn(&PathBuf) -> PathBuf,
) -> Result<RequestServiceOptions, CliError> {
    let program = args.alert_program.as_ref().map(|path| absolute(path).to_string_lossy().into_owned());
    Ok(RequestServiceOptions {
        directory: args.requests_dir.as_ref().map(&absolute),
        backend: args.backend.backend.into(),
        condor: condor_options(&args.backend, &absolute)?,
        reqmgr2: args.reqmgr2.to_settings(&absolute)?,
        cool_off: args.cool_off,
        failure_response: (&args.failure_policy).into(),
        recovery: (&args.failure_policy).into(),
        timeouts: args.timeouts.timeouts(),
        backend_silence_limit: args.timeouts.silence_timeout,
        output_retries: args.timeouts.outputs(),
        retries: args.timeouts.retries(),
        adaptive: (&args.rounds).into(),
        memory_window: (&args.rounds).into(),
        mc_completion: args.rounds.mc_completion.into(),
        throttles: args.backend.throttles.iter().cloned().collect(),
        tape_rse: args.tape_rse.clone(),
        alert_command: AlertNotifier { command: program.into_iter().collect(), ..AlertNotifier::default() },
        ..RequestServiceOptions::default()
    })
}

fn condor_options(
    args: &RequestBackendArgs,
    absolute: impl Fn(&PathBuf) -> PathBuf,
) -> Result<CondorOptions, CliError> {
    let program = std::env::current_exe()
        .map_err(|e| CliError::io(format!("cannot find the windlass executable: {e}")))?;
    Ok(CondorOptions {
        schedds: args.schedds.clone(),
        program,
        on_workers: args.worker_program.as_ref().map(&absolute),
        proxy: args.proxy.as_ref().map(&absolute),
        token: args.token.as_ref().map(&absolute),
        accounting: args.attributes.iter().cloned().collect(),
        tools_directory: None,
    })
}

/// Requires TLS options to be complete: a partial configuration must not lead to an unencrypted server.
/// Options, environment variables and settings files may each set a part.
fn tls_options(
    args: &ServeArgs,
    absolute: impl Fn(&PathBuf) -> PathBuf,
) -> Result<Option<ServerTlsOptions>, CliError> {
    let missing = |shown: &str, missing: &str| {
        CliError::user(format!(
            "{shown} is given without {missing}; the server does not start with incomplete TLS options"
        ))
        .with_hint("set both --tls-cert and --tls-key, or serve.tls_cert and serve.tls_key in the settings")
    };
    if args.require_client_cert && args.client_ca.is_none() {
        return Err(missing("--require-client-cert", "--client-ca"));
    }
    match (&args.tls_cert, &args.tls_key) {
        (Some(cert), Some(key)) => Ok(Some(ServerTlsOptions {
            cert: absolute(cert),
            key: absolute(key),
            client_ca: args.client_ca.as_ref().map(&absolute),
            client_crl: args.client_crl.iter().map(absolute).collect(),
            require_client_cert: args.require_client_cert,
        })),
        (Some(_), None) => Err(missing("--tls-cert", "--tls-key")),
        (None, Some(_)) => Err(missing("--tls-key", "--tls-cert")),
        (None, None) if args.client_ca.is_some() => Err(missing("--client-ca", "--tls-cert and --tls-key")),
        (None, None) => Ok(None),
    }
}

/// Checks that the address can be bound. An address in use is only a warning: it may be the server whose new
/// settings are checked.
fn check_listen_address(ctx: &CliContext, options: &ServeOptions) -> Result<(), CliError> {
    let address = options.listen;
    match TcpListener::bind(address) {
        Err(error) if error.kind() == ErrorKind::AddrInUse => {
            if !options.any_port {
                ctx.ui.print_warning(&format!("{address} is in use by this server or another program"));
            }
            Ok(())
        }
        Err(source) => Err(ServeError::Listen { address, source }.into()),
        Ok(_) => Ok(()),
    }
}

/// The same warning as at startup.
fn warn_if_unencrypted(ctx: &CliContext, options: &ServeOptions) {
    if options.tls.is_none() && !options.listen.ip().is_loopback() {
        ctx.ui.print_warning(&format!(
            "{} is open to other machines, and without TLS tokens and passwords are sent in clear text: give --tls-cert and \
             --tls-key, or use a proxy with TLS",
            options.listen
        ));
    }
}

fn server_run_dir(ctx: &CliContext) -> Result<PathBuf, CliError> {
    server_discovery::server_run_dir(&ctx.database()).ok_or_else(|| {
        CliError::io("the home directory is unknown, and the server stores its token there")
            .with_hint("set HOME")
    })
}

fn check_server(ctx: &CliContext, options: &ServeOptions) -> Result<CliExit, CliError> {
    if let Some(options) = &options.tls {
        tls::check(options).map_err(ServeError::from)?;
    }
    let files = AuthenticatorOptions {
        config: options.auth_config.clone(),
        password_file: options.password_file.clone(),
        ..AuthenticatorOptions::default()
    };
    Authenticator::open(files).map_err(ServeError::from)?;
    if let Some(reqmgr2) = &options.requests.reqmgr2 {
        reqmgr2.check().map_err(ApiError::from)?;
    }
    check_requests(&options.requests)?;
    if options.slurm.is_some() {
        cluster_discovery::discover_cluster(&SlurmClient::unlimited())?;
    }
    check_listen_address(ctx, options)?;
    warn_if_unencrypted(ctx, options);
    let database = match ctx.open_local_if_exists()? {
        Some(_) => ctx.database_name(),
        None => format!("a new {}", ctx.database_name()),
    };
    let found = ServeCheckView {
        listen: options.listen.to_string(),
        database,
        tls: options.tls.is_some(),
        no_auth: options.no_auth,
    };
    if ctx.ui.wants_json() {
        ctx.ui.print_json(&found)?;
    } else {
        let secured = match (found.tls, found.no_auth) {
            (_, true) => ", without authentication",
            (true, false) => ", with TLS",
            (false, false) => "",
        };
        ctx.ui.print_line(&format!("would serve {} at {}{secured}", found.database, found.listen))?;
    }
    Ok(CliExit::Success)
}

/// External requirements of requests: the named files and the schedds.
fn check_requests(options: &RequestServiceOptions) -> Result<(), CliError> {
    if let Some(program) = options.alert_command.command.first() {
        check_program("--alert-program", Path::new(program))?;
    }
    // The server creates it if it does not exist.
    let existing = |directory: &Path| directory.ancestors().find(|path| path.exists()).map(Path::to_owned);
    if let Some(directory) = options.directory.as_deref().and_then(existing) {
        check_directory("--requests-dir", &directory)?;
    }
    if options.backend != BackendKind::Htcondor {
        return Ok(());
    }
    let condor = &options.condor;
    for (flag, path) in [("--proxy", &condor.proxy), ("--token", &condor.token)] {
        if let Some(path) = path {
            check_credential(flag, path)?;
        }
    }
    condor.check_schedds().map_err(|error| {
        CliError::user(format!("requests could not run on HTCondor: {error}"))
            .with_hint("`condor_status -schedd` lists the schedds of the pool; select one with --schedd")
    })
}

fn check_program(flag: &str, path: &Path) -> Result<(), CliError> {
    let found = path.metadata().map_err(|error| unusable_path_error(flag, path, &error))?;
    if found.is_file() && found.permissions().mode() & 0o111 != 0 {
        return Ok(());
    }
    Err(CliError::user(format!("{flag}: {} is not an executable file", path.display()))
        .with_hint(format!("chmod +x {}", path.display())))
}

fn check_directory(flag: &str, path: &Path) -> Result<(), CliError> {
    let probe = path.join(format!(".windlass-check-{}", std::process::id()));
    let written = std::fs::File::create(&probe).and_then(|_| std::fs::remove_file(&probe));
    written.map_err(|error| unusable_path_error(flag, path, &error))
}

/// A credential that is unreadable or empty is useless to jobs.
fn check_credential(flag: &str, path: &Path) -> Result<(), CliError> {
    let text = std::fs::read(path).map_err(|error| unusable_path_error(flag, path, &error))?;
    if text.is_empty() {
        return Err(CliError::user(format!("{flag}: {} is empty", path.display())));
    }
    Ok(())
}

fn unusable_path_error(flag: &str, path: &Path, error: &std::io::Error) -> CliError {
    CliError::user(format!("{flag}: {} cannot be used: {error}", path.display()))
}

/// A systemd unit with the options of the command line, except secrets: units and command lines are
/// world-readable. Settings files are read at each start.
fn render_systemd_unit(ctx: &CliContext, args: &ServeArgs) -> Result<String, CliError> {
    let program = program_path(ctx)?;
    let listen = args.listen.unwrap_or(DEFAULT_LISTEN);
    let mut words = vec![
        quote_systemd(&program.display().to_string()),
        "serve".to_owned(),
        "--db".to_owned(),
        quote_systemd(&ctx.database_name()),
        format!("--listen={listen}"),
    ];
    let given =
        args.given.iter().filter(|one| !["listen", "print-systemd-unit"].contains(&one.name.as_str()));
    words.extend(given.flat_map(|option| render_option(ctx, option)));
    // Logs of allocations are stored with those of their workflows, in any directory.
    let protection = if args.reconciler.slurm { "full" } else { "strict" };
    Ok(UNIT_TEMPLATE
        .replace("@USER@", current_user().trim_start_matches("uid "))
        .replace("@COMMAND@", &words.join(" "))
        .replace("@PLACE@", &disk_directives(ctx))
        .replace("@PROTECTION@", protection))
}

/// The path of this program as it was called: a symbolic link still leads to the program after an upgrade.
fn program_path(ctx: &CliContext) -> Result<PathBuf, CliError> {
    let called = std::env::args_os().next().map(PathBuf::from).unwrap_or_default();
    if called.components().count() > 1 {
        return Ok(ctx.cwd.join(called));
    }
    let directories = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&directories)
        .map(|directory| directory.join(&called))
        .find(|path| path.is_file());
    found
        .map_or_else(std::env::current_exe, Ok)
        .map_err(|e| CliError::io(format!("cannot find the windlass executable: {e}")))
}

/// An option as words of a unit, with absolute paths.
fn render_option(ctx: &CliContext, option: &GivenOption) -> Vec<String> {
    if option.values.is_empty() {
        return vec![format!("--{}", option.name)];
    }
    let value = |value: &OsString| {
        if option.is_path {
            ctx.cwd.join(value).display().to_string()
        } else {
            value.to_string_lossy().into_owned()
        }
    };
    let word = |text: &OsString| quote_systemd(&format!("--{}={}", option.name, value(text)));
    option.values.iter().map(word).collect()
}

/// Secrets that a server with PostgreSQL needs.
const ENVIRONMENT_FILE: &str = "/etc/windlass/server.env";

/// The directories that the unit may write: that of its database, or a state directory.
fn disk_directives(ctx: &CliContext) -> String {
    if ctx.is_postgres() {
        return format!(
            "StateDirectory=windlass\nStateDirectoryMode=0700\nEnvironment=XDG_STATE_HOME=%S\n\
             # PGPASSWORD=… for the database, if needed. Readable only by root: chmod 600.\nEnvironmentFile=-{ENVIRONMENT_FILE}"
        );
    }
    let database = ctx.database();
    // systemd refuses to start a unit whose ReadWritePaths do not exist.
    let there = database.ancestors().skip(1).find(|folder| folder.is_dir());
    format!("ReadWritePaths={}", quote_systemd(&there.unwrap_or(Path::new("/")).display().to_string()))
}

/// Quoted for systemd.
fn quote_systemd(text: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+=:@".contains(c);
    if text.chars().all(plain) {
        return text.to_owned();
    }
    let escaped = text.replace('\\', "\\\\").replace('"', "\\\"").replace('%', "%%").replace('$', "$$");
    format!("\"{escaped}\"")
}

const UNIT_TEMPLATE: &str = include_str!("serve.service");

impl From<ServeError> for CliError {
    fn from(error: ServeError) -> Self {
        let message = with_sources(&error);
        let hint = error.hint();
        let error = match error {
            ServeError::Engine(error) => return error.into(),
            ServeError::Store(error) => return error.into(),
            ServeError::OpenToAll(_) => Self::refused(message),
            ServeError::Tls(_) | ServeError::Auth(_) => Self::user(message),
            ServeError::Failed => Self::internal(message),
            ServeError::Listen { .. }
            | ServeError::Runtime(_)
            | ServeError::Discovery(_)
            | ServeError::Random(_) => Self::io(message),
        };
        match hint {
            Some(hint) => error.with_hint(hint),
            None => error,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systemd_unit_arguments_are_quoted() {
        for (path, word) in [
            ("/usr/bin/windlass", "/usr/bin/windlass"),
            ("/my data/w.db", "\"/my data/w.db\""),
            ("/a\"b", "\"/a\\\"b\""),
            ("/50%", "\"/50%%\""),
        ] {
            assert_eq!(quote_systemd(path), word);
        }
    }
}
