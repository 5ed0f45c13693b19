//! Catalogs that are down for a while, and catalogs that perform a request and then fail to confirm it.

use crate::kit::{Fixture, reading};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use windlass_requests::{CatalogError, DatasetCatalog};
use windlass_types::catalog::CatalogFile;
use windlass_types::requests::RequestStatus;

/// Fails this many times for the same request.
#[derive(Debug)]
struct FailingCatalog {
    real: Arc<dyn DatasetCatalog>,
    failures: u32,
    /// It performs the request and fails afterwards.
    is_silent: bool,
    asked: Mutex<HashMap<String, u32>>,
}

impl FailingCatalog {
    fn ask<T>(
        &self,
        what: &str,
        answer: impl FnOnce() -> Result<T, CatalogError>,
    ) -> Result<T, CatalogError> {
        let time = {
            let mut asked = self.asked.lock().unwrap();
            let time = asked.entry(what.to_owned()).or_default();
            *time += 1;
            *time
        };
        if time > self.failures {
            return answer();
        }
        if self.is_silent {
            answer()?;
        }
        Err(CatalogError::transient(format!("{what}: try again")))
    }
}

impl DatasetCatalog for FailingCatalog {
    fn has_dataset(&self, dataset: &str) -> Result<bool, CatalogError> {
        self.ask("has", || self.real.has_dataset(dataset))
    }
    fn list_files(&self, dataset: &str) -> Result<Vec<CatalogFile>, CatalogError> {
        self.ask("files", || self.real.list_files(dataset))
    }
    fn open_block(&self, dataset: &str, block: &str) -> Result<(), CatalogError> {
        self.ask(&format!("open {block}"), || self.real.open_block(dataset, block))
    }
    fn register_files(&self, block: &str, site: &str, files: &[CatalogFile]) -> Result<(), CatalogError> {
        self.ask(&format!("register {}", files[0].lfn), || self.real.register_files(block, site, files))
    }
    fn protect_block(&self, block: &str, site: &str) -> Result<String, CatalogError> {
        self.ask(&format!("protect {block} {site}"), || self.real.protect_block(block, site))
    }
    fn close_block(&self, block: &str) -> Result<(), CatalogError> {
        self.ask(&format!("close {block}"), || self.real.close_block(block))
    }
    fn archive_block(&self, block: &str) -> Result<String, CatalogError> {
        self.ask(&format!("archive {block}"), || self.real.archive_block(block))
    }
    fn remove_rule(&self, rule: &str) -> Result<(), CatalogError> {
        self.ask(&format!("remove {rule}"), || self.real.remove_rule(rule))
    }
    fn invalidate_block(&self, block: &str) -> Result<(), CatalogError> {
        self.ask(&format!("invalidate {block}"), || self.real.invalidate_block(block))
    }
}

fn with_failures(failures: u32, is_silent: bool) -> (Fixture, Arc<FailingCatalog>) {
    let mut fixture = Fixture::new();
    let failing =
        FailingCatalog { real: Arc::clone(&fixture.catalog), failures, is_silent, asked: Mutex::default() };
    let failing = Arc::new(failing);
    fixture.catalog = Arc::clone(&failing) as _;
    fixture.input(6, 10);
    fixture.start();
    (fixture, failing)
}

/// N-3.
#[test]
fn failing_catalog_calls_are_retried_until_success() {
    for is_silent in [false, true] {
        let (fixture, failing) = with_failures(3, is_silent);
        fixture.submit(&reading("r1"));
        fixture.wait("r1", RequestStatus::Completed);
        fixture.assert_whole("r1", "/Prim/Era-r1-v1/RECO", 1..=60);
        let asked = failing.asked.lock().unwrap();
        // There may be several requests to protect one block at one site, and all but the first succeed.
        assert!(asked.values().all(|&times| times >= 4), "{asked:?}");
        assert!(asked.keys().any(|what| what.starts_with("archive")), "{asked:?}");
    }
}

#[test]
fn permanent_catalog_error_holds_request_with_reason() {
    let mut fixture = Fixture::new();
    fixture.start();
    let mut request = reading("r1");
    request.input_dataset = Some("/No/Such-v1/RAW".into());
    fixture.submit(&request);
    let row = fixture.wait("r1", RequestStatus::Held);
    assert!(row.reason.unwrap().contains("/No/Such-v1/RAW"));
}
