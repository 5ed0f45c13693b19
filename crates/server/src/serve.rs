//! A server from its start to its end.
//!
//! It listens first and says that it stands by; when it has the database it serves. It stops in the opposite order:
//! nothing new is let in, waits and streams end, what is under way is answered, everything is committed, and only then
//! is the database let go.

use crate::discovery::{self, Announced, Discovery, DiscoveryError, PrivateSocket};
use crate::front::{Front, standby};
use crate::gate::{self, Books, Network};
use crate::lifecycle;
use crate::listen::{ListenSocket, Listening};
use crate::listeners::Listeners;
use crate::metrics::Metrics;
use crate::notify;
use crate::options::{ServeOptions, TlsOptions};
use crate::publisher::Publisher;
use crate::rates::Rates;
use crate::router::router;
use crate::signals::Signals;
use crate::slurm;
use crate::state::AppState;
use crate::tls::{self, Tls, TlsError};
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use windlass_auth::{Gate, GateOptions, Secret};
use windlass_engine::service::{Bury, OnSilent, Service, ServiceOptions};
use windlass_requests::Nudge;
use windlass_slurm::steward::Nudge as SlurmNudge;
use windlass_store::lock::{self, Lock, LockGuard};
use windlass_store::{Database, Location, Pulse, Store};
use windlass_types::Clock;

/// Store calls that may be under way at once; more wait for their turn.
const BLOCKING_THREADS: usize = 64;
/// How often a server looks whether it still has its database.
const CHECK_LOCK: Duration = Duration::from_secs(1);

#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    #[error("cannot listen at {address}: {source}")]
    Listen { address: SocketAddr, source: io::Error },
    #[error("--no-auth lets everybody in who can connect, so it is for loopback only, and {0} is not")]
    OpenToAll(SocketAddr),
    #[error("cannot start threads: {0}")]
    Runtime(#[source] io::Error),
    #[error(transparent)]
    Tls(#[from] TlsError),
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    #[error(transparent)]
    Auth(#[from] windlass_auth::ConfigError),
    #[error("the system gives no random numbers: {0}")]
    Random(String),
    #[error(transparent)]
    Store(#[from] windlass_store::Error),
    #[error("cannot take up the workflows")]
    Engine(#[from] windlass_engine::Error),
    #[error("the part of the server that decides has failed, and without it nothing is done")]
    Failed,
}

impl ServeError {
    /// What to do about it.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::AddrInUse => {
                "another program has this port; choose one with --listen, port 0 takes any that is free"
            }
            Self::Listen { source, .. } if source.kind() == io::ErrorKind::PermissionDenied => {
                "ports below 1024 are for root; choose a higher one with --listen"
            }
            Self::Listen { .. } => "--listen takes an address of this machine: 127.0.0.1:8080, 0.0.0.0:8080",
            Self::OpenToAll(_) => {
                "leave --no-auth away: clients of the same user find their token by themselves, and `windlass token create` makes others"
            }
            Self::Discovery(DiscoveryError::NotPrivate { .. }) => {
                "remove it if no server runs there; it must belong to you, and others must not be able to write to it"
            }
            Self::Tls(_) => {
                "--tls-cert and --tls-key take PEM files; `windlass serve --check` reads them without serving"
            }
            Self::Failed => {
                "its log says where; what was acknowledged is on disk, and a server that is started anew goes on from there"
            }
            Self::Runtime(_) | Self::Discovery(_) | Self::Engine(_) | Self::Random(_) => return None,
            Self::Store(error) => return error.hint(),
            Self::Auth(_) => {
                "--auth-config and --password-file name the files; `windlass serve --check` reads them without serving"
            }
        };
        Some(hint.to_owned())
    }
}

/// Starts servers.
#[derive(Clone, Copy, Debug)]
pub struct Server;

/// A server that runs. Dropped, it stops as it would on SIGTERM; not to be dropped inside of async code.
#[derive(Debug)]
pub struct Running {
    /// `http://127.0.0.1:8080`: without a prefix.
    pub url: String,
    /// Of the owner; may do everything.
    pub token: String,
    site: Option<Site>,
    active: Option<Active>,
}

/// What listens.
#[derive(Debug)]
struct Site {
    runtime: Runtime,
    front: Front,
    tls: Option<Arc<Tls>>,
    metrics: Arc<Metrics>,
    stop: CancellationToken,
    served: JoinHandle<()>,
    /// The same, for the socket of the owner.
    listening: Listening,
    url: String,
    /// The same, for this machine.
    near_url: String,
    port: u16,
}

/// What serves.
#[derive(Debug)]
struct Active {
    state: AppState,
    token: String,
    _announced: Option<Announced>,
    /// The last to go.
    lock: LockGuard,
}

impl Server {
    /// Starts one on threads of its own and comes back when it serves.
    pub fn start(options: ServeOptions, database: Arc<dyn Database>) -> Result<Running, ServeError> {
        let options = Arc::new(options);
        let site = Site::open(&options)?;
        let lock = database.lock(Lock::Server, Clock.now())?;
        let active = site.activate(&options, database, lock)?;
        Ok(Running {
            url: site.url.clone(),
            token: active.token.clone(),
            site: Some(site),
            active: Some(active),
        })
    }
}

/// What becomes of a server that was started.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Another one has the database; it takes over when that one is gone.
    Standby,
    Active,
}

