//! Images into the store: from a layout, from an archive of `docker save` or of ours, or from a root file system.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read as _};
use std::path::{Component, Path, PathBuf};

use envharness_spec::Digest;
use oci_spec::image::{Arch, Descriptor, ImageConfiguration, ImageIndex, ImageManifest, MediaType, Os};
use serde::Deserialize;

use crate::error::{ImageError, IoContext as _};
use crate::hashing::Hashing;
use crate::images::{Images, parse};
use crate::layer::{Compression, Packed, Stamp, compress, open_tar};
use crate::tree::{self, Modes};

/// A base: what an image starts from.
#[derive(Debug, Clone, Default)]
pub struct Base {
    /// Where it came from, for a person.
    pub place: String,
    /// Its configuration; the default one for a root file system.
    pub configuration: ImageConfiguration,
    /// Its layers, lowest first.
    pub layers: Vec<(MediaType, Packed)>,
}

/// The table of an archive of `docker save`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Saved {
    config: String,
    layers: Vec<String>,
}

/// This machine's word for its processors, as images have it.
pub(crate) fn architecture() -> Arch {
    match std::env::consts::ARCH {
        "x86_64" => Arch::Amd64,
        "aarch64" => Arch::ARM64,
        other => Arch::from(other),
    }
}

impl Images {
    /// Takes a base from a path: a layout's folder, an archive, or a root file system as folder or tar. Its layers are
    /// kept in the store.
    ///
    /// # Errors
    /// [`ImageError::Broken`], [`ImageError::Damaged`], [`ImageError::Base`] for another processor.
    pub(crate) fn base_from(&self, path: &Path, stamp: Stamp) -> Result<Base, ImageError> {
        let metadata = fs::metadata(path).on("read", path)?;
        let folder = self.temporary()?;
        let mut base = if metadata.is_dir() {
            if path.join("index.json").is_file() || path.join("oci-layout").is_file() {
                self.base_of_layout(path)?
            } else if ["bin", "usr", "lib", "lib64", "etc"].iter().any(|name| path.join(name).exists()) {
                self.base_of_folder(path, stamp)?
            } else {
                return Err(ImageError::broken(path.display(), "it is neither an OCI layout nor a root file system"));
            }
        } else if unpack_archive(path, folder.path())? {
            if folder.path().join("index.json").is_file() {
                self.base_of_layout(folder.path())?
            } else {
                self.base_of_saved(folder.path())?
            }
        } else {
            self.base_of_tar(path)?
        };
        base.place = path.display().to_string();
        self.check_platform(&base)?;
        Ok(base)
    }

    pub(crate) fn check_platform(&self, base: &Base) -> Result<(), ImageError> {
        let (os, machine) = (base.configuration.os(), base.configuration.architecture());
        if *os == Os::Linux && *machine == architecture() {
            return Ok(());
        }
        let reason = format!("the base `{}` is for {os}/{machine}, and this machine makes linux/{}", base.place, architecture());
        Err(ImageError::Base { reason, hint: "give a base for this machine's processors".into() })
    }

    fn base_of_layout(&self, folder: &Path) -> Result<Base, ImageError> {
        let place = folder.display().to_string();
        let path = folder.join("index.json");
        let index: ImageIndex = parse(&fs::read(&path).on("read", &path)?, &path.display().to_string())?;
        let fits = |one: &&Descriptor| one.platform().as_ref().is_none_or(|p| *p.os() == Os::Linux && *p.architecture() == architecture());
        let fitting: Vec<&Descriptor> = index.manifests().iter().filter(fits).collect();
        let [one] = fitting[..] else {
            let reason = format!("it has {} images for this machine, and one is wanted", fitting.len());
            return Err(ImageError::broken(place, reason));
        };
        let read = |descriptor: &Descriptor| -> Result<Vec<u8>, ImageError> {
            let (path, digest) = blob_in(folder, descriptor, &place)?;
            let bytes = fs::read(&path).on("read", &path)?;
            if Digest::of(&bytes) != digest {
                let reason = format!("its {} bytes have another hash", bytes.len());
                return Err(ImageError::Damaged { digest: digest.to_string(), place: place.clone(), reason });
            }
            Ok(bytes)
        };
        if *one.media_type() == MediaType::ImageIndex {
            return Err(ImageError::broken(place, "it has an index inside its index"));
        }
        let manifest: ImageManifest = parse(&read(one)?, &place)?;
        let configuration: ImageConfiguration = parse(&read(manifest.config())?, &place)?;
        let diff_ids = configuration.rootfs().diff_ids().clone();
        if diff_ids.len() != manifest.layers().len() {
            return Err(ImageError::broken(place, "its configuration and its manifest count other layers"));
        }
        let mut layers = Vec::new();
        for (layer, diff_id) in manifest.layers().iter().zip(&diff_ids) {
            let (path, digest) = blob_in(folder, layer, &place)?;
            let diff_id = Digest::parse(diff_id).ok_or_else(|| ImageError::broken(&place, "a layer has no SHA-256"))?;
            self.take_blob(&path, &digest, layer.size(), &place)?;
            layers.push((plain_type(layer.media_type()), Packed { digest, diff_id, size: layer.size() }));
        }
        Ok(Base { place, configuration, layers })
    }

