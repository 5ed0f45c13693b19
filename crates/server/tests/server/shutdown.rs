//! Discovery files and shutdown of the server.

use crate::test_server::Fixture;
use serde_json::Value;
use std::os::unix::fs::PermissionsExt;

#[test]
fn owner_clients_discover_the_running_server() {
    let run_dir = tempfile::tempdir().unwrap();
    std::fs::set_permissions(run_dir.path(), PermissionsExt::from_mode(0o700)).unwrap();
    let file = run_dir.path().join("server.json");
    let fixture = Fixture::with(|options| options.run_dir = Some(run_dir.path().to_owned()));
    let told: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    assert_eq!(told["url"], *fixture.server.url);
    assert_eq!(told["token"], *fixture.server.token);
    assert_eq!(told["pid"], std::process::id());
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let token = fixture.server.token.clone();
    let Fixture { server, dir, .. } = fixture;
    server.stop();
    assert!(!file.exists());
    drop(dir);
    let again = Fixture::with(|options| options.run_dir = Some(run_dir.path().to_owned()));
    assert_ne!(again.server.token, token, "each server has its own");
    let url = format!("{}/api/v1/me", again.server.url);
    assert_eq!(again.client.get(&url).bearer_auth(token).send().unwrap().status(), 401);
    assert_eq!(again.get("/api/v1/me").send().unwrap().status(), 200);
}

#[test]
fn stopped_server_closes_its_port() {
    let fixture = Fixture::new();
    let url = format!("{}/health", fixture.server.url);
    let Fixture { server, client, dir, .. } = fixture;
    assert_eq!(client.get(&url).send().unwrap().status(), 200);
    server.stop();
    assert!(client.get(&url).send().is_err());
    drop(dir);
}

#[test]
fn no_auth_is_loopback_only() {
    let options = windlass_server::ServeOptions {
        listen: "0.0.0.0:0".parse().unwrap(),
        no_auth: true,
        ..windlass_server::ServeOptions::default()
    };
    let error = options.check().unwrap_err();
    assert!(error.to_string().contains("loopback only"), "{error}");
    assert!(error.hint().unwrap().contains("windlass auth token create"));
}