/// Serves until SIGTERM or SIGINT. `tell` hears what it is and its address: once it serves, and before that where it has
/// to stand by.
pub fn serve(
    options: ServeOptions,
    database: Arc<dyn Database>,
    mut tell: impl FnMut(Role, &str),
) -> Result<(), ServeError> {
    let options = Arc::new(options);
    let site = Site::open(&options)?;
    let signals = site.runtime.block_on(async { Signals::listen() }).map_err(ServeError::Runtime)?;
    let stands_by = || tell(Role::Standby, &site.url);
    let Some(lock) = wait_for_database(&*database, &signals, stands_by)? else {
        site.end(None);
        return Ok(());
    };
    let active = site.activate(&options, database, lock)?;
    notify::tell("READY=1\nSTATUS=active");
    tell(Role::Active, &site.url);
    tracing::info!(url = %site.url, "serving");
    let ended = site.runtime.block_on(until_stopped(&signals, site.tls.as_deref(), &active));
    notify::tell("STOPPING=1");
    match ended {
        Ok(()) => {
            tracing::info!("stopping");
            site.end(Some(active));
            tracing::info!("stopped; everything is on disk");
            Ok(())
        }
        Err(lost) => {
            tracing::error!(error = %lost, "cannot go on");
            // Nothing can be written any more, so there is nothing to wait for; the process is about to end.
            std::mem::forget(active);
            Err(lost)
        }
    }
}

