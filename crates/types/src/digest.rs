//! A digest of 128 bits that detects accidental differences between contents: specs, files, commands.
//!
//! Fast, the same on every machine, and computed incrementally. It is not cryptographic: collisions can be
//! constructed.

/// Incremental hasher; the result does not depend on how the contents are split into pieces.
#[derive(Clone, Debug)]
pub struct ContentHasher {
    lanes: [u64; 2],
    length: u64,
    /// Its first `length % BLOCK` bytes are an incomplete block.
    partial: [u8; BLOCK_BYTES],
}

const BLOCK_BYTES: usize = 16;

/// Returns the digest of complete contents: 32 hexadecimal digits.
pub fn digest_bytes(bytes: &[u8]) -> String {
    let mut digest = ContentHasher::default();
    digest.add(bytes);
    digest.finish()
}

impl Default for ContentHasher {
    fn default() -> Self {
        Self { lanes: [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03], length: 0, partial: [0; BLOCK_BYTES] }
    }
}

impl ContentHasher {
    pub fn add(&mut self, bytes: &[u8]) {
        let waiting = (self.length % BLOCK_BYTES as u64) as usize;
        self.length += bytes.len() as u64;
        let mut rest = bytes;
        if waiting > 0 {
            let (first, others) = rest.split_at(rest.len().min(BLOCK_BYTES - waiting));
            self.partial[waiting..waiting + first.len()].copy_from_slice(first);
            if waiting + first.len() < BLOCK_BYTES {
                return;
            }
            self.lanes = mix(self.lanes, self.partial);
            rest = others;
        }
        let (blocks, rest) = rest.as_chunks();
        for block in blocks {
            self.lanes = mix(self.lanes, *block);
        }
        self.partial[..rest.len()].copy_from_slice(rest);
    }

    /// Returns the digest as 32 hexadecimal digits.
    pub fn finish(self) -> String {
        let [a, b] = self.value();
        format!("{a:016x}{b:016x}")
    }

    fn value(mut self) -> [u64; 2] {
        let waiting = (self.length % BLOCK_BYTES as u64) as usize;
        if waiting > 0 {
            self.partial[waiting..].fill(0);
            self.lanes = mix(self.lanes, self.partial);
        }
        // The length goes last, so that trailing zeros count; one more round mixes it into both lanes.
        self.lanes = rounds(self.lanes, self.length, !self.length);
        rounds(self.lanes, self.lanes[1], self.lanes[0])
    }
}

/// Returns a 64-bit checksum that detects corrupted bytes.
pub(crate) fn checksum_bytes(bytes: &[u8]) -> u32 {
    let mut digest = ContentHasher::default();
    digest.add(bytes);
    digest.value()[0] as u32
}

fn mix(lanes: [u64; 2], block: [u8; BLOCK_BYTES]) -> [u64; 2] {
    let word = u128::from_le_bytes(block);
    rounds(lanes, word as u64, (word >> 64) as u64)
}

fn rounds([a, b]: [u64; 2], x: u64, y: u64) -> [u64; 2] {
    let next_a = fold(x ^ a, y ^ 0xa076_1d64_78bd_642f);
    let next_b = fold(y ^ b, x ^ 0xe703_7ed1_a0b4_28db);
    [next_a ^ b.rotate_left(23), next_b ^ a.rotate_left(41)]
}

/// Folds both halves of the product together: every bit of the factors affects every bit of the result.
fn fold(x: u64, y: u64) -> u64 {
    let product = u128::from(x) * u128::from(y);
    product as u64 ^ (product >> 64) as u64
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn digest_is_stable() {
        // Digests are stored in databases: if the function changes, Windlass no longer recognizes specs and
        // reruns jobs.
        assert_eq!(digest_bytes(b"name: sim\n"), "34a335ae9def5d497213617dc8499137");
        assert_eq!(digest_bytes(b""), "481990166e2389873c8abf37ef6506cf");
    }

    #[test]
    fn every_bit_and_the_length_change_the_digest() {
        let text = vec![b'a'; 100];
        let mut seen = HashSet::from([digest_bytes(&text)]);
        for bit in 0..800 {
            let mut changed = text.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(digest_bytes(&changed)), "bit {bit}");
        }
        for length in 0..100 {
            assert!(seen.insert(digest_bytes(&text[..length])), "length {length}");
            assert!(seen.insert(digest_bytes(&vec![0; length + 1])), "{length} zeros");
        }
    }

    #[test]
    fn digest_is_independent_of_chunks() {
        let text: Vec<u8> = (0..=255).cycle().take(1000).collect();
        for size in [1, 2, 7, 15, 16, 17, 31, 64, 999] {
            let mut pieces = ContentHasher::default();
            text.chunks(size).for_each(|piece| pieces.add(piece));
            assert_eq!(pieces.finish(), digest_bytes(&text), "pieces of {size}");
        }
    }
}
