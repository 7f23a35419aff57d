//! From a staged prefix to an image in the store.

use std::collections::{BTreeMap, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

use envharness_spec::Digest;
use oci_spec::image::{Config, History, ImageConfiguration, ImageManifest, ImageManifestBuilder, MediaType, RootFs};

use crate::error::ImageError;
use crate::images::{BUILD, Image, Images, LOCK, Watch, canonical, descriptor};
use crate::import::{Base, bare};
use crate::layer::{Compression, Packed, Stamp, pack};
use crate::plan::{Item, plan};
use crate::reference::Reference;
use crate::tree::{self, Entry, EntryKind, Modes, Tree};

/// A package of a prefix and its files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackageFiles {
    /// Its name.
    pub name: String,
    /// Its files, relative to the prefix.
    pub files: Vec<String>,
}

/// A prefix that lies ready to be packed.
#[derive(Debug)]
pub struct Content {
    /// Where it lies now.
    pub folder: PathBuf,
    /// Its path in the image.
    pub target: String,
    /// Who its files belong to.
    pub packages: Vec<PackageFiles>,
    /// The folder of Python modules in it, `lib/python3.11`.
    pub library: String,
}

/// Compiles modules of the content.
pub trait Bytecode: Sync {
    /// What decides the byte-code beside the source.
    fn identity(&self) -> String;

    /// Compiles modules, which are relative to the prefix; gives the compiled file of each name in a `__pycache__`.
    ///
    /// # Errors
    /// [`ImageError`].
    fn compile(&self, modules: &[String]) -> Result<BTreeMap<String, PathBuf>, ImageError>;
}

/// What an image is to be.
#[derive(Debug, Clone, Default)]
pub struct BuildRequest {
    /// The digest of its lock.
    pub lock: String,
    /// What it starts from.
    pub base: Option<Base>,
    /// How its layers are compressed.
    pub compression: Compression,
    /// The time of every file and of the image itself, in seconds since 1970.
    pub epoch: u64,
    /// Variables; they replace the base's of the same name.
    pub env: Vec<(String, String)>,
    /// The program that is always started.
    pub entrypoint: Vec<String>,
    /// What is started when nothing is said.
    pub command: Vec<String>,
    /// The folder that it is started in, which belongs to the user.
    pub workdir: String,
    /// `UID`, `UID:GID` or a name; empty for root.
    pub user: String,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// A layer before it is packed.
struct Draft {
    title: String,
    tree: Tree,
    modules: Vec<String>,
}

/// Packed layers are another's when this changes.
const FORMAT: &str = concat!("envharness layer 1 ", env!("CARGO_PKG_VERSION"));

impl BuildRequest {
    /// What decides the whole image, as a digest; `more` is what the request does not say.
    pub fn identity(&self, target: &str, more: &str) -> String {
        let base: Vec<String> = self.base.iter().flat_map(|base| &base.layers).map(|(_, layer)| layer.digest.to_string()).collect();
        let base_configuration = self.base.as_ref().and_then(|base| canonical(&base.configuration).ok());
        let all = (FORMAT, &self.lock, base, base_configuration, self.compression.as_str(), self.epoch, &self.env);
        let rest = (&self.entrypoint, &self.command, &self.workdir, &self.user, &self.labels, target, more);
        Digest::of(format!("{all:?} {rest:?}")).to_string()
    }
}

impl Images {
    /// Takes a base: the name of an image of the store, or a path.
    ///
    /// # Errors
    /// [`ImageError::Base`] when it is neither; see [`ImageError`] for what can be wrong with one.
    pub fn base(&self, given: &str, epoch: u64) -> Result<Base, ImageError> {
        let _lock = self.in_use()?;
        if Path::new(given).exists() {
            return self.base_from(Path::new(given), Stamp { mtime: epoch, uid: 0, gid: 0 });
        }
        let image = match Reference::parse(given).and_then(|name| self.find(&name)) {
            Err(ImageError::Unknown(_) | ImageError::Name { .. }) => {
                let reason = format!("the base `{given}` is neither a path nor an image of the store");
                let hint = "fetch it with `envharness image pull NAME`, or give a path: an OCI layout, an archive of `docker save`, a root file system";
                return Err(ImageError::Base { reason, hint: hint.into() });
            }
            other => other?,
        };
        let configuration = self.configuration(&image.manifest)?;
        let diff_ids = configuration.rootfs().diff_ids().iter();
        let mut layers = Vec::new();
        for (layer, diff_id) in image.manifest.layers().iter().zip(diff_ids) {
            let digest = crate::images::digest_of(layer, given)?;
            if !self.has(&digest, layer.size()) {
                return Err(self.damaged(&digest, "it is not there in full"));
            }
            let diff_id = Digest::parse(diff_id).ok_or_else(|| ImageError::broken(given, "a layer has no SHA-256"))?;
            layers.push((crate::import::plain_type(layer.media_type()), Packed { digest, diff_id, size: layer.size() }));
        }
        let base = Base { place: given.to_owned(), configuration, layers };
        self.check_platform(&base)?;
        Ok(base)
    }

