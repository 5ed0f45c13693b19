//! The events of the scheduler, in one queue: those of other threads, and messages of an attached worker.
//!
//! The scheduler reads the worker's link itself. A separate thread would cost a wake-up for every dependent
//! job.

use super::scheduler_call::{LocalRunEvent, SchedulerEvent};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering, fence};
use std::sync::{Arc, mpsc};
use std::time::Instant;
use windlass_types::WorkerId;

/// The largest size of one read from the worker's link.
const READ_SIZE: usize = 1 << 16;

pub(super) struct EventQueue {
    arrived: VecDeque<SchedulerEvent>,
    receiver: mpsc::Receiver<SchedulerEvent>,
    sender: EventSender,
    connection: Option<WorkerConnection>,
}

/// Sends events from any thread.
#[derive(Clone)]
pub(super) struct EventSender {
    sender: mpsc::Sender<SchedulerEvent>,
    wakeup: Arc<Wakeup>,
}

/// Wakes the scheduler while it waits. Otherwise it finds new events by itself.
struct Wakeup {
    fd: OwnedFd,
    is_waiting: AtomicBool,
}

/// The link to a worker, with the bytes read so far.
struct WorkerConnection {
    worker: WorkerId,
    stream: UnixStream,
    chunk: Box<[u8]>,
    unread: Vec<u8>,
}

impl EventQueue {
    pub(super) fn new() -> io::Result<Self> {
        let (sender, receiver) = mpsc::channel();
        let fd = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let wakeup = Arc::new(Wakeup { fd, is_waiting: AtomicBool::new(false) });
        let sender = EventSender { sender, wakeup };
        Ok(Self { arrived: VecDeque::new(), receiver, sender, connection: None })
    }

    pub(super) fn sender(&self) -> EventSender {
        self.sender.clone()
    }

    pub(super) fn attach_worker(&mut self, worker: WorkerId, stream: UnixStream) {
        let chunk = vec![0; READ_SIZE].into_boxed_slice();
        self.connection = Some(WorkerConnection { worker, stream, chunk, unread: Vec::new() });
    }

    /// The next event that has already arrived.
    pub(super) fn try_next_event(&mut self) -> Option<SchedulerEvent> {
        if self.arrived.is_empty() {
            self.read_worker();
        }
        self.arrived.pop_front().or_else(|| self.receiver.try_recv().ok())
    }

    /// The next event. `None`: none arrived until then; without a time this waits as long as it takes.
    pub(super) fn next_event(&mut self, until: Option<Instant>) -> Option<SchedulerEvent> {
        loop {
            let arrived = self.arrived.pop_front().or_else(|| self.receiver.try_recv().ok());
            if arrived.is_some() {
                return arrived;
            }
            self.sender.wakeup.is_waiting.store(true, Ordering::SeqCst);
            // An event sent before this is found here; a later one wakes the poll.
            fence(Ordering::SeqCst);
            let arrived = self.receiver.try_recv().ok();
            let is_time_over = arrived.is_none() && !self.wait(until);
            self.sender.wakeup.is_waiting.store(false, Ordering::SeqCst);
            if arrived.is_some() || is_time_over {
                return arrived;
            }
        }
    }

    /// `false`: the time is over.
    fn wait(&mut self, until: Option<Instant>) -> bool {
        let left = until.map(|until| until.saturating_duration_since(Instant::now()));
        let timeout =
            left.map(|left| Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() });
        let mut fds = vec![PollFd::new(&self.sender.wakeup.fd, PollFlags::IN)];
        fds.extend(self.connection.as_ref().map(|connection| PollFd::new(&connection.stream, PollFlags::IN)));
        match poll(&mut fds, timeout.as_ref()) {
            Ok(0) => return false,
            Ok(_) | Err(Errno::INTR) => {}
            // Only out of memory: try again until the timeout.
            Err(_) if left.is_some_and(|left| left.is_zero()) => return false,
            Err(_) => {}
        }
        let woken = fds.first().is_some_and(|wakeup| !wakeup.revents().is_empty());
        let has_message = fds.get(1).is_some_and(|connection| !connection.revents().is_empty());
        if woken {
            // The counter has no meaning; it only wakes the loop up.
            rustix::io::read(&self.sender.wakeup.fd, &mut [0; 8]).unwrap_or_default();
        }
        if has_message {
            self.read_worker();
        }
        true
    }

    /// Reads all messages that the worker has sent so far.
    fn read_worker(&mut self) {
        let Some(line) = &mut self.connection else { return };
        let worker = line.worker;
        let protocol_error = match recv(line.stream.as_fd(), &mut line.chunk[..], RecvFlags::DONTWAIT) {
            Err(Errno::AGAIN | Errno::INTR) => return,
            // A last line without its end was cut off by the worker's death and is ignored.
            Ok((_, 0)) | Err(_) => None,
            Ok((_, length)) => match line.parse_messages(length, &mut self.arrived) {
                Ok(()) => return,
                Err(error) => Some(error.to_string()),
            },
        };
        self.connection = None;
        self.arrived.push_back(LocalRunEvent::WorkerGone { worker, protocol_error }.into());
    }
}

