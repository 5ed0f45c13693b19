//! The life of a server, from start to shutdown.
//!
//! It listens first and reports standby; once it has locked the database it serves. Shutdown is in the opposite
//! order: no new connections are accepted, long polls and streams end, active requests are answered, everything
//! is committed, and the database lock is released last.

use crate::auth_backend::{self, HttpFetcher, SqlTokenStore};
use crate::connection_server::{ConnectionServer, ListenSocket};
use crate::discovery::{self, DiscoveryError, DiscoveryFiles, PrivateSocket, ServerDiscovery};
use crate::event_publisher::EventPublisher;
use crate::exchange_waiters::ExchangeWaiters;
use crate::metrics::ServerMetrics;
use crate::options::{ServeOptions, ServerTlsOptions};
use crate::rate_limiter::RateLimiter;
use crate::request_lifecycle;
use crate::router::build_router;
use crate::signals::ServerSignals;
use crate::slurm_allocations;
use crate::state::AppState;
use crate::swappable_router::{SwappableRouter, standby_router};
use crate::systemd_notify;
use crate::tls::{self, ServerTls, TlsError};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass_auth::{Authenticator, AuthenticatorOptions, TokenSecret};
use windlass_requests::RequestReconcilerWaker;
use windlass_scheduler::SchedulerError;
use windlass_scheduler::service::{OnUnreachableAllocationWorker, SchedulerHandle, SchedulerOptions};
use windlass_slurm::allocation_reconciler::AllocationReconcilerWaker;
use windlass_store::lock::{self, LockGuard, LockScope};
use windlass_store::{LeaderLease, Store, StoreDatabase, StoreError, StoreLocation};
use windlass_types::SystemClock;

/// Maximum number of concurrent store calls; further ones wait.
const MAX_BLOCKING_THREADS: usize = 64;
/// How often the server checks that it still holds the database lock.
const LOCK_CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A server that starts waits this long for a database that does not respond: both may start with the machine.
pub const DATABASE_START_WAIT: Duration = Duration::from_mins(1);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen at {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("--no-auth gives every client full access, so it is allowed on loopback only, and {0} is not")]
    OpenToAll(SocketAddr),
    #[error("cannot start threads: {0}")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Auth(#[from] windlass_auth::AuthConfigError),
    #[error("cannot get random numbers from the system: {0}")]
    Random(String),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error("cannot load the workflows")]
    Engine(#[from] SchedulerError),
    #[error("the scheduler failed; the server cannot continue without it")]
    Failed,
}

impl ServeError {
    const fn database_is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Store(StoreError::Unreachable { .. })
                | Self::Engine(SchedulerError::Store(StoreError::Unreachable { .. }))
        )
    }

    /// Returns what to do about the error.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "the port is in use; choose another one with --listen, port 0 takes any free port"
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "ports below 1024 require root; choose a higher one with --listen"
            }
            Self::Listen { .. } => "--listen takes an address of this machine: 127.0.0.1:8080, 0.0.0.0:8080",
            Self::OpenToAll(_) => {
                "remove --no-auth: clients of the same user find their token automatically, and `windlass auth token create` creates others"
            }
            Self::Discovery(DiscoveryError::NotPrivate { .. }) => {
                "remove it if no server uses it; it must belong to you and be writable only by you"
            }
            Self::Tls(_) => {
                "--tls-cert and --tls-key take PEM files; `windlass serve --check` checks them without serving"
            }
            Self::Failed => {
                "see the log; acknowledged changes are on disk, and a restarted server continues from there"
            }
            Self::Runtime(_) | Self::Discovery(_) | Self::Engine(_) | Self::Random(_) => return None,
            Self::Store(error) => return error.hint(),
            Self::Auth(_) => {
                "--auth-config and --password-file name the files; `windlass serve --check` checks them without serving"
            }
        };
        Some(hint.to_owned())
    }
}

/// Starts servers.
#[derive(Clone, Copy, Debug)]
pub struct ApiServer;

/// A running server. Dropping it stops it as SIGTERM does; it must not be dropped inside async code.
#[derive(Debug)]
pub struct RunningServer {
    /// URL without a path prefix: `http://127.0.0.1:8080`.
    pub url: String,
    /// The owner's token, with full access.
    pub token: String,
    frontend: Option<ServerFrontend>,
    active: Option<ActiveServer>,
}