    /// Gives an image that is there already another name; `None` when there is none of that identity.
    ///
    /// # Errors
    /// [`ImageError`].
    pub fn rename_build(&self, identity: &str, request: &BuildRequest, name: &Reference) -> Result<Option<Image>, ImageError> {
        let _lock = self.in_use()?;
        let Some(image) = self.find_build(identity) else { return Ok(None) };
        self.publish(&image.manifest, identity, request, name).map(Some)
    }

    /// Builds an image and gives it a name. `identity` says what decided it.
    ///
    /// # Errors
    /// [`ImageError`]; the store has no new image then.
    pub fn build(
        &self,
        content: &Content,
        bytecode: Option<&dyn Bytecode>,
        request: &BuildRequest,
        identity: &str,
        name: &Reference,
        watch: &dyn Watch,
    ) -> Result<Image, ImageError> {
        let _lock = self.in_use()?;
        let drafts = drafts(content, request)?;
        let layers = self.pack_all(drafts, bytecode, request, content, watch)?;
        let configuration = configuration(request, &layers)?;
        let (digest, size) = self.keep(canonical(&configuration)?.as_bytes())?;
        let base = request.base.iter().flat_map(|base| &base.layers).cloned();
        let own = layers.into_iter().map(|(_, packed)| (request.compression.media_type(), packed));
        let all = base.chain(own).map(|(kind, packed)| descriptor(kind, &packed.digest, packed.size));
        let manifest = ImageManifestBuilder::default()
            .schema_version(2_u32)
            .media_type(MediaType::ImageManifest)
            .config(descriptor(MediaType::ImageConfig, &digest, size)?)
            .layers(all.collect::<Result<Vec<_>, _>>()?)
            .build()
            .map_err(|error| ImageError::broken(name, error))?;
        self.publish(&manifest, identity, request, name)
    }

    fn publish(&self, manifest: &ImageManifest, identity: &str, request: &BuildRequest, name: &Reference) -> Result<Image, ImageError> {
        let (digest, size) = self.keep(canonical(manifest)?.as_bytes())?;
        let one = descriptor(MediaType::ImageManifest, &digest, size)?;
        self.name(name, one, &[(LOCK, &request.lock), (BUILD, identity)])?;
        Ok(Image { name: name.clone(), digest, lock: request.lock.clone(), manifest: manifest.clone() })
    }

    /// Packs a tree, or finds what it was packed to before. Its key may say more than the tree.
    pub(crate) fn layer(&self, tree: &Tree, stamp: Stamp, compression: Compression, more: &str) -> Result<Packed, ImageError> {
        let key = layer_key(tree, stamp, compression, more);
        match self.known_layer(&key) {
            Some(known) => Ok(known),
            None => self.pack_layer(&key, tree, stamp, compression),
        }
    }

    fn pack_layer(&self, key: &Digest, tree: &Tree, stamp: Stamp, compression: Compression) -> Result<Packed, ImageError> {
        let folder = self.temporary()?;
        let draft = folder.path().join("layer");
        let packed = pack(tree, stamp, compression, &draft)?;
        self.adopt(&draft, &packed.digest)?;
        self.note_layer(key, &packed)?;
        Ok(packed)
    }

