//! From a tree to a blob: the same tree always gives the same bytes.

use std::fs::File;
use std::io::{self, BufWriter, Read as _, Write};
use std::path::Path;

use envharness_spec::Digest;
use flate2::write::GzEncoder;
use oci_spec::image::MediaType;
use tar::{EntryType, Header};

use crate::error::{ImageError, IoContext as _};
use crate::hashing::Hashing;
use crate::tree::{EntryKind, Tree};

/// How a layer is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// gzip, which every engine reads.
    #[default]
    Gzip,
    /// Zstandard: smaller and faster, for docker 23, podman 4 and newer.
    Zstd,
}

/// Fast rather than small: what is packed once is waited for once.
const GZIP_LEVEL: u32 = 2;
const ZSTD_LEVEL: i32 = 3;

impl Compression {
    /// Its word.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Zstd => "zstd",
        }
    }

    /// The media type of a layer.
    pub fn media_type(self) -> MediaType {
        match self {
            Self::Gzip => MediaType::ImageLayerGzip,
            Self::Zstd => MediaType::ImageLayerZstd,
        }
    }
}

/// What names, times and owners in a layer are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stamp {
    /// The time of every file, in seconds since 1970.
    pub mtime: u64,
    /// The owner's number.
    pub uid: u64,
    /// The group's number.
    pub gid: u64,
}

/// A packed layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Packed {
    /// The digest of the blob.
    pub digest: Digest,
    /// The digest of the tar inside.
    pub diff_id: Digest,
    /// The blob's size.
    pub size: u64,
}

/// Writes a tree as a tar: sorted, GNU headers, no names of users, no extended attributes.
///
/// # Errors
/// As the reader or writer says; a file that is not as listed any more is an error.
pub fn write_tar(tree: &Tree, stamp: Stamp, out: impl Write) -> io::Result<()> {
    let mut builder = tar::Builder::new(out);
    for (name, entry) in tree {
        let mut header = Header::new_gnu();
        header.set_mode(entry.mode);
        header.set_mtime(stamp.mtime);
        header.set_uid(stamp.uid);
        header.set_gid(stamp.gid);
        header.set_size(0);
        match &entry.kind {
            EntryKind::Folder => {
                header.set_entry_type(EntryType::Directory);
                builder.append_data(&mut header, format!("{name}/"), io::empty())?;
            }
            EntryKind::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                builder.append_link(&mut header, name, target)?;
            }
            EntryKind::File { source, size, sha256 } => {
                header.set_entry_type(EntryType::Regular);
                header.set_size(*size);
                let mut reader = Hashing::new(File::open(source)?.take(*size));
                builder.append_data(&mut header, name, &mut reader)?;
                let (_, digest, count) = reader.finish();
                if count != *size || digest != *sha256 {
                    return Err(io::Error::other(format!("`{}` changed while it was packed", source.display())));
                }
            }
        }
    }
    builder.into_inner()?.flush()
}

/// Packs a tree into a file.
///
/// # Errors
/// [`ImageError::Io`].
pub fn pack(tree: &Tree, stamp: Stamp, compression: Compression, to: &Path) -> Result<Packed, ImageError> {
    compress(compression, to, |out| write_tar(tree, stamp, out))
}

/// Compresses what `fill` writes into a file.
///
/// # Errors
/// [`ImageError::Io`].
pub fn compress(compression: Compression, to: &Path, fill: impl FnOnce(&mut dyn Write) -> io::Result<()>) -> Result<Packed, ImageError> {
    let run = || -> io::Result<Packed> {
        let file = Hashing::new(BufWriter::with_capacity(256 << 10, File::create(to)?));
        let (file, diff_id) = match compression {
            Compression::Gzip => {
                // The header of this encoder has no time and no name in it.
                let mut tar = Hashing::new(GzEncoder::new(file, flate2::Compression::new(GZIP_LEVEL)));
                fill(&mut tar)?;
                let (encoder, diff_id, _) = tar.finish();
                (encoder.finish()?, diff_id)
            }
            Compression::Zstd => {
                let mut tar = Hashing::new(zstd::Encoder::new(file, ZSTD_LEVEL)?);
                fill(&mut tar)?;
                let (encoder, diff_id, _) = tar.finish();
                (encoder.finish()?, diff_id)
            }
        };
        let (mut file, digest, size) = file.finish();
        file.flush()?;
        Ok(Packed { digest, diff_id, size })
    };
    run().on("write", to)
}

/// Opens a tar that may be compressed.
///
/// # Errors
/// As the system says.
pub fn open_tar(path: &Path) -> io::Result<Box<dyn io::Read>> {
    let mut file = File::open(path)?;
    let mut magic = [0_u8; 4];
    let mut have = 0;
    while have < 4 {
        match file.read(&mut magic[have..])? {
            0 => break,
            count => have += count,
        }
    }
    io::Seek::rewind(&mut file)?;
    let file = io::BufReader::with_capacity(128 << 10, file);
    Ok(match magic {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(file)),
        [0x28, 0xb5, 0x2f, 0xfd] => Box::new(zstd::Decoder::with_buffer(file)?),
        _ => Box::new(file),
    })
}