/// The listening part of a server.
#[derive(Debug)]
struct ServerFrontend {
    runtime: Runtime,
    router: SwappableRouter,
    tls: Option<Arc<ServerTls>>,
    metrics: Arc<ServerMetrics>,
    stop: CancellationToken,
    serve_task: JoinHandle<()>,
    /// Token that stops accepting on the owner's socket.
    listening: ConnectionServer,
    url: String,
    /// Address of the server for this machine.
    local_url: String,
    port: u16,
}

/// The serving part of a server.
#[derive(Debug)]
struct ActiveServer {
    state: AppState,
    token: String,
    _announced: Option<DiscoveryFiles>,
    /// The database lock; released last.
    lock: LockGuard,
}

impl ApiServer {
    /// Starts a server on its own threads and returns when it serves.
    pub fn start(
        options: ServeOptions,
        database: Arc<dyn StoreDatabase>,
    ) -> Result<RunningServer, ServeError> {
        let options = Arc::new(options);
        let site = ServerFrontend::open(&options)?;
        let lock = database.lock(LockScope::Server, SystemClock.now())?;
        let active = site.activate(&options, database, lock)?;
        Ok(RunningServer {
            url: site.url.clone(),
            token: active.token.clone(),
            frontend: Some(site),
            active: Some(active),
        })
    }
}

/// The state of a server after its start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ServerRole {
    /// Another server holds the database; this one takes over when the lock is released.
    Standby,
    Active,
}

/// Serves until SIGTERM or SIGINT. `tell` is called with the state and the address when the server serves, and
/// before that if it has to stand by.
pub fn serve(
    options: ServeOptions,
    database: &Arc<dyn StoreDatabase>,
    mut tell: impl FnMut(ServerRole, &str),
) -> Result<(), ServeError> {
    let options = Arc::new(options);
    let site = ServerFrontend::open(&options)?;
    let signals = site.runtime.block_on(async { ServerSignals::listen() }).map_err(ServeError::Runtime)?;
    let mut unreachable_since = None;
    let active = loop {
        let stands_by = || tell(ServerRole::Standby, &site.url);
        let Some(lock) = wait_for_database(&**database, &signals, stands_by)? else {
            site.shut_down(None);
            return Ok(());
        };
        match site.activate(&options, Arc::clone(database), lock) {
            Err(error) if error.database_is_unreachable() => {
                tracing::warn!(error = %error, "the database became unreachable while the workflows were loaded");
                if unreachable_since.get_or_insert_with(Instant::now).elapsed() > DATABASE_START_WAIT {
                    return Err(error);
                }
                std::thread::sleep(LOCK_CHECK_INTERVAL);
            }
            other => break other?,
        }
    };
    systemd_notify::notify_systemd("READY=1\nSTATUS=active");
    tell(ServerRole::Active, &site.url);
    tracing::info!(url = %site.url, "serving");
    let ended = site.runtime.block_on(wait_until_stopped(&signals, site.tls.as_deref(), &active));
    systemd_notify::notify_systemd("STOPPING=1");
    match ended {
        Ok(()) => {
            tracing::info!("stopping");
            site.shut_down(Some(active));
            tracing::info!("stopped; all changes are on disk");
            Ok(())
        }
        Err(lost) => {
            tracing::error!(error = %lost, "cannot continue");
            // Nothing can be written any more, so there is nothing to wait for; the process is about to exit.
            std::mem::forget(active);
            Err(lost)
        }
    }
}

