//! Files for other processes: written under a temporary name, synced, renamed; the checksum is computed while
//! writing.

use adler2::Adler32;
use serde::Serialize;
use std::fs::{self, File};
use std::io::{self, BufWriter, Read, Write};
use std::path::{Path, PathBuf};

/// Size of the pieces in which files are read.
const CHUNK_BYTES: usize = 256 * 1024;

/// Counts bytes and computes their checksum.
#[derive(Clone, Copy, Debug)]
pub struct FileChecksum {
    adler: Adler32,
    pub size: u64,
}

impl Default for FileChecksum {
    fn default() -> Self {
        Self { adler: Adler32::new(), size: 0 }
    }
}

impl FileChecksum {
    pub fn add(&mut self, bytes: &[u8]) {
        self.adler.write_slice(bytes);
        self.size += bytes.len() as u64;
    }

    /// Eight hexadecimal digits.
    pub fn adler32(&self) -> String {
        format!("{:08x}", self.adler.checksum())
    }
}

/// Reads a file piece by piece.
pub fn read_chunks(path: &Path, mut each: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let mut file = File::open(path)?;
    let mut piece = vec![0; CHUNK_BYTES];
    loop {
        match file.read(&mut piece) {
            Ok(0) => return Ok(()),
            Ok(length) => each(&piece[..length])?,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

pub fn compute_checksum(path: &Path) -> io::Result<FileChecksum> {
    let mut sum = FileChecksum::default();
    read_chunks(path, |piece| {
        sum.add(piece);
        Ok(())
    })?;
    Ok(sum)
}

/// A file that is not published yet. If it is dropped before [`DraftFile::publish`], it is removed. If the process
/// is killed before, the file keeps a name that no process reads, and the next attempt overwrites it.
#[derive(Debug)]
pub struct DraftFile {
    file: Option<BufWriter<File>>,
    path: PathBuf,
    target: PathBuf,
    checksum: FileChecksum,
}

impl DraftFile {
    /// Creates the directory if needed.
    pub fn new(place: &Path) -> io::Result<Self> {
        let path = draft_path(place)?;
        if let Some(directory) = place.parent() {
            fs::create_dir_all(directory)?;
        }
        let file = File::create(&path)?;
        Ok(Self {
            file: Some(BufWriter::with_capacity(CHUNK_BYTES, file)),
            path,
            target: place.to_owned(),
            checksum: FileChecksum::default(),
        })
    }

    /// The temporary path, for programs that write the file themselves.
    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn checksum(&self) -> &FileChecksum {
        &self.checksum
    }

    pub fn copy_from(&mut self, path: &Path) -> io::Result<()> {
        read_chunks(path, |piece| self.write_all(piece))
    }

    /// Syncs the content, renames the file, and syncs the directory.
    pub fn publish(mut self) -> io::Result<FileChecksum> {
        let Some(mut writer) = self.file.take() else { return Ok(self.checksum) };
        writer.flush()?;
        writer.get_ref().sync_all()?;
        fs::rename(&self.path, &self.target)?;
        sync_directory(&self.target)?;
        Ok(self.checksum)
    }
}

impl Write for DraftFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(file) = &mut self.file else { return Err(io::Error::other("it is published already")) };
        file.write_all(bytes)?;
        self.checksum.add(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.as_mut().map_or(Ok(()), Write::flush)
    }
}

impl Drop for DraftFile {
    fn drop(&mut self) {
        if self.file.take().is_some() {
            // A remaining draft does no harm.
            fs::remove_file(&self.path).ok();
        }
    }
}

/// `.name.part` beside it: hidden, and the same for each attempt.
pub fn draft_path(place: &Path) -> io::Result<PathBuf> {
    let name = place.file_name().ok_or_else(|| io::Error::other("it has no file name"))?;
    Ok(place.with_file_name(format!(".{}.part", name.to_string_lossy())))
}

fn sync_directory(place: &Path) -> io::Result<()> {
    match place.parent() {
        Some(directory) => File::open(directory)?.sync_all(),
        None => Ok(()),
    }
}

/// Writes a value as JSON, completely or not at all.
pub fn write_json(place: &Path, value: &impl Serialize) -> io::Result<()> {
    let mut draft = DraftFile::new(place)?;
    serde_json::to_writer_pretty(&mut draft, value)?;
    draft.write_all(b"\n")?;
    draft.publish().map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn published_file_appears_whole_with_checksum() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("store/a/x.txt");
        let mut draft = DraftFile::new(&place).unwrap();
        draft.write_all(b"Wikipedia").unwrap();
        assert!(!place.exists());
        let sum = draft.publish().unwrap();
        assert_eq!((sum.size, sum.adler32().as_str()), (9, "11e60398"), "the standard example");
        assert_eq!(compute_checksum(&place).unwrap().adler32(), "11e60398");
        assert_eq!(fs::read_dir(place.parent().unwrap()).unwrap().count(), 1, "no draft is left");
    }

    #[test]
    fn abandoned_draft_keeps_old_file() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("x");
        write_json(&place, &1).unwrap();
        DraftFile::new(&place).unwrap().write_all(b"half").unwrap();
        assert_eq!(fs::read_to_string(&place).unwrap(), "1\n");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn checksum_is_independent_of_chunk_size() {
        let dir = tempfile::tempdir().unwrap();
        let bytes: Vec<u8> = (0..=250u8).cycle().take(CHUNK_BYTES * 2 + 17).collect();
        fs::write(dir.path().join("x"), &bytes).unwrap();
        let sum = compute_checksum(&dir.path().join("x")).unwrap();
        assert_eq!(sum.adler32(), format!("{:08x}", adler2::adler32_slice(&bytes)));
        assert_eq!(sum.size, bytes.len() as u64);
    }
}
