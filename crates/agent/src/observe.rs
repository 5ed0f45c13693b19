//! What people see of an agent while it works.

use windlass_types::work::Ended;

/// Told what happens, on the agent's own thread: be quick.
pub trait Observer {
    /// Something that somebody should know.
    fn notice(&mut self, text: &str);
    /// How things stand, whenever that has changed.
    fn progress(&mut self, progress: &Progress);
    /// An attempt ended here.
    fn ended(&mut self, _ended: &Ended) {}
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// As the server calls it, once it does.
    pub worker: Option<i64>,
    /// Attempts that it has and that are not over.
    pub held: usize,
    /// Ended with exit code 0, and otherwise.
    pub succeeded: u64,
    pub failed: u64,
    /// Results that the server has not got yet.
    pub undelivered: usize,
    /// The server does not answer.
    pub is_away: bool,
    /// The lease is over and jobs stand still.
    pub is_frozen: bool,
    /// It takes nothing more.
    pub is_leaving: bool,
}

/// Nobody watches.
#[derive(Clone, Copy, Debug, Default)]
pub struct Silent;

impl Observer for Silent {
    fn notice(&mut self, _text: &str) {}
    fn progress(&mut self, _progress: &Progress) {}
}
