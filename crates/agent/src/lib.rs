//! A worker of a server: exchanges reports for jobs over HTTP and keeps its lease.
