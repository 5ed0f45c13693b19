//! Writes tar archives (POSIX ustar), with what a log bundle needs: regular files with short names.

use std::io::{self, Read, Write};

const BLOCK_SIZE: usize = 512;
/// Longer names would need an extension of the format.
const MAX_NAME_LENGTH: usize = 100;

pub(crate) struct TarArchive<W> {
    out: W,
    /// Seconds since 1970, the same for every member.
    modified: u64,
}

impl<W: Write> TarArchive<W> {
    pub(crate) fn new(out: W, modified: u64) -> Self {
        Self { out, modified }
    }

    /// Adds a member of exactly `size` bytes: a file that grows is cut, one that shrinks is padded.
    pub(crate) fn add_member(&mut self, name: &str, size: u64, content: impl Read) -> io::Result<()> {
        self.out.write_all(&render_header(name, size, self.modified)?)?;
        let copied = io::copy(&mut content.take(size), &mut self.out)?;
        io::copy(&mut io::repeat(0).take(size - copied), &mut self.out)?;
        let rest = size % BLOCK_SIZE as u64;
        if rest > 0 {
            self.out.write_all(&vec![0; BLOCK_SIZE - rest as usize])?;
        }
        Ok(())
    }

    /// Two empty blocks mark the end.
    pub(crate) fn finish(mut self) -> io::Result<W> {
        self.out.write_all(&[0; 2 * BLOCK_SIZE])?;
        Ok(self.out)
    }
}

fn render_header(name: &str, size: u64, modified: u64) -> io::Result<[u8; BLOCK_SIZE]> {
    let mut header = [0; BLOCK_SIZE];
    if name.len() > MAX_NAME_LENGTH {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("the name {name} is too long")));
    }
    let mut put = |at: usize, text: &[u8]| header[at..at + text.len()].copy_from_slice(text);
    put(0, name.as_bytes());
    put(100, b"0000644\0");
    put(108, b"0000000\0");
    put(116, b"0000000\0");
    put(124, render_size(size).as_slice());
    put(136, format!("{modified:011o}\0").as_bytes());
    // The checksum is computed with blanks in its own field.
    put(148, b"        ");
    put(156, b"0");
    put(257, b"ustar\x0000");
    let sum: u32 = header.iter().map(|byte| u32::from(*byte)).sum();
    header[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    Ok(header)
}

/// Octal up to 8 GiB; beyond that binary with the highest bit set, which all current tar programs read.
fn render_size(size: u64) -> [u8; 12] {
    let mut field = [0; 12];
    if size < 1 << 33 {
        field.copy_from_slice(format!("{size:011o}\0").as_bytes());
    } else {
        field[0] = 0x80;
        field[4..].copy_from_slice(&size.to_be_bytes());
    }
    field
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tar_members_are_padded_to_blocks() {
        let mut archive = TarArchive::new(Vec::new(), 0);
        archive.add_member("a", 3, &b"abcdef"[..]).unwrap();
        archive.add_member("b", 4, &b"x"[..]).unwrap();
        archive.add_member("c", 512, io::repeat(b'c')).unwrap();
        let bytes = archive.finish().unwrap();
        assert_eq!(bytes.len(), 8 * BLOCK_SIZE);
        assert_eq!(&bytes[512..516], b"abc\0");
        assert_eq!(&bytes[1536..1540], b"x\0\0\0");
        assert!(TarArchive::new(Vec::new(), 0).add_member(&"n".repeat(101), 0, io::empty()).is_err());
    }

    #[test]
    fn tar_writes_very_large_sizes_in_binary() {
        assert_eq!(&render_size(8), b"00000000010\0");
        let large = render_size(1 << 40);
        assert_eq!(large[0], 0x80);
        assert_eq!(u64::from_be_bytes(large[4..].try_into().unwrap()), 1 << 40);
    }
}