impl WorkerConnection {
    /// The first `length` bytes of the chunk are new.
    fn parse_messages(
        &mut self,
        length: usize,
        arrived: &mut VecDeque<SchedulerEvent>,
    ) -> serde_json::Result<()> {
        self.unread.extend_from_slice(&self.chunk[..length]);
        let mut read = 0;
        while let Some(length) = self.unread[read..].iter().position(|byte| *byte == b'\n') {
            let message = serde_json::from_slice(&self.unread[read..read + length])?;
            arrived.push_back(LocalRunEvent::FromWorker { worker: self.worker, message }.into());
            read += length + 1;
        }
        self.unread.drain(..read);
        Ok(())
    }
}

impl EventSender {
    /// Returns the event if the scheduler has ended, and it is not needed.
    pub(super) fn send(&self, event: SchedulerEvent) -> Option<SchedulerEvent> {
        if let Err(mpsc::SendError(event)) = self.sender.send(event) {
            return Some(event);
        }
        fence(Ordering::SeqCst);
        if self.wakeup.is_waiting.swap(false, Ordering::SeqCst) {
            // It fails only if the counter is full, and then it wakes the loop anyway.
            rustix::io::write(&self.wakeup.fd, &1u64.to_ne_bytes()).unwrap_or_default();
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::time::Duration;
    use windlass_types::worker_messages::FromWorker;
    use windlass_types::{Bytes, Capacity};

    fn soon() -> Instant {
        Instant::now() + Duration::from_mins(1)
    }

    fn hello() -> FromWorker {
        let capacity = Capacity { cpus: 1, memory: Bytes(1), gpus: 0, nodes: 1, max_jobs: None };
        FromWorker::Hello { capacity }
    }

    #[test]
    fn messages_arrive_whole_in_any_fragmentation() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let mut inbox = EventQueue::new().unwrap();
        inbox.attach_worker(WorkerId(1), ours);
        let mut text = serde_json::to_vec(&hello()).unwrap();
        text.push(b'\n');
        let twice = [text.clone(), text].concat();
        for part in twice.chunks(7) {
            theirs.write_all(part).unwrap();
        }
        for _ in 0..2 {
            assert!(
                matches!(inbox.next_event(Some(soon())), Some(SchedulerEvent::Local(LocalRunEvent::FromWorker { message, .. })) if message == hello())
            );
        }
        assert!(inbox.try_next_event().is_none());
        theirs.write_all(b"{\"Hello").unwrap();
        drop(theirs);
        assert!(
            matches!(
                inbox.next_event(Some(soon())),
                Some(SchedulerEvent::Local(LocalRunEvent::WorkerGone { protocol_error: None, .. }))
            ),
            "a partial message is ignored"
        );
    }

    #[test]
    fn invalid_messages_are_reported() {
        let (mut theirs, ours) = UnixStream::pair().unwrap();
        let mut inbox = EventQueue::new().unwrap();
        inbox.attach_worker(WorkerId(1), ours);
        theirs.write_all(b"what?\n").unwrap();
        assert!(matches!(
            inbox.next_event(Some(soon())),
            Some(SchedulerEvent::Local(LocalRunEvent::WorkerGone { protocol_error: Some(_), .. }))
        ));
    }

    #[test]
    fn events_of_threads_arrive_and_waits_time_out() {
        let mut inbox = EventQueue::new().unwrap();
        let post = inbox.sender();
        std::thread::spawn(move || drop(post.send(LocalRunEvent::Interrupt.into())));
        assert!(matches!(
            inbox.next_event(Some(soon())),
            Some(SchedulerEvent::Local(LocalRunEvent::Interrupt))
        ));
        assert!(inbox.next_event(Some(Instant::now())).is_none());
    }
}