/// Waits for the database lock; `None` if the server is stopped meanwhile. A database file is used by one
/// server only, so a held lock is an error; of a PostgreSQL database there may be several servers, and all but
/// one stand by.
fn wait_for_database(
    store: &dyn Store,
    signals: &ServerSignals,
    mut stands_by: impl FnMut(),
) -> Result<Option<LockGuard>, ServeError> {
    let may_stand_by = matches!(store.location(), StoreLocation::Postgres { .. });
    let mut told = false;
    let waited = lock::wait_for_lock(
        store,
        LockScope::Server,
        || SystemClock.now(),
        |holder| {
            if may_stand_by && !told {
                told = true;
                let holder = holder.map_or_else(|| "another server".to_owned(), ToString::to_string);
                tracing::info!(%holder, "standing by");
                stands_by();
                systemd_notify::notify_systemd("READY=1\nSTATUS=standing by");
            }
            may_stand_by && !signals.stop.is_cancelled()
        },
    );
    match waited {
        Ok(lock) => Ok(Some(lock)),
        Err(_) if signals.stop.is_cancelled() => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl ServerFrontend {
    fn open(options: &Arc<ServeOptions>) -> Result<Self, ServeError> {
        options.check()?;
        let tls = options.tls.clone().map(ServerTls::load).transpose()?.map(Arc::new);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("windlass-http")
            .max_blocking_threads(MAX_BLOCKING_THREADS)
            .build()
            .map_err(ServeError::Runtime)?;
        let (listener, address) = runtime.block_on(bind_listener(options))?;
        let metrics = Arc::new(ServerMetrics::default());
        let front = SwappableRouter::new(standby_router(Arc::clone(&metrics), options));
        let stop = CancellationToken::new();
        let listening = ConnectionServer {
            router: front.clone(),
            tls: tls.clone(),
            metrics: Arc::clone(&metrics),
            max_connections: options.limits.max_connections,
            stop: stop.clone(),
        };
        let served =
            runtime.spawn(listening.clone().run(ListenSocket::Tcp(listener), options.shutdown_grace));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}");
        let near_url = format!("{scheme}://{}", local_address(address));
        let port = address.port();
        Ok(Self {
            runtime,
            router: front,
            tls,
            metrics,
            stop,
            serve_task: served,
            listening,
            url,
            local_url: near_url,
            port,
        })
    }

    /// Loads the workflows and starts accepting requests.
    fn activate(
        &self,
        options: &Arc<ServeOptions>,
        database: Arc<dyn StoreDatabase>,
        lock: LockGuard,
    ) -> Result<ActiveServer, ServeError> {
        let store: Arc<dyn Store> = database.clone();
        let stop = self.stop.child_token();
        let stop_after_failure = stop.clone().drop_guard();
        let inside = self.runtime.enter();
        let events = EventPublisher::start(
            Arc::clone(&store),
            Arc::clone(&self.metrics),
            options.event_poll_interval,
            stop.clone(),
        );
        drop(inside);
        let fresh = TokenSecret::random().map_err(|e| ServeError::Random(e.to_string()))?;
        let token = fresh.reveal().to_owned();
        if let Some(dir) = &options.run_dir {
            discovery::store_owner_token(dir, &token)?;
        }
        let auth_options = AuthenticatorOptions {
            owner: options.owner.clone(),
            owner_token: Some(TokenSecret::from_text(token.clone())),
            no_auth: options.no_auth,
            config: options.auth_config.clone(),
            password_file: options.password_file.clone(),
            client_authorities: self
                .tls
                .clone()
                .map(|tls| Arc::new(move || tls.authority_count()) as Arc<dyn Fn() -> usize + Send + Sync>),
            fetch: Some(Arc::new(HttpFetcher)),
            tokens: Some(Arc::new(SqlTokenStore(Arc::clone(&store)))),
        };
        let auth = Arc::new(Authenticator::open(auth_options)?);
        let leader_lease = lock.leader_lease();
        let waker = RequestReconcilerWaker::default();
        let of_slurm = AllocationReconcilerWaker::default();
        let service_options =
            self.service_options(options, &events, &leader_lease, waker.clone(), of_slurm.clone());
        let service = SchedulerHandle::start(Arc::clone(&store), service_options)?;
        self.metrics.register_service(service.clone());
        let lifecycle = request_lifecycle::open_lifecycle(options, &database, &service, waker)
            .map_err(ServeError::Runtime)?;
        self.metrics.register_requests(lifecycle.clone());
        let reconciler = slurm_allocations::open_allocation_reconciler(
            options, &database, &service, &auth, of_slurm, &self.url,
        );
        let reconciler = reconciler.map_err(ServeError::Runtime)?;
        if let Some(reconciler) = &reconciler {
            self.metrics.register_slurm(reconciler.clone());
        }
        let state = AppState {
            store,
            database,
            service,
            lifecycle,
            allocation_reconciler: reconciler,
            authenticator: auth,
            events,
            metrics: Arc::clone(&self.metrics),
            exchange_waiters: ExchangeWaiters::default(),
            rate_limiter: RateLimiter::new(options.limits.clone(), Arc::clone(&self.metrics)),
            leader_lease,
            options: Arc::clone(options),
        };
        self.runtime.spawn(auth_backend::record_token_use(state.clone(), stop));
        let router = build_router(state.clone(), self.port);
        // Written before accepting requests, so that a client with the token of an earlier server finds the
        // new one.
        let announced = options.run_dir.as_deref().map(|dir| {
            let pin = options.tls.as_ref().map(|tls| pin_certificate(dir, tls)).transpose()?;
            // With TLS the certificate proves the server's identity.
            let private = if pin.is_none() { Some(discovery::listen_private_socket(dir)?) } else { None };
            let socket = private.as_ref().map(|private| private.path.clone());
            let told = ServerDiscovery {
                url: self.local_url.clone(),
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                token: (!options.no_auth).then(|| token.clone()),
                boot_id: discovery::boot_id(),
                directory: None,
                socket,
                pin,
            };
            Ok::<_, ServeError>((discovery::announce_server(dir, &told)?, private))
        });
        let (announced, private) = announced.transpose()?.unzip();
        self.router.replace(router);
        private.flatten().map_or(Ok(()), |private| self.open_socket(private, options))?;
        stop_after_failure.disarm();
        Ok(ActiveServer { state, token, _announced: announced, lock })
    }

    /// Listens for clients of the owner on this machine.
    fn open_socket(&self, socket: PrivateSocket, options: &ServeOptions) -> Result<(), ServeError> {
        let listener = socket.publish()?;
        let _inside = self.runtime.enter();
        let listener = tokio::net::UnixListener::from_std(listener).map_err(ServeError::Runtime)?;
        let listening = ConnectionServer { tls: None, ..self.listening.clone() };
        self.runtime.spawn(listening.run(ListenSocket::Unix(listener), options.shutdown_grace));
        Ok(())
    }

    fn service_options(
        &self,
        options: &ServeOptions,
        events: &EventPublisher,
        leader_lease: &LeaderLease,
        waker: RequestReconcilerWaker,
        of_slurm: AllocationReconcilerWaker,
    ) -> SchedulerOptions {
        let (events, overlap, leader_lease) =
            (events.clone(), leader_lease.remaining_overlap(), leader_lease.clone());
        // Without Slurm management no Slurm query could be answered.
        let fences = options.slurm.as_ref().map(|_| of_slurm.clone());
        let on_silent = fences.map(|fences| {
            Arc::new(move |silent| fences.notify_silent_worker(silent)) as OnUnreachableAllocationWorker
        });
        SchedulerOptions {
            lease: options.lease,
            grace: options.stop_grace,
            api_url: Some(self.url.clone()),
            earlier_workers: options.earlier_workers.clone(),
            on_commit: Some(Arc::new(move || events.wake())),
            on_silent_worker: on_silent,
            on_change: Some(Arc::new(move |workflow| {
                waker.wake_workflow(workflow);
                of_slurm.notify_workflow(workflow);
            })),
            is_leadership_certain: Some(Arc::new(move || leader_lease.is_valid())),
            leadership_overlap: overlap,
            shares_node_blame: options.share_node_blame,
            classifier: options.classifier.clone(),
            ..SchedulerOptions::default()
        }
    }

    /// All changes are on disk when it returns.
    fn shut_down(self, active: Option<ActiveServer>) {
        self.stop.cancel();
        if let Some(active) = &active {
            active.state.lifecycle.stop();
            if let Some(reconciler) = &active.state.allocation_reconciler {
                reconciler.stop();
            }
            // This answers long polls, so it comes before waiting for active requests.
            active.state.service.stop();
        }
        // It ends early only by a panic, which was already reported.
        drop(self.runtime.block_on(self.serve_task));
        drop(active);
        self.runtime.shutdown_timeout(Duration::from_secs(5));
    }
}

impl RunningServer {
    /// Stops listening, ends long polls and streams, answers active requests, and returns when all changes are
    /// on disk.
    pub fn stop(mut self) {
        self.shut_down();
    }

    /// Fails if the server no longer holds its database: it was removed, or another server has taken over.
    pub fn verify(&self) -> Result<(), ServeError> {
        Ok(self.active.as_ref().map_or(Ok(()), |active| active.lock.verify())?)
    }

    /// Reloads the certificates, as on SIGHUP.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.frontend.as_ref().and_then(|site| site.tls.as_ref()).map_or(Ok(()), |tls| tls.reload())
    }

    /// Returns the state of its handlers.
    pub fn state(&self) -> Option<&AppState> {
        self.active.as_ref().map(|active| &active.state)
    }

    fn shut_down(&mut self) {
        if let Some(site) = self.frontend.take() {
            site.shut_down(self.active.take());
        }
    }
}

