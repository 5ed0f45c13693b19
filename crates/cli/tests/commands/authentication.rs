//! Authentication to a server: the password file, and tokens, which are sent to no other server.

use crate::common::{Output, Sandbox};
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;

/// Runs `windlass` with `input` on its standard input.
fn told(sandbox: &Sandbox, args: &[&str], input: &str) -> Output {
    let mut command = sandbox.command(args);
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // The command may exit before it reads anything.
    child.stdin.take().unwrap().write_all(input.as_bytes()).ok();
    let ended = child.wait_with_output().unwrap();
    Output {
        stdout: String::from_utf8(ended.stdout).unwrap(),
        stderr: String::from_utf8(ended.stderr).unwrap(),
        code: ended.status.code().unwrap(),
    }
}

#[test]
fn password_file_is_maintained() {
    let sandbox = Sandbox::new();
    sandbox.write("users", "# people\n");
    told(&sandbox, &["password", "add", "users", "ana"], "secret\n").exits(0).says("ana was added to users");
    told(&sandbox, &["password", "add", "users", "bob", "--bcrypt"], "hunter2\n").exits(0);
    let text = sandbox.read("users");
    assert!(text.starts_with("# people\nana:$argon2id$") && text.contains("\nbob:$2b$12$"), "{text}");

    told(&sandbox, &["password", "verify", "users", "ana"], "secret\n").exits(0);
    told(&sandbox, &["password", "verify", "users", "ana"], "Secret\n").exits(4).says("incorrect");
    told(&sandbox, &["password", "verify", "users", "eve"], "secret\n").exits(2).says("no user `eve`");
    told(&sandbox, &["password", "add", "users", "ana"], "changed\n").exits(0).says("new password");
    told(&sandbox, &["password", "verify", "users", "ana"], "changed\n").exits(0);

    sandbox.windlass(&["auth", "password", "remove", "users", "bob"]).exits(0);
    assert_eq!(sandbox.json(&["auth", "password", "list", "users"]), serde_json::json!(["ana"]));
}

#[test]
fn password_file_error_names_line() {
    let sandbox = Sandbox::new();
    sandbox.write("users", "ana:plaintext\n");
    let said = sandbox.windlass(&["auth", "password", "list", "users"]).exits(2).says("line 1");
    assert!(!said.stderr.contains("plaintext"), "what may be a password is not repeated");
    sandbox.windlass(&["auth", "password", "list", "nowhere"]).exits(5).says("nowhere");
    told(&sandbox, &["password", "add", "new", "a:b"], "secret\n").exits(2).says("cannot be a user name");
    told(&sandbox, &["password", "add", "new", "ana"], "").exits(2).says("nothing was entered");
    assert!(!sandbox.path("new").exists());
}

#[test]
fn new_password_file_is_private() {
    let sandbox = Sandbox::new();
    told(&sandbox, &["password", "add", "users", "ana"], "secret\n").exits(0);
    let mode = sandbox.path("users").metadata().unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn token_is_not_sent_unencrypted() {
    let sandbox = Sandbox::new();
    // No server listens there: the message shows that no connection was tried.
    told(&sandbox, &["login", "http://192.0.2.1:9"], "wl_x\n")
        .exits(2)
        .says("unencrypted")
        .says("--insecure-http");
    told(&sandbox, &["login", "ftp://a"], "wl_x\n").exits(2).says("http:// or https://");
    told(&sandbox, &["login", "http://127.0.0.1:1"], "wl_x\n").exits(5).says("cannot reach the server");
    assert!(
        !sandbox.path("home/.config/windlass/tokens.toml").exists(),
        "nothing is kept that no server knows"
    );
    sandbox.windlass(&["auth", "logout", "https://a"]).exits(2).says("no token is saved");
}

#[test]
fn token_file_readable_by_others_is_rejected() {
    let sandbox = Sandbox::new();
    let name = "home/.config/windlass/tokens.toml";
    sandbox.write(name, "[[server]]\nurl = 'http://127.0.0.1:1'\ntoken = 'wl_x'\n");
    std::fs::set_permissions(sandbox.path(name), PermissionsExt::from_mode(0o644)).unwrap();
    sandbox
        .windlass(&["auth", "whoami", "--url", "http://127.0.0.1:1"])
        .exits(5)
        .says("readable by other users")
        .says("chmod 600");
    std::fs::set_permissions(sandbox.path(name), PermissionsExt::from_mode(0o600)).unwrap();
    sandbox.windlass(&["auth", "whoami", "--url", "http://127.0.0.1:1"]).exits(5).says("cannot reach");
}

#[test]
fn auth_command_requires_server() {
    let sandbox = Sandbox::new();
    sandbox.windlass(&["auth", "token", "list"]).exits(2).says("needs a server").says("WINDLASS_URL");
    sandbox
        .windlass(&[
            "auth",
            "token",
            "create",
            "--name",
            "x",
            "--scope",
            "read",
            "--expires-in",
            "soon",
            "--url",
            "http://127.0.0.1:1",
        ])
        .exits(2)
        .says("--expires-in");
}
