//! The images of a store.
//!
//! ```text
//! ENVHARNESS_HOME/images/      an OCI image layout, which skopeo and podman read as it is
//!   oci-layout, index.json     the images by name, with the digest of their lock
//!   blobs/sha256/<hex>         layers, configurations, manifests
//!   layers/<key>               which blob a tree became, so that it is packed once
//! ```
//!
//! Blobs are published by rename. Whoever builds, writes or sends holds a shared lock; what removes blobs an exclusive one.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use envharness_spec::Digest;
use envharness_store::{FileLock, Home, Temporary, write_atomic};
use oci_spec::image::{Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::error::{ImageError, IoContext as _};
use crate::hashing::Hashing;
use crate::layer::Packed;
use crate::reference::Reference;

/// The annotation of a name in an index.
pub const REF_NAME: &str = "org.opencontainers.image.ref.name";
/// The annotation with the digest of the lock that an image was made from.
pub const LOCK: &str = "org.envharness.lock";
/// The annotation with all that decided an image's content.
pub const BUILD: &str = "org.envharness.build";
/// The content of `oci-layout`.
pub const OCI_LAYOUT: &str = r#"{"imageLayoutVersion":"1.0.0"}"#;
const EMPTY_INDEX: &str = r#"{"manifests":[],"mediaType":"application/vnd.oci.image.index.v1+json","schemaVersion":2}"#;

/// The folder of images.
#[derive(Debug, Clone)]
pub struct Images {
    pub(crate) home: Home,
    root: PathBuf,
}

/// Watches long work.
pub trait Watch: Sync {
    /// What is done now, for a person.
    fn step(&self, what: &str);

    /// Something a person should know.
    fn warning(&self, message: &str, hint: &str);

    /// Asked often; `true` ends the work.
    fn interrupted(&self) -> bool {
        false
    }
}

/// One image of the store.
#[derive(Debug, Clone)]
pub struct Image {
    /// Its name.
    pub name: Reference,
    /// The digest of its manifest.
    pub digest: Digest,
    /// The digest of its lock; empty for one that was pulled.
    pub lock: String,
    /// The manifest.
    pub manifest: ImageManifest,
}

/// What a prune did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Pruned {
    /// Images that were forgotten.
    pub images: Vec<String>,
    /// Blobs that went.
    pub blobs: usize,
    /// Their size.
    pub bytes: u64,
}

/// JSON with sorted keys: maps of annotations have no order of their own.
pub(crate) fn canonical(value: &impl Serialize) -> Result<String, ImageError> {
    let mut value = serde_json::to_value(value).map_err(|error| ImageError::broken("a document", error))?;
    value.sort_all_objects();
    Ok(value.to_string())
}

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8], place: &str) -> Result<T, ImageError> {
    serde_json::from_slice(bytes).map_err(|error| ImageError::broken(place, error))
}

/// The digest of a descriptor; other algorithms than SHA-256 are not used here.
pub(crate) fn digest_of(descriptor: &Descriptor, place: &str) -> Result<Digest, ImageError> {
    let hex = descriptor.as_digest_sha256().and_then(Digest::parse);
    hex.ok_or_else(|| ImageError::broken(place, format!("`{}` is not a SHA-256 digest", descriptor.digest())))
}