impl Drop for RunningServer {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Returns the address by which clients on this machine reach the listener: loopback if it listens on all
/// addresses.
fn local_address(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Writes the current certificate for the owner's commands and workers.
fn pin_certificate(dir: &Path, tls: &ServerTlsOptions) -> Result<PathBuf, ServeError> {
    Ok(discovery::store_pinned_certificate(dir, &tls::leaf_certificate(tls)?)?)
}

async fn bind_listener(options: &ServeOptions) -> Result<(TcpListener, SocketAddr), ServeError> {
    let address = options.listen;
    let wrong = |source| ServeError::Listen { address, source };
    let listener = match TcpListener::bind(address).await {
        Err(e) if options.any_port && e.kind() == io::ErrorKind::AddrInUse => {
            TcpListener::bind(SocketAddr::new(address.ip(), 0)).await
        }
        bound => bound,
    };
    let listener = listener.map_err(wrong)?;
    let address = listener.local_addr().map_err(wrong)?;
    Ok((listener, address))
}

/// Runs until shutdown is requested, or the server cannot continue: it lost its database or an internal thread.
/// On SIGHUP it reloads its files.
async fn wait_until_stopped(
    signals: &ServerSignals,
    tls: Option<&ServerTls>,
    active: &ActiveServer,
) -> Result<(), ServeError> {
    let mut look = tokio::time::interval(LOCK_CHECK_INTERVAL);
    let mut told = None;
    loop {
        tokio::select! {
            () = signals.stop.cancelled() => return Ok(()),
            () = signals.reload.notified() => reload_files(tls, &active.state),
            _ = look.tick() => {
                active.lock.check()?;
                told = log_database_problem(&*active.state.store, told);
                if !active.state.service.is_alive() {
                    return Err(ServeError::Failed);
                }
            }
        }
    }
}

/// Logs a database failure once, and once its end.
fn log_database_problem(store: &dyn Store, told: Option<String>) -> Option<String> {
    let problem = store.write_failure();
    let words = problem.as_ref().and_then(StoreError::public_message);
    let sort = |words: &str| words.split('(').next().map(str::to_owned);
    match (&problem, &words, &told) {
        // The numbers in brackets change with every message.
        (Some(_), Some(now), Some(before)) if sort(now) == sort(before) => return told,
        (Some(error), Some(now), _) => {
            let hint = error.hint().unwrap_or_default();
            tracing::error!(error = &*error.to_string(), hint, "the database rejects writes");
            systemd_notify::notify_systemd(&format!("STATUS={now}"));
        }
        (_, _, Some(_)) => {
            tracing::info!("the database accepts writes again");
            systemd_notify::notify_systemd("STATUS=");
        }
        _ => {}
    }
    words
}

fn reload_files(tls: Option<&ServerTls>, state: &AppState) {
    systemd_notify::notify_systemd("RELOADING=1");
    let options = &state.options;
    let fresh = tls.map_or(Ok(()), ServerTls::reload).map_err(ServeError::from).and_then(|()| {
        let files = options.run_dir.as_deref().zip(options.tls.as_ref());
        files.map_or(Ok(()), |(dir, tls)| pin_certificate(dir, tls).map(drop))
    });
    match fresh {
        Ok(()) => tracing::info!("reloaded the certificates"),
        Err(error) => tracing::error!(%error, "cannot reload the certificates; the old ones stay in use"),
    }
    match state.authenticator.reload() {
        Ok(_) => tracing::info!("reloaded the auth files"),
        Err(error) => {
            tracing::error!(%error, "cannot reload the auth files; the current configuration stays in use");
        }
    }
    systemd_notify::notify_systemd("READY=1");
}
