//! The events of the dispatcher, in one queue: messages of the worker, and of other threads.
//!
//! The dispatcher reads the worker's link itself. A separate thread would cost a wake-up for every dependent
//! job.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, recv};
use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, mpsc};
use std::time::Instant;
use windlass_types::WorkerId;
use windlass_types::worker_messages::FromWorker;
use windlass_types::worker_protocol::ActionReport;

/// The largest size of one read from the worker's link.
const READ_SIZE: usize = 1 << 16;

#[derive(Debug)]
pub(crate) enum DispatcherEvent {
    FromWorker {
        worker: WorkerId,
        message: FromWorker,
    },
    /// The link is closed; `protocol_error` if it carried an invalid message.
    WorkerGone {
        worker: WorkerId,
        protocol_error: Option<String>,
    },
    Committed(Result<(), windlass_store::StoreError>),
    ActionEnded(ActionReport),
    Interrupt,
    CheckRequests,
}

#[derive(Debug)]
pub(crate) struct EventQueue {
    arrived: VecDeque<DispatcherEvent>,
    receiver: mpsc::Receiver<DispatcherEvent>,
    sender: EventSender,
    connection: Option<WorkerConnection>,
}

/// Sends events from other threads.
#[derive(Clone, Debug)]
pub(crate) struct EventSender {
    sender: mpsc::Sender<DispatcherEvent>,
    wakeup_fd: Arc<OwnedFd>,
}

/// The link to a worker, with the bytes read so far.
#[derive(Debug)]
struct WorkerConnection {
    worker: WorkerId,
    stream: UnixStream,
    chunk: Box<[u8]>,
    unread: Vec<u8>,
}

impl EventQueue {
    pub(crate) fn new() -> io::Result<Self> {
        let (sender, posted) = mpsc::channel();
        let bell = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
        Ok(Self {
            arrived: VecDeque::new(),
            receiver: posted,
            sender: EventSender { sender, wakeup_fd: bell },
            connection: None,
        })
    }

    pub(crate) fn sender(&self) -> EventSender {
        self.sender.clone()
    }

    pub(crate) fn attach_worker(&mut self, worker: WorkerId, stream: UnixStream) {
        let chunk = vec![0; READ_SIZE].into_boxed_slice();
        self.connection = Some(WorkerConnection { worker, stream, chunk, unread: Vec::new() });
    }

    /// The next event that has already arrived.
    pub(crate) fn try_next_event(&mut self) -> Option<DispatcherEvent> {
        if self.arrived.is_empty() {
            self.read_worker();
        }
        self.arrived.pop_front().or_else(|| self.receiver.try_recv().ok())
    }

    /// The next event, or `None` if none arrives until then.
    pub(crate) fn next_event(&mut self, until: Instant) -> Option<DispatcherEvent> {
        loop {
            if let Some(event) = self.arrived.pop_front() {
                return Some(event);
            }
            if let Ok(event) = self.receiver.try_recv() {
                return Some(event);
            }
            let left = until.saturating_duration_since(Instant::now());
            let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: left.subsec_nanos().into() };
            let mut fds = vec![PollFd::new(&self.sender.wakeup_fd, PollFlags::IN)];
            fds.extend(self.connection.as_ref().map(|line| PollFd::new(&line.stream, PollFlags::IN)));
            match poll(&mut fds, Some(&timeout)) {
                Ok(0) => return None,
                Ok(_) | Err(Errno::INTR) => {}
                // Only out of memory: try again until the timeout.
                Err(_) if left.is_zero() => return None,
                Err(_) => {}
            }
            let woken = fds.first().is_some_and(|bell| !bell.revents().is_empty());
            let has_message = fds.get(1).is_some_and(|line| !line.revents().is_empty());
            if woken {
                // The counter has no meaning; it only wakes the loop up.
                rustix::io::read(&self.sender.wakeup_fd, &mut [0; 8]).unwrap_or_default();
            }
            if has_message {
                self.read_worker();
            }
        }
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
        self.arrived.push_back(DispatcherEvent::WorkerGone { worker, protocol_error });
    }
}

impl WorkerConnection {
    /// The first `length` bytes of the chunk are new.
    fn parse_messages(
        &mut self,
        length: usize,
        arrived: &mut VecDeque<DispatcherEvent>,
    ) -> serde_json::Result<()> {
        self.unread.extend_from_slice(&self.chunk[..length]);
        let mut read = 0;
        while let Some(length) = self.unread[read..].iter().position(|byte| *byte == b'\n') {
            let message = serde_json::from_slice(&self.unread[read..read + length])?;
            arrived.push_back(DispatcherEvent::FromWorker { worker: self.worker, message });
            read += length + 1;
        }
        self.unread.drain(..read);
        Ok(())
    }
}

impl EventSender {
    pub(crate) fn send(&self, event: DispatcherEvent) {
        // An error means that the run has ended, and the event is not needed.
        if self.sender.send(event).is_ok() {
            // It fails only if the counter is full, and then it wakes the loop anyway.
            rustix::io::write(&self.wakeup_fd, &1u64.to_ne_bytes()).unwrap_or_default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::time::Duration;
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
                matches!(inbox.next_event(soon()), Some(DispatcherEvent::FromWorker { message, .. }) if message == hello())
            );
        }
        assert!(inbox.try_next_event().is_none());
        theirs.write_all(b"{\"Hello").unwrap();
        drop(theirs);
        assert!(
            matches!(
                inbox.next_event(soon()),
                Some(DispatcherEvent::WorkerGone { protocol_error: None, .. })
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
            inbox.next_event(soon()),
            Some(DispatcherEvent::WorkerGone { protocol_error: Some(_), .. })
        ));
    }

    #[test]
    fn events_of_threads_arrive_and_waits_time_out() {
        let mut inbox = EventQueue::new().unwrap();
        let post = inbox.sender();
        std::thread::spawn(move || post.send(DispatcherEvent::Interrupt));
        assert!(matches!(inbox.next_event(soon()), Some(DispatcherEvent::Interrupt)));
        assert!(inbox.next_event(Instant::now()).is_none());
    }
}