impl Images {
    /// Opens the folder, making it where it is missing.
    ///
    /// # Errors
    /// [`ImageError::Io`].
    pub fn open(home: &Home) -> Result<Self, ImageError> {
        let root = home.root().join("images");
        for folder in ["blobs/sha256", "layers"] {
            let path = root.join(folder);
            fs::create_dir_all(&path).on("create", &path)?;
        }
        let images = Self { home: home.clone(), root };
        for (name, text) in [("index.json", EMPTY_INDEX), ("oci-layout", OCI_LAYOUT)] {
            let path = images.root.join(name);
            if !path.is_file() {
                write_atomic(&path, text.as_bytes())?;
            }
        }
        Ok(images)
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Where a blob is.
    pub fn blob(&self, digest: &Digest) -> PathBuf {
        self.root.join("blobs/sha256").join(digest.hex())
    }

    /// Held while blobs are used.
    pub(crate) fn in_use(&self) -> Result<FileLock, ImageError> {
        FileLock::acquire(&self.home.lock("images"), false, |_| Ok(()))
    }

    pub(crate) fn temporary(&self) -> Result<Temporary, ImageError> {
        Ok(self.home.temporary("image")?)
    }

    /// Whether a blob is there in its full size.
    pub(crate) fn has(&self, digest: &Digest, size: u64) -> bool {
        fs::metadata(self.blob(digest)).is_ok_and(|metadata| metadata.len() == size)
    }

    /// Moves a finished file to its place.
    pub(crate) fn adopt(&self, file: &Path, digest: &Digest) -> Result<(), ImageError> {
        let to = self.blob(digest);
        fs::rename(file, &to).on("keep", &to)
    }

    /// Keeps a document as a blob.
    pub(crate) fn keep(&self, bytes: &[u8]) -> Result<(Digest, u64), ImageError> {
        let digest = Digest::of(bytes);
        let size = bytes.len() as u64;
        if !self.has(&digest, size) {
            write_atomic(&self.blob(&digest), bytes)?;
        }
        Ok((digest, size))
    }

    /// Reads a blob that is a document, holding it to its digest.
    pub(crate) fn document<T: DeserializeOwned>(&self, digest: &Digest) -> Result<T, ImageError> {
        let path = self.blob(digest);
        let bytes = fs::read(&path).on("read", &path)?;
        if Digest::of(&bytes) != *digest {
            return Err(self.damaged(digest, "its bytes have another hash"));
        }
        parse(&bytes, &path.display().to_string())
    }

    /// Takes a damaged blob away, so that the next build or pull makes it anew.
    pub(crate) fn drop_damaged(&self, digest: &Digest, reason: &str) -> ImageError {
        let path = self.blob(digest);
        match fs::remove_file(&path) {
            Ok(()) => tracing::warn!(%digest, reason, "a damaged blob was removed"),
            Err(error) => tracing::warn!(%digest, reason, %error, "a damaged blob could not be removed"),
        }
        self.damaged(digest, reason)
    }

    pub(crate) fn damaged(&self, digest: &Digest, reason: &str) -> ImageError {
        ImageError::Damaged { digest: digest.to_string(), place: self.root.display().to_string(), reason: reason.to_owned() }
    }

    /// Copies a blob out, holding it to its digest.
    pub(crate) fn copy_out(&self, digest: &Digest, size: u64, out: &mut impl io::Write) -> Result<(), ImageError> {
        let path = self.blob(digest);
        let mut reader = Hashing::new(fs::File::open(&path).on("read", &path)?);
        io::copy(&mut reader, out).on("copy", &path)?;
        let (_, found, count) = reader.finish();
        if found != *digest || count != size {
            let reason = format!("it has {count} bytes with the hash {found}, and should have {size}");
            return Err(self.drop_damaged(digest, &reason));
        }
        Ok(())
    }

    /// What a tree became, if its blob is still there.
    pub(crate) fn known_layer(&self, key: &Digest) -> Option<Packed> {
        let text = fs::read_to_string(self.root.join("layers").join(key.hex())).ok()?;
        let mut words = text.split_whitespace();
        let packed =
            Packed { digest: Digest::parse(words.next()?)?, diff_id: Digest::parse(words.next()?)?, size: words.next()?.parse().ok()? };
        self.has(&packed.digest, packed.size).then_some(packed)
    }

    pub(crate) fn note_layer(&self, key: &Digest, packed: &Packed) -> Result<(), ImageError> {
        let text = format!("{} {} {}\n", packed.digest, packed.diff_id, packed.size);
        Ok(write_atomic(&self.root.join("layers").join(key.hex()), text.as_bytes())?)
    }

    pub(crate) fn index(&self) -> Result<ImageIndex, ImageError> {
        let path = self.root.join("index.json");
        parse(&fs::read(&path).on("read", &path)?, &path.display().to_string())
    }

    /// Gives an image a name, taking it from the one that had it.
    pub(crate) fn name(&self, name: &Reference, mut descriptor: Descriptor, notes: &[(&str, &str)]) -> Result<(), ImageError> {
        // Blobs are on the disk before a name leads to them.
        self.home.sync()?;
        let mut annotations: std::collections::HashMap<String, String> = std::collections::HashMap::new();
        annotations.insert(REF_NAME.into(), name.to_string());
        annotations.extend(notes.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
        descriptor.set_annotations(Some(annotations));
        self.change_index(|all| {
            all.retain(|other| ref_name(other) != Some(&name.to_string()));
            all.push(descriptor.clone());
            all.sort_by_key(|one| ref_name(one).map(str::to_owned));
        })
    }

    fn change_index(&self, change: impl FnOnce(&mut Vec<Descriptor>)) -> Result<(), ImageError> {
        let _lock: FileLock = FileLock::acquire::<ImageError>(&self.home.lock("images-index"), true, |_| Ok(()))?;
        let mut index = self.index()?;
        let mut manifests = index.manifests().clone();
        change(&mut manifests);
        index.set_manifests(manifests);
        Ok(write_atomic(&self.root.join("index.json"), canonical(&index)?.as_bytes())?)
    }

    /// Every image by name.
    ///
    /// # Errors
    /// [`ImageError::Broken`] when the index cannot be read.
    pub fn list(&self) -> Result<Vec<Image>, ImageError> {
        let read = |descriptor: &Descriptor| self.image_of(descriptor);
        self.index()?.manifests().iter().map(read).collect()
    }

    fn image_of(&self, descriptor: &Descriptor) -> Result<Image, ImageError> {
        let place = self.root.display().to_string();
        let digest = digest_of(descriptor, &place)?;
        let note = |key: &str| descriptor.annotations().as_ref().and_then(|all| all.get(key)).cloned().unwrap_or_default();
        let name = Reference::parse(&note(REF_NAME))?;
        Ok(Image { name, manifest: self.document(&digest)?, digest, lock: note(LOCK) })
    }

    /// The image of a name.
    ///
    /// # Errors
    /// [`ImageError::Unknown`].
    pub fn find(&self, name: &Reference) -> Result<Image, ImageError> {
        let index = self.index()?;
        let found = index.manifests().iter().find(|one| ref_name(one) == Some(&name.to_string()));
        self.image_of(found.ok_or_else(|| ImageError::Unknown(name.to_string()))?)
    }

    /// An image whose content was decided by the same things, under any name.
    pub(crate) fn find_build(&self, build: &str) -> Option<Image> {
        let index = self.index().ok()?;
        let same = |one: &&Descriptor| one.annotations().as_ref().and_then(|all| all.get(BUILD)).is_some_and(|note| note == build);
        let image = self.image_of(index.manifests().iter().find(same)?).ok()?;
        let whole = |layer: &Descriptor| digest_of(layer, "").is_ok_and(|digest| self.has(&digest, layer.size()));
        image.manifest.layers().iter().all(whole).then_some(image)
    }

    /// The configuration of an image.
    ///
    /// # Errors
    /// [`ImageError::Damaged`], [`ImageError::Broken`].
    pub fn configuration(&self, manifest: &ImageManifest) -> Result<ImageConfiguration, ImageError> {
        self.document(&digest_of(manifest.config(), &self.root.display().to_string())?)
    }

    /// Forgets images and removes the blobs that no image has.
    ///
    /// # Errors
    /// [`ImageError::Unknown`] for a name that is none; [`ImageError::Io`].
    pub fn prune(&self, names: &[Reference], all: bool, dry_run: bool) -> Result<Pruned, ImageError> {
        let _lock: FileLock = FileLock::acquire::<ImageError>(&self.home.lock("images"), true, |_| Ok(()))?;
        let index = self.index()?;
        let is = |one: &Descriptor, name: &Reference| ref_name(one) == Some(&name.to_string());
        if let Some(unknown) = names.iter().find(|name| !index.manifests().iter().any(|one| is(one, name))) {
            return Err(ImageError::Unknown(unknown.to_string()));
        }
        let goes = |one: &Descriptor| all || names.iter().any(|name| is(one, name));
        let (gone, stay): (Vec<&Descriptor>, Vec<&Descriptor>) = index.manifests().iter().partition(|one| goes(one));
        let mut report = Pruned { images: gone.iter().filter_map(|one| ref_name(one)).map(str::to_owned).collect(), ..Pruned::default() };
        let used = self.reachable(&stay)?;
        if !dry_run && !gone.is_empty() {
            self.change_index(|manifests| manifests.retain(|one| !goes(one)))?;
        }
        let folder = self.root.join("blobs/sha256");
        for entry in fs::read_dir(&folder).on("list", &folder)? {
            let entry = entry.on("list", &folder)?;
            if used.contains(&*entry.file_name().to_string_lossy()) {
                continue;
            }
            report.blobs += 1;
            report.bytes += entry.metadata().map_or(0, |metadata| metadata.len());
            if !dry_run {
                fs::remove_file(entry.path()).on("remove", &entry.path())?;
            }
        }
        if !dry_run {
            self.forget_layers(&used)?;
        }
        Ok(report)
    }

    /// The blobs of images, by hexadecimal digest. One whose manifest is damaged keeps nothing but its manifest.
    fn reachable(&self, manifests: &[&Descriptor]) -> Result<BTreeSet<String>, ImageError> {
        let place = self.root.display().to_string();
        let mut used = BTreeSet::new();
        for descriptor in manifests {
            let digest = digest_of(descriptor, &place)?;
            used.insert(digest.hex().to_owned());
            let Ok(manifest) = self.document::<ImageManifest>(&digest) else { continue };
            for part in std::iter::once(manifest.config()).chain(manifest.layers()) {
                used.insert(digest_of(part, &place)?.hex().to_owned());
            }
        }
        Ok(used)
    }

    fn forget_layers(&self, used: &BTreeSet<String>) -> Result<(), ImageError> {
        let folder = self.root.join("layers");
        for entry in fs::read_dir(&folder).on("list", &folder)?.flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            let digest = text.split_whitespace().next().and_then(Digest::parse);
            if !digest.is_some_and(|digest| used.contains(digest.hex())) {
                fs::remove_file(entry.path()).on("remove", &entry.path())?;
            }
        }
        Ok(())
    }

    /// Sizes by digest, so that layers which images share are counted once.
    pub fn sizes(images: &[Image]) -> BTreeMap<String, u64> {
        let layers = images.iter().flat_map(|image| image.manifest.layers());
        layers.map(|layer| (layer.digest().to_string(), layer.size())).collect()
    }
}

fn ref_name(descriptor: &Descriptor) -> Option<&str> {
    descriptor.annotations().as_ref()?.get(REF_NAME).map(String::as_str)
}

/// A descriptor of a blob.
pub(crate) fn descriptor(media_type: MediaType, digest: &Digest, size: u64) -> Result<Descriptor, ImageError> {
    let parsed: Result<oci_spec::image::Digest, _> = digest.to_string().parse();
    Ok(Descriptor::new(media_type, size, parsed.map_err(|error| ImageError::broken(digest, error))?))
}
