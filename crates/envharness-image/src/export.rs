//! Images out of the store: a layout in a folder, or an archive.

use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType};
use serde_json::json;
use tar::{EntryType, Header};

use crate::error::{ImageError, IoContext as _};
use crate::images::{Image, Images, LOCK, OCI_LAYOUT, REF_NAME, canonical, descriptor, digest_of};

/// What an image is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// An OCI image layout: a folder, or an archive when the path ends in `.tar`.
    #[default]
    Oci,
    /// An archive for `docker load`. It is an OCI archive too.
    Docker,
}

impl Images {
    /// Writes an image to a path; what is there is replaced, once all is written.
    ///
    /// # Errors
    /// [`ImageError::Damaged`] when a blob is not what its digest says; [`ImageError::Io`]. Nothing is left behind.
    pub fn export(&self, image: &Image, format: Format, path: &Path) -> Result<(), ImageError> {
        let _lock = self.in_use()?;
        let archive = format == Format::Docker || path.extension().is_some_and(|ending| ending == "tar");
        refuse_other(path, archive)?;
        let draft = draft_of(path);
        let written = if archive { self.write_archive(image, format, &draft) } else { self.write_layout(image, &draft) };
        let placed = written.and_then(|()| {
            if !archive && path.is_dir() {
                fs::remove_dir_all(path).on("replace", path)?;
            }
            fs::rename(&draft, path).on("write", path)
        });
        if placed.is_err() {
            let _ = if archive { fs::remove_file(&draft) } else { fs::remove_dir_all(&draft) };
        }
        placed
    }

    fn blobs(&self, image: &Image) -> Result<Vec<Descriptor>, ImageError> {
        let size = fs::metadata(self.blob(&image.digest)).on("read", &self.blob(&image.digest))?.len();
        let manifest = descriptor(media_type(&image.manifest), &image.digest, size)?;
        let mut all = vec![manifest, image.manifest.config().clone()];
        all.extend(image.manifest.layers().iter().cloned());
        all.sort_by_key(|one| one.digest().to_string());
        all.dedup_by_key(|one| one.digest().to_string());
        Ok(all)
    }

    fn index_of(&self, image: &Image) -> Result<String, ImageError> {
        let size = fs::metadata(self.blob(&image.digest)).on("read", &self.blob(&image.digest))?.len();
        let mut one = descriptor(media_type(&image.manifest), &image.digest, size)?;
        let mut notes = std::collections::HashMap::from([(REF_NAME.to_owned(), image.name.to_string())]);
        if !image.lock.is_empty() {
            notes.insert(LOCK.to_owned(), image.lock.clone());
        }
        one.set_annotations(Some(notes));
        let mut index = ImageIndex::default();
        index.set_media_type(Some(MediaType::ImageIndex));
        index.set_manifests(vec![one]);
        canonical(&index)
    }

    fn write_layout(&self, image: &Image, folder: &Path) -> Result<(), ImageError> {
        let blobs = folder.join("blobs/sha256");
        fs::create_dir_all(&blobs).on("create", &blobs)?;
        for one in self.blobs(image)? {
            let digest = digest_of(&one, &folder.display().to_string())?;
            let path = blobs.join(digest.hex());
            let mut file = fs::File::create(&path).on("write", &path)?;
            self.copy_out(&digest, one.size(), &mut file)?;
        }
        for (name, text) in [("oci-layout", OCI_LAYOUT.to_owned()), ("index.json", self.index_of(image)?)] {
            let path = folder.join(name);
            fs::write(&path, text).on("write", &path)?;
        }
        Ok(())
    }

    /// One archive that both kinds of reader take: `manifest.json` is what `docker load` reads.
    fn write_archive(&self, image: &Image, format: Format, path: &Path) -> Result<(), ImageError> {
        let file = fs::File::create(path).on("write", path)?;
        let mut tar = tar::Builder::new(io::BufWriter::with_capacity(256 << 10, file));
        let mut texts = vec![("index.json", self.index_of(image)?), ("oci-layout", OCI_LAYOUT.to_owned())];
        if format == Format::Docker {
            let place = |one: &Descriptor| format!("blobs/{}", one.digest().to_string().replace(':', "/"));
            let layers: Vec<String> = image.manifest.layers().iter().map(place).collect();
            let document = json!([{ "Config": place(image.manifest.config()), "RepoTags": [image.name.to_string()], "Layers": layers }]);
            texts.push(("manifest.json", canonical(&document)?));
        }
        for folder in ["blobs/", "blobs/sha256/"] {
            tar.append_data(&mut header(EntryType::Directory, 0o755, 0), folder, io::empty()).on("write", path)?;
        }
        for one in self.blobs(image)? {
            let digest = digest_of(&one, &path.display().to_string())?;
            let blob = self.blob(&digest);
            // The reader is held to the digest as the tar takes it.
            let mut reader = crate::hashing::Hashing::new(fs::File::open(&blob).on("read", &blob)?);
            let name = format!("blobs/sha256/{}", digest.hex());
            if fs::metadata(&blob).on("read", &blob)?.len() != one.size() {
                return Err(self.drop_damaged(&digest, "it has another size"));
            }
            tar.append_data(&mut header(EntryType::Regular, 0o644, one.size()), name, &mut reader).on("write", path)?;
            if reader.finish().1 != digest {
                return Err(self.drop_damaged(&digest, "its bytes have another hash"));
            }
        }
        for (name, text) in texts {
            let mut head = header(EntryType::Regular, 0o644, text.len() as u64);
            tar.append_data(&mut head, name, text.as_bytes()).on("write", path)?;
        }
        tar.into_inner().and_then(|mut file| file.flush()).on("write", path)
    }
}

fn header(kind: EntryType, mode: u32, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(mode);
    header.set_size(size);
    header.set_mtime(0);
    header
}

pub(crate) fn media_type(manifest: &ImageManifest) -> MediaType {
    manifest.media_type().clone().unwrap_or(MediaType::ImageManifest)
}

/// A sibling of the path, so that the result comes by a rename.
fn draft_of(path: &Path) -> PathBuf {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    path.with_file_name(format!(".{name}.{}", envharness_store::random_suffix(8)))
}

/// Something of another kind than is written, or a folder with other things in it, is not ours to replace.
fn refuse_other(path: &Path, archive: bool) -> Result<(), ImageError> {
    let other = |text: &str| Err(io::Error::new(io::ErrorKind::AlreadyExists, text)).on("replace", path);
    if archive && path.is_dir() {
        return other("a folder is there");
    }
    if !archive && path.is_file() {
        return other("a file is there; a path that ends in `.tar` makes an archive");
    }
    let empty = || fs::read_dir(path).is_ok_and(|mut entries| entries.next().is_none());
    if !archive && path.is_dir() && !path.join("oci-layout").is_file() && !empty() {
        return other("the folder has other things in it");
    }
    Ok(())
}
