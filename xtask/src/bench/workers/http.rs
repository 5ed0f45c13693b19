//! A minimal HTTP client for the API that Torc and Windlass have in common: one connection, kept open, JSON in
//! both directions.

use std::cell::RefCell;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// The path of the common API on both servers.
pub(in crate::bench) const PREFIX: &str = "/torc-service/v1";

pub(in crate::bench) struct Http {
    address: String,
    token: Option<String>,
    connection: RefCell<Option<BufReader<TcpStream>>>,
}

impl Clone for Http {
    /// The clone opens its own connection.
    fn clone(&self) -> Self {
        Self::new(&self.address, self.token.as_deref())
    }
}

impl Http {
    /// `address` is `host:port`.
    pub(in crate::bench) fn new(address: &str, token: Option<&str>) -> Self {
        let token = token.map(str::to_owned);
        Self { address: address.to_owned(), token, connection: RefCell::new(None) }
    }

    pub(in crate::bench) fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(in crate::bench) fn get(&self, path: &str) -> Result<Value> {
        self.call("GET", &format!("{PREFIX}{path}"), "")
    }

    /// Calls the API of Windlass, outside of the common one.
    pub(in crate::bench) fn get_own(&self, path: &str) -> Result<Value> {
        self.call("GET", &format!("/api/v1{path}"), "")
    }

    pub(in crate::bench) fn post(&self, path: &str, body: &str) -> Result<Value> {
        self.call("POST", &format!("{PREFIX}{path}"), body)
    }

    pub(in crate::bench) fn patch_own(&self, path: &str, body: &str) -> Result<Value> {
        self.call("PATCH", &format!("/api/v1{path}"), body)
    }

    fn call(&self, method: &str, path: &str, body: &str) -> Result<Value> {
        let mut slot = self.connection.borrow_mut();
        let connection = match slot.take() {
            Some(connection) => connection,
            None => self.connect()?,
        };
        let (answer, connection) = self.exchange(connection, method, path, body)?;
        *slot = Some(connection);
        Ok(answer)
    }

    fn connect(&self) -> Result<BufReader<TcpStream>> {
        let stream =
            TcpStream::connect(&self.address).with_context(|| format!("cannot reach {}", self.address))?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        Ok(BufReader::new(stream))
    }

    fn exchange(
        &self,
        mut connection: BufReader<TcpStream>,
        method: &str,
        path: &str,
        body: &str,
    ) -> Result<(Value, BufReader<TcpStream>)> {
        let token = self.token.as_ref().map(|token| format!("Authorization: Bearer {token}\r\n"));
        let request = format!(
            "{method} {path} HTTP/1.1\r\nHost: {}\r\n{}Content-Type: application/json\r\n\
             Content-Length: {}\r\n\r\n{body}",
            self.address,
            token.unwrap_or_default(),
            body.len()
        );
        connection.get_mut().write_all(request.as_bytes())?;
        let mut line = String::new();
        connection.read_line(&mut line)?;
        let status: u16 = line.split(' ').nth(1).and_then(|code| code.parse().ok()).context("no HTTP")?;
        let length = content_length(&mut connection)?;
        let mut content = vec![0; length];
        connection.read_exact(&mut content)?;
        if !(200..300).contains(&status) {
            bail!("{method} {path}: {status} {}", String::from_utf8_lossy(&content));
        }
        let value = if content.is_empty() { Value::Null } else { serde_json::from_slice(&content)? };
        Ok((value, connection))
    }
}

/// Reads up to the end of the header.
fn content_length(connection: &mut BufReader<TcpStream>) -> Result<usize> {
    let mut length = 0;
    loop {
        let mut line = String::new();
        if connection.read_line(&mut line)? == 0 {
            bail!("the server closed the connection");
        }
        let line = line.trim_end().to_ascii_lowercase();
        if line.is_empty() {
            return Ok(length);
        }
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse().context("a length that is no number")?;
        }
        if line.starts_with("transfer-encoding:") {
            bail!("the answer has no length");
        }
    }
}
