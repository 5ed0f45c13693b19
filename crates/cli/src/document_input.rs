//! Documents that commands read: a file by its name, or standard input.

use crate::context::CliContext;
use crate::error::CliError;
use std::io::Read as _;
use std::path::Path;

/// Maximum size of a document.
const MAX_DOCUMENT_SIZE: u64 = 1 << 30;

/// Returns the name for messages, and the contents. `-` is standard input.
pub(crate) fn read_document(ctx: &CliContext, path: &Path) -> Result<(String, Vec<u8>), CliError> {
    let mut bytes = Vec::new();
    if path == Path::new("-") {
        let read = std::io::stdin().lock().take(MAX_DOCUMENT_SIZE).read_to_end(&mut bytes);
        read.map_err(|error| CliError::io(format!("cannot read standard input: {error}")))?;
        return Ok(("standard input".to_owned(), bytes));
    }
    let wrong = |error: std::io::Error| {
        let message = format!("cannot read {}: {error}", path.display());
        if error.kind() == std::io::ErrorKind::NotFound {
            CliError::user(message)
        } else {
            CliError::io(message)
        }
    };
    let file = std::fs::File::open(ctx.cwd.join(path)).map_err(wrong)?;
    file.take(MAX_DOCUMENT_SIZE).read_to_end(&mut bytes).map_err(wrong)?;
    Ok((path.display().to_string(), bytes))
}