/// The lock, when it is free; `None`: the server was told to stop meanwhile. A file is used by one server only, so
/// somebody who has it is an error; of a PostgreSQL database there may be several, and all but one stand by.
fn wait_for_database(
    store: &dyn Store,
    signals: &Signals,
    mut stands_by: impl FnMut(),
) -> Result<Option<LockGuard>, ServeError> {
    let may_stand_by = matches!(store.location(), Location::Postgres { .. });
    let mut told = false;
    let waited = lock::wait(
        store,
        Lock::Server,
        || Clock.now(),
        |holder| {
            if may_stand_by && !told {
                told = true;
                let holder = holder.map_or_else(|| "another server".to_owned(), ToString::to_string);
                tracing::info!(%holder, "standing by");
                stands_by();
                notify::tell("READY=1\nSTATUS=standing by");
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

impl Site {
    fn open(options: &Arc<ServeOptions>) -> Result<Self, ServeError> {
        options.check()?;
        let tls = options.tls.clone().map(Tls::load).transpose()?.map(Arc::new);
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .thread_name("windlass-http")
            .max_blocking_threads(BLOCKING_THREADS)
            .build()
            .map_err(ServeError::Runtime)?;
        let (listener, address) = runtime.block_on(bind(options))?;
        let metrics = Arc::new(Metrics::default());
        let front = Front::new(standby(Arc::clone(&metrics), options));
        let stop = CancellationToken::new();
        let listening = Listening {
            front: front.clone(),
            tls: tls.clone(),
            metrics: Arc::clone(&metrics),
            max_connections: options.limits.max_connections,
            stop: stop.clone(),
        };
        let served =
            runtime.spawn(listening.clone().run(ListenSocket::Tcp(listener), options.shutdown_grace));
        let scheme = if tls.is_some() { "https" } else { "http" };
        let url = format!("{scheme}://{address}");
        let near_url = format!("{scheme}://{}", from_here(address));
        let port = address.port();
        Ok(Self { runtime, front, tls, metrics, stop, served, listening, url, near_url, port })
    }

    /// Takes up the workflows and lets callers in.
    fn activate(
        &self,
        options: &Arc<ServeOptions>,
        database: Arc<dyn Database>,
        lock: LockGuard,
    ) -> Result<Active, ServeError> {
        let store: Arc<dyn Store> = database.clone();
        let inside = self.runtime.enter();
        let events = Publisher::start(
            Arc::clone(&store),
            Arc::clone(&self.metrics),
            options.look_for_events,
            self.stop.clone(),
        );
        drop(inside);
        let fresh = Secret::random().map_err(|e| ServeError::Random(e.to_string()))?;
        let token = fresh.reveal().to_owned();
        if let Some(dir) = &options.run_dir {
            discovery::keep_owner_token(dir, &token)?;
        }
        let gate = GateOptions {
            owner: options.owner.clone(),
            owner_token: Some(Secret::kept(token.clone())),
            no_auth: options.no_auth,
            config: options.auth_config.clone(),
            password_file: options.password_file.clone(),
            client_authorities: self
                .tls
                .clone()
                .map(|tls| Arc::new(move || tls.authorities()) as Arc<dyn Fn() -> usize + Send + Sync>),
            fetch: Some(Arc::new(Network)),
            tokens: Some(Arc::new(Books(Arc::clone(&store)))),
        };
        let auth = Arc::new(Gate::open(gate)?);
        let pulse = lock.pulse();
        let nudge = Nudge::default();
        let of_slurm = SlurmNudge::default();
        let service_options = self.service_options(options, &events, &pulse, nudge.clone(), of_slurm.clone());
        let service = Service::start(Arc::clone(&store), service_options)?;
        self.metrics.include(service.clone());
        let lifecycle = lifecycle::open(options, &database, &service, nudge).map_err(ServeError::Runtime)?;
        self.metrics.include_requests(lifecycle.clone());
        let steward = slurm::open(options, &database, &service, &auth, of_slurm, &self.url);
        let steward = steward.map_err(ServeError::Runtime)?;
        if let Some(steward) = &steward {
            self.metrics.include_slurm(steward.clone());
        }
        let state = AppState {
            store,
            database,
            service,
            lifecycle,
            steward,
            auth,
            events,
            metrics: Arc::clone(&self.metrics),
            listeners: Listeners::default(),
            rates: Rates::new(options.limits.clone(), Arc::clone(&self.metrics)),
            pulse,
            options: Arc::clone(options),
        };
        self.runtime.spawn(gate::note_token_use(state.clone(), self.stop.clone()));
        let router = router(state.clone(), self.port);
        // A client that is let in and has the token of the server before finds the new one, so that is said first.
        let announced = options.run_dir.as_deref().map(|dir| {
            let pin = options.tls.as_ref().map(|tls| pin(dir, tls)).transpose()?;
            // With TLS the certificate proves who listens.
            let private = if pin.is_none() { Some(discovery::listen_privately(dir)?) } else { None };
            let socket = private.as_ref().map(|private| private.path.clone());
            let told = Discovery {
                url: self.near_url.clone(),
                pid: std::process::id(),
                version: env!("CARGO_PKG_VERSION").to_owned(),
                token: (!options.no_auth).then(|| token.clone()),
                boot_id: socket.as_ref().and_then(|_| discovery::boot_id()),
                socket,
                pin,
            };
            Ok::<_, ServeError>((discovery::announce(dir, &told)?, private))
        });
        let (announced, private) = announced.transpose()?.unzip();
        self.front.replace(router);
        private.flatten().map_or(Ok(()), |private| self.open_socket(private, options))?;
        Ok(Active { state, token, _announced: announced, lock })
    }

    /// For clients of the owner on this machine.
    fn open_socket(&self, socket: PrivateSocket, options: &ServeOptions) -> Result<(), ServeError> {
        let listener = socket.show()?;
        let _inside = self.runtime.enter();
        let listener = tokio::net::UnixListener::from_std(listener).map_err(ServeError::Runtime)?;
        let listening = Listening { tls: None, ..self.listening.clone() };
        self.runtime.spawn(listening.run(ListenSocket::Unix(listener), options.shutdown_grace));
        Ok(())
    }

    fn service_options(
        &self,
        options: &ServeOptions,
        events: &Publisher,
        pulse: &Pulse,
        nudge: Nudge,
        of_slurm: SlurmNudge,
    ) -> ServiceOptions {
        let (events, overlap, pulse) = (events.clone(), pulse.overlap(), pulse.clone());
        // Where nobody talks to Slurm nobody would answer.
        let fences = options.slurm.as_ref().map(|_| of_slurm.clone());
        let on_silent = fences.map(|fences| Arc::new(move |silent| fences.silent(silent)) as OnSilent);
        ServiceOptions {
            lease: options.lease,
            grace: options.grace,
            api_url: Some(self.url.clone()),
            bury: options.bury.clone().map(telling),
            on_commit: Some(Arc::new(move || events.nudge())),
            on_silent,
            on_change: Some(Arc::new(move |workflow| {
                nudge.workflow(workflow);
                of_slurm.workflow(workflow);
            })),
            is_certain: Some(Arc::new(move || pulse.is_certain())),
            overlap,
            shares_node_blame: options.share_node_blame,
            classifier: options.classifier.clone(),
            ..ServiceOptions::default()
        }
    }

    /// All is on disk when it returns.
    fn end(self, active: Option<Active>) {
        self.stop.cancel();
        if let Some(active) = &active {
            active.state.lifecycle.stop();
            if let Some(steward) = &active.state.steward {
                steward.stop();
            }
            // Waits are answered by this, so it comes before waiting for the answers.
            active.state.service.stop();
        }
        // It only ends early by a panic, which has been told.
        drop(self.runtime.block_on(self.served));
        drop(active);
        self.runtime.shutdown_timeout(Duration::from_secs(5));
    }
}

impl Running {
    /// Stops listening, ends waits and streams, answers what is under way, and comes back when all is on disk.
    pub fn stop(mut self) {
        self.end();
    }

    /// Fails if the database is not its own any more: it was removed, or another server has taken over.
    pub fn verify(&self) -> Result<(), ServeError> {
        Ok(self.active.as_ref().map_or(Ok(()), |active| active.lock.verify())?)
    }

    /// Reads the certificates again, as on SIGHUP.
    pub fn reload(&self) -> Result<(), TlsError> {
        self.site.as_ref().and_then(|site| site.tls.as_ref()).map_or(Ok(()), |tls| tls.reload())
    }

    /// What its handlers have at hand.
    pub fn state(&self) -> Option<&AppState> {
        self.active.as_ref().map(|active| &active.state)
    }

    fn end(&mut self) {
        if let Some(site) = self.site.take() {
            site.end(self.active.take());
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.end();
    }
}

/// Says so where a worker of an earlier run may still be at it.
fn telling(bury: Bury) -> Bury {
    Arc::new(move |worker| {
        let is_dead = bury(worker);
        if !is_dead {
            let (host, pid) = (&worker.host, worker.pid);
            tracing::warn!(%host, pid, "a worker of an earlier run may live: what it had stays its own until it is retired");
        }
        is_dead
    })
}

/// Where somebody on this machine finds what listens there: one that listens everywhere, on loopback.
fn from_here(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// Keeps the certificate that is shown now, for the owner's own commands and workers.
fn pin(dir: &Path, tls: &TlsOptions) -> Result<PathBuf, ServeError> {
    Ok(discovery::pin(dir, &tls::leaf(tls)?)?)
}

async fn bind(options: &ServeOptions) -> Result<(TcpListener, SocketAddr), ServeError> {
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

/// Until somebody wants the server to stop, or it can do nothing more: it has lost its database, or a part of itself. On
/// SIGHUP it reads its files again.
async fn until_stopped(signals: &Signals, tls: Option<&Tls>, active: &Active) -> Result<(), ServeError> {
    let mut look = tokio::time::interval(CHECK_LOCK);
    let mut told = None;
    loop {
        tokio::select! {
            () = signals.stop.cancelled() => return Ok(()),
            () = signals.reload.notified() => reload(tls, &active.state),
            _ = look.tick() => {
                active.lock.check()?;
                told = tell_trouble(&*active.state.store, told);
                if !active.state.service.is_alive() {
                    return Err(ServeError::Failed);
                }
            }
        }
    }
}

/// Logs once what is wrong with the database, and once that it is over.
fn tell_trouble(store: &dyn Store, told: Option<String>) -> Option<String> {
    let trouble = store.trouble();
    let words = trouble.as_ref().and_then(windlass_store::Error::public_words);
    let sort = |words: &str| words.split('(').next().map(str::to_owned);
    match (&trouble, &words, &told) {
        // The figures in brackets change all the time.
        (Some(_), Some(now), Some(before)) if sort(now) == sort(before) => return told,
        (Some(error), Some(now), _) => {
            let hint = error.hint().unwrap_or_default();
            tracing::error!(error = &*error.to_string(), hint, "the database takes no changes");
            notify::tell(&format!("STATUS={now}"));
        }
        (_, _, Some(_)) => {
            tracing::info!("the database takes changes again");
            notify::tell("STATUS=");
        }
        _ => {}
    }
    words
}

fn reload(tls: Option<&Tls>, state: &AppState) {
    notify::tell("RELOADING=1");
    let options = &state.options;
    let fresh = tls.map_or(Ok(()), Tls::reload).map_err(ServeError::from).and_then(|()| {
        let files = options.run_dir.as_deref().zip(options.tls.as_ref());
        files.map_or(Ok(()), |(dir, tls)| pin(dir, tls).map(drop))
    });
    match fresh {
        Ok(()) => tracing::info!("read the certificates again"),
        Err(error) => tracing::error!(%error, "the old certificates stay in use"),
    }
    match state.auth.reload() {
        Ok(_) => tracing::info!("read again who may do what"),
        Err(error) => tracing::error!(%error, "who may do what stays as it was"),
    }
    notify::tell("READY=1");
}
