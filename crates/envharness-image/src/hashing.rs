//! Hashing as bytes pass by.

use std::io::{self, Read, Write};

use envharness_spec::Digest;
use sha2::{Digest as _, Sha256};

/// A SHA-256 in the making.
#[derive(Debug, Default, Clone)]
pub struct Hasher(Sha256);

impl Hasher {
    /// Takes more bytes.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.update(bytes);
    }

    /// The digest of all bytes.
    pub fn digest(self) -> Digest {
        let hex: String = self.0.finalize().iter().map(|byte| format!("{byte:02x}")).collect();
        // 64 hex digits are always one.
        Digest::parse(&hex).unwrap_or_else(|| Digest::of(hex))
    }
}

/// Passes bytes on, hashing and counting them.
#[derive(Debug)]
pub struct Hashing<T> {
    inner: T,
    hasher: Hasher,
    count: u64,
}

impl<T> Hashing<T> {
    /// Nothing has passed yet.
    pub fn new(inner: T) -> Self {
        Self { inner, hasher: Hasher::default(), count: 0 }
    }

    /// What is below, the digest of what passed, and how many bytes those were.
    pub fn finish(self) -> (T, Digest, u64) {
        (self.inner, self.hasher.digest(), self.count)
    }
}

impl<W: Write> Write for Hashing<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = self.inner.write(bytes)?;
        self.hasher.update(&bytes[..count]);
        self.count += count as u64;
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

impl<R: Read> Read for Hashing<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.inner.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        self.count += count as u64;
        Ok(count)
    }
}