    /// Copies a blob into the store, holding it to its digest.
    fn take_blob(&self, path: &Path, digest: &Digest, size: u64, place: &str) -> Result<(), ImageError> {
        if self.has(digest, size) {
            return Ok(());
        }
        let folder = self.temporary()?;
        let draft = folder.path().join("blob");
        let mut reader = Hashing::new(fs::File::open(path).on("read", path)?);
        let mut file = fs::File::create(&draft).on("write", &draft)?;
        io::copy(&mut reader, &mut file).on("copy", path)?;
        let (_, found, count) = reader.finish();
        if found != *digest || count != size {
            let reason = format!("it has {count} bytes of {size}, and their hash is {found}");
            return Err(ImageError::Damaged { digest: digest.to_string(), place: place.to_owned(), reason });
        }
        self.adopt(&draft, digest)
    }

    fn base_of_saved(&self, folder: &Path) -> Result<Base, ImageError> {
        let place = folder.display().to_string();
        let path = folder.join("manifest.json");
        let table: Vec<Saved> = parse(&fs::read(&path).on("read", &path)?, "manifest.json")?;
        let [saved] = &table[..] else {
            return Err(ImageError::broken("manifest.json", format!("it has {} images, and one is wanted", table.len())));
        };
        let config = inside(folder, &saved.config)?;
        let configuration: ImageConfiguration = parse(&fs::read(&config).on("read", &config)?, &saved.config)?;
        let diff_ids = configuration.rootfs().diff_ids().clone();
        if diff_ids.len() != saved.layers.len() {
            return Err(ImageError::broken(place, "its configuration and its table count other layers"));
        }
        let mut layers = Vec::new();
        for (name, diff_id) in saved.layers.iter().zip(&diff_ids) {
            let packed = self.take_tar(&inside(folder, name)?)?;
            if packed.diff_id.to_string() != *diff_id {
                let reason = format!("its content has the hash {}", packed.diff_id);
                return Err(ImageError::Damaged { digest: diff_id.clone(), place: name.clone(), reason });
            }
            layers.push((Compression::Gzip.media_type(), packed));
        }
        Ok(Base { place, configuration, layers })
    }

    fn base_of_tar(&self, path: &Path) -> Result<Base, ImageError> {
        let packed = self.take_tar(path)?;
        Ok(Base { layers: vec![(Compression::Gzip.media_type(), packed)], configuration: bare(), place: String::new() })
    }

    /// A tar as a gzip layer of the store.
    fn take_tar(&self, path: &Path) -> Result<Packed, ImageError> {
        let mut hashed = Hashing::new(fs::File::open(path).on("read", path)?);
        io::copy(&mut hashed, &mut io::sink()).on("read", path)?;
        let key = Digest::of(format!("tar {}", hashed.finish().1));
        if let Some(known) = self.known_layer(&key) {
            return Ok(known);
        }
        let folder = self.temporary()?;
        let draft = folder.path().join("layer");
        let packed = compress(Compression::Gzip, &draft, |out| io::copy(&mut open_tar(path)?, out).map(drop))?;
        self.adopt(&draft, &packed.digest)?;
        self.note_layer(&key, &packed)?;
        Ok(packed)
    }

    fn base_of_folder(&self, path: &Path, stamp: Stamp) -> Result<Base, ImageError> {
        let listed = tree::read(path, "", Modes::Kept)?;
        let packed = self.layer(&listed, stamp, Compression::Gzip, "")?;
        Ok(Base { layers: vec![(Compression::Gzip.media_type(), packed)], configuration: bare(), place: String::new() })
    }
}