    /// Compiles and packs what was not packed before.
    fn pack_all(
        &self,
        mut drafts: Vec<Draft>,
        bytecode: Option<&dyn Bytecode>,
        request: &BuildRequest,
        content: &Content,
        watch: &dyn Watch,
    ) -> Result<Vec<(String, Packed)>, ImageError> {
        let stamp = Stamp { mtime: request.epoch, uid: 0, gid: 0 };
        let identity = bytecode.map(Bytecode::identity).unwrap_or_default();
        let more = |draft: &Draft| if draft.modules.is_empty() { String::new() } else { format!("{identity} {}", content.target) };
        let keys: Vec<Digest> = drafts.iter().map(|draft| layer_key(&draft.tree, stamp, request.compression, &more(draft))).collect();
        let known: Vec<Option<Packed>> = keys.iter().map(|key| self.known_layer(key)).collect();
        if let Some(bytecode) = bytecode {
            let missing = drafts.iter().zip(&known).filter(|(_, known)| known.is_none());
            let modules: Vec<String> = missing.flat_map(|(draft, _)| draft.modules.clone()).collect();
            if !modules.is_empty() {
                watch.step(&format!("Compiling {} modules", modules.len()));
                let compiled = bytecode.compile(&modules)?;
                add_compiled(&mut drafts, &compiled, content)?;
            }
        }
        // The largest first, so that workers end together.
        let bytes =
            |draft: &Draft| draft.tree.values().map(|entry| if let EntryKind::File { size, .. } = entry.kind { size } else { 0 }).sum();
        let mut order: Vec<(u64, usize)> = drafts.iter().enumerate().map(|(at, draft)| (bytes(draft), at)).collect();
        order.sort_by(|a, b| b.cmp(a));
        let next = AtomicUsize::new(0);
        let results: Mutex<Vec<(usize, Result<Packed, ImageError>)>> = Mutex::default();
        let workers = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        std::thread::scope(|scope| {
            for _ in 0..workers {
                scope.spawn(|| {
                    loop {
                        let Some(&(_, at)) = order.get(next.fetch_add(1, Ordering::Relaxed)) else { return };
                        let draft = &drafts[at];
                        let packed = match &known[at] {
                            _ if watch.interrupted() => Err(ImageError::Interrupted),
                            Some(packed) => Ok(packed.clone()),
                            None => {
                                watch.step(&format!("Packing {} ({} layers)", draft.title, drafts.len()));
                                self.pack_layer(&keys[at], &draft.tree, stamp, request.compression)
                            }
                        };
                        results.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push((at, packed));
                    }
                });
            }
        });
        let mut results = results.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        results.sort_by_key(|(at, _)| *at);
        drafts.into_iter().zip(results).map(|(draft, (_, packed))| Ok((draft.title, packed?))).collect()
    }
}

fn layer_key(tree: &Tree, stamp: Stamp, compression: Compression, more: &str) -> Digest {
    Digest::of(format!("{FORMAT} {} {stamp:?} {more}\n{}", compression.as_str(), tree::listing(tree)))
}

/// Deals the files of a prefix out to layers.
fn drafts(content: &Content, request: &BuildRequest) -> Result<Vec<Draft>, ImageError> {
    let mut all = tree::read(&content.folder, &content.target, Modes::Normal)?;
    let library = format!("{}/", tree::join(&content.target, &content.library));
    // Whatever lies there was compiled for another path and time.
    all.retain(|name, _| !(name.starts_with(&library) && (name.contains("/__pycache__/") || name.ends_with("/__pycache__"))));
    let mut owners: HashMap<String, &str> = HashMap::new();
    for package in &content.packages {
        for file in &package.files {
            owners.insert(tree::join(&content.target, file), &package.name);
        }
    }
    let mut sizes: BTreeMap<&str, u64> = BTreeMap::new();
    for (name, entry) in &all {
        if let (Some(owner), EntryKind::File { size, .. }) = (owners.get(name), &entry.kind) {
            *sizes.entry(owner).or_default() += size;
        }
    }
    for owner in owners.values() {
        sizes.entry(owner).or_default();
    }
    let items: Vec<Item> = sizes.iter().map(|(name, bytes)| Item { name: (*name).to_owned(), bytes: *bytes }).collect();
    let planned = plan(&items);
    let layer_of: HashMap<&str, usize> =
        planned.iter().enumerate().flat_map(|(at, layer)| layer.packages.iter().map(move |name| (name.as_str(), at))).collect();
    let mut trees: Vec<Tree> = vec![Tree::new(); planned.len() + 1];
    for (name, entry) in all {
        let at = owners.get(&name).and_then(|owner| layer_of.get(owner)).copied();
        match (&entry.kind, at) {
            // Folders come with what is in them.
            (EntryKind::Folder, _) => continue,
            (_, at) => trees[at.unwrap_or(planned.len())].insert(name, entry),
        };
    }
    let titles = planned.into_iter().map(|layer| layer.title).chain(["environment".to_owned()]);
    let mut out = Vec::new();
    for (title, mut tree) in titles.zip(trees) {
        if title == "environment" {
            tree.entry(content.target.trim_matches('/').to_owned()).or_insert(Entry { mode: 0o755, kind: EntryKind::Folder });
            let workdir = request.workdir.trim_matches('/');
            if !workdir.is_empty() {
                // Any user may work there, whoever the container is started as.
                tree.insert(workdir.to_owned(), Entry { mode: 0o1777, kind: EntryKind::Folder });
            }
        }
        tree::with_parents(&mut tree);
        let module = |name: &&String| name.starts_with(&library) && name.ends_with(".py");
        let relative = |name: &String| name[content.target.trim_matches('/').len() + 1..].to_owned();
        let modules = tree.iter().filter(|(name, entry)| module(name) && matches!(entry.kind, EntryKind::File { .. }));
        let modules = modules.map(|(name, _)| relative(name)).collect();
        out.push(Draft { title, tree, modules });
    }
    out.retain(|draft| !draft.tree.is_empty());
    Ok(out)
}

fn add_compiled(drafts: &mut [Draft], compiled: &BTreeMap<String, PathBuf>, content: &Content) -> Result<(), ImageError> {
    for draft in drafts {
        for module in &draft.modules {
            let Some((folder, file)) = module.rsplit_once('/') else { continue };
            let stem = format!("{folder}/__pycache__/{}.", file.trim_end_matches(".py"));
            let found = compiled.range(stem.clone()..).take_while(|(name, _)| name.starts_with(&stem));
            // `a.b.py` has a name that begins as that of `a.py`.
            for (name, path) in found.filter(|(name, _)| name[stem.len()..].matches('.').count() == 1) {
                let entry = tree::file(path, 0o644)?;
                draft.tree.insert(tree::join(&content.target, name), entry);
            }
        }
        tree::with_parents(&mut draft.tree);
    }
    Ok(())
}

fn configuration(request: &BuildRequest, layers: &[(String, Packed)]) -> Result<ImageConfiguration, ImageError> {
    let base = request.base.as_ref();
    let created = jiff::Timestamp::from_second(i64::try_from(request.epoch).unwrap_or(0)).unwrap_or_default().to_string();
    let mut out = base.map_or_else(bare, |base| base.configuration.clone());
    out.set_created(Some(created.clone()));
    let mut config: Config = out.config().clone().unwrap_or_default();
    let mut env = config.env().clone().unwrap_or_default();
    for (name, value) in &request.env {
        env.retain(|line| line.split_once('=').map(|(known, _)| known) != Some(name));
        env.push(format!("{name}={value}"));
    }
    config.set_env(Some(env));
    // The base's own program is not what an environment's image is started for.
    config.set_entrypoint(Some(request.entrypoint.clone()).filter(|words| !words.is_empty()));
    config.set_cmd(Some(request.command.clone()).filter(|words| !words.is_empty()));
    config.set_working_dir(Some(request.workdir.clone()).filter(|text| !text.is_empty()));
    if !request.user.is_empty() {
        config.set_user(Some(request.user.clone()));
    }
    let mut labels = config.labels().clone().unwrap_or_default();
    labels.extend(request.labels.clone());
    config.set_labels(Some(labels));
    out.set_config(Some(config));
    let mut rootfs = RootFs::default();
    let base_layers = base.map(|base| base.layers.as_slice()).unwrap_or_default();
    let all = base_layers.iter().map(|(_, packed)| packed).chain(layers.iter().map(|(_, packed)| packed));
    rootfs.set_diff_ids(all.map(|packed| packed.diff_id.to_string()).collect());
    out.set_rootfs(rootfs);
    let step = |text: String| {
        let mut step = History::default();
        step.set_created(Some(created.clone()));
        step.set_created_by(Some(text));
        step
    };
    let mut history = out.history().clone().unwrap_or_default();
    let told = history.iter().filter(|step| step.empty_layer() != Some(true)).count();
    history.extend((told..base_layers.len()).map(|_| step("envharness image build: base".into())));
    history.extend(layers.iter().map(|(title, _)| step(format!("envharness image build: {title}"))));
    out.set_history(Some(history));
    Ok(out)
}