/// A configuration that says nothing but the platform.
pub(crate) fn bare() -> ImageConfiguration {
    let mut configuration = ImageConfiguration::default();
    configuration.set_architecture(architecture());
    configuration.set_os(Os::Linux);
    configuration
}

/// docker's words for layers, as OCI has them.
pub(crate) fn plain_type(given: &MediaType) -> MediaType {
    match given {
        MediaType::Other(word) if word.ends_with("diff.tar.gzip") => MediaType::ImageLayerGzip,
        MediaType::Other(word) if word.ends_with("diff.tar.zstd") => MediaType::ImageLayerZstd,
        MediaType::Other(word) if word.ends_with("diff.tar") => MediaType::ImageLayer,
        other => other.clone(),
    }
}

fn blob_in(folder: &Path, descriptor: &Descriptor, place: &str) -> Result<(PathBuf, Digest), ImageError> {
    let digest = crate::images::digest_of(descriptor, place)?;
    let path = folder.join("blobs/sha256").join(digest.hex());
    if !path.is_file() {
        let reason = "it is missing".to_owned();
        return Err(ImageError::Damaged { digest: digest.to_string(), place: place.to_owned(), reason });
    }
    Ok((path, digest))
}

/// A file of an unpacked archive; what leads out of the folder is refused.
fn inside(folder: &Path, name: &str) -> Result<PathBuf, ImageError> {
    let plain = Path::new(name).components().all(|part| matches!(part, Component::Normal(_)));
    let path = folder.join(name);
    if plain && path.is_file() { Ok(path) } else { Err(ImageError::broken(name, "the archive has no such file")) }
}

/// Unpacks an archive of an image; `false` for a tar that is a root file system. docker's older archives have links
/// between layers that are the same, which become copies of the name alone.
fn unpack_archive(path: &Path, to: &Path) -> Result<bool, ImageError> {
    let unreadable = |error: io::Error| ImageError::broken(path.display(), format!("it is no tar: {error}"));
    let mut names = 0;
    let mut image = false;
    for entry in tar::Archive::new(open_tar(path).map_err(unreadable)?).entries().map_err(unreadable)? {
        let entry = entry.map_err(unreadable)?;
        names += 1;
        image |= matches!(&*entry.path_bytes(), b"manifest.json" | b"oci-layout" | b"./manifest.json" | b"./oci-layout");
    }
    if names == 0 {
        return Err(ImageError::broken(path.display(), "there is nothing in it"));
    }
    if !image {
        return Ok(false);
    }
    let mut links: BTreeMap<PathBuf, PathBuf> = BTreeMap::new();
    for entry in tar::Archive::new(open_tar(path).map_err(unreadable)?).entries().map_err(unreadable)? {
        let mut entry = entry.map_err(unreadable)?;
        let name: PathBuf = entry.path().map_err(unreadable)?.components().filter(|part| *part != Component::CurDir).collect();
        if !name.components().all(|part| matches!(part, Component::Normal(_))) {
            return Err(ImageError::broken(path.display(), format!("`{}` leads out of it", name.display())));
        }
        let target = to.join(&name);
        let parent = target.parent().unwrap_or(to).to_owned();
        let kind = entry.header().entry_type();
        if kind.is_file() {
            fs::create_dir_all(&parent).on("create", &parent)?;
            let mut file = fs::File::create(&target).on("write", &target)?;
            let size = entry.size();
            let copied = io::copy(&mut entry.by_ref().take(size), &mut file).map_err(unreadable)?;
            if copied != size {
                return Err(ImageError::broken(path.display(), format!("`{}` ends early", name.display())));
            }
        } else if kind.is_symlink() || kind.is_hard_link() {
            let linked = entry.link_name().map_err(unreadable)?.unwrap_or_default().into_owned();
            let from = if kind.is_symlink() { name.parent().unwrap_or(Path::new("")).join(linked) } else { linked };
            links.insert(target, from);
        }
    }
    for (target, from) in links {
        let mut source = to.to_owned();
        for part in from.components() {
            match part {
                Component::Normal(part) => source.push(part),
                Component::ParentDir if source != to => drop(source.pop()),
                _ => return Err(ImageError::broken(path.display(), format!("`{}` leads out of it", from.display()))),
            }
        }
        let parent = target.parent().unwrap_or(to).to_owned();
        fs::create_dir_all(&parent).on("create", &parent)?;
        fs::copy(&source, &target).on("copy", &source)?;
    }
    Ok(true)
}
