//! `image build | list | prune | push | pull`.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Instant;

use envharness_image::{
    BuildRequest, Bytecode, Compression, Content, Fault, Format, Image, ImageError, Images, PackageFiles, Reference, RegistryOptions, Watch,
};
use envharness_rig::{Event, Reporter as _, StageRequest, Staged, counted};
use envharness_spec::{Backend, Compile, Lock, Spec, human_bytes};
use serde_json::{Value, json};

use super::{Ended, Session, lock_request};
use crate::args::{BuildArgs, ImageCommand, ImageCompression, ImageFormat};
use crate::exit;
use crate::printer::Printer;
use crate::reporter::TerminalReporter;

/// Files in an image have this time, 1980-01-01: archives that know no earlier one can hold them too.
const EPOCH: u64 = 315_532_800;
/// The PATH of an image whose base says none.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
/// How often a request is sent again where nobody says otherwise.
const RETRIES: u32 = 3;

pub(super) fn run(session: &Session, command: &ImageCommand) -> Ended {
    let images = Images::open(&session.rig.home)?;
    match command {
        ImageCommand::Build(args) => build(session, &images, args),
        ImageCommand::List => list(session, &images),
        ImageCommand::Prune { names, all, dry_run } => prune(session, &images, names, *all, *dry_run),
        ImageCommand::Push { name, to } => {
            let image = images.find(&Reference::parse(name)?)?;
            let to = to.as_ref().map_or_else(|| Ok(image.name.clone()), |to| Reference::parse(to))?;
            let digest = images.push(&image, &to, &options(session), &Told(&session.reporter))?;
            session.reporter.finish();
            if session.printer.is_json() {
                session.printer.json(&json!({ "schema": 1, "name": to.to_string(), "digest": digest.to_string() }));
            } else {
                session.printer.done(&format!("Pushed {to}"));
                session.printer.data(&digest.to_string());
            }
            Ok(exit::OK)
        }
        ImageCommand::Pull { name } => {
            let started = Instant::now();
            let image = images.pull(&Reference::parse(name)?, &options(session), &Told(&session.reporter))?;
            session.reporter.finish();
            said(session, &image, "Pulled", started);
            Ok(exit::OK)
        }
    }
}

/// The exit code of an image's error.
pub(super) fn code_of(error: &ImageError) -> i32 {
    match error.fault() {
        Fault::Asked => exit::FAILED,
        Fault::Outside => exit::OUTSIDE,
        Fault::Interrupted => exit::INTERRUPTED,
    }
}

/// Passes on what images tell as events of the rig.
struct Told<'a>(&'a TerminalReporter);

impl Watch for Told<'_> {
    fn step(&self, what: &str) {
        self.0.event(&Event::Imaging { what: what.to_owned() });
    }

    fn warning(&self, message: &str, hint: &str) {
        self.0.event(&Event::Warning { message: message.to_owned(), hint: Some(hint.to_owned()) });
    }

    fn interrupted(&self) -> bool {
        self.0.interrupted()
    }
}

/// Compiles in the staged prefix.
struct Compiler<'a> {
    staged: &'a Staged,
    identity: String,
}

impl Bytecode for Compiler<'_> {
    fn identity(&self) -> String {
        self.identity.clone()
    }

    fn compile(&self, modules: &[String]) -> Result<BTreeMap<String, PathBuf>, ImageError> {
        self.staged.compile(modules).map_err(|error| ImageError::Bytecode { reason: format!("{error} {}", error.details().join(" ")) })
    }
}

fn options(session: &Session) -> RegistryOptions {
    let settings = &session.rig.settings;
    RegistryOptions {
        default_registry: settings.text("image_registry").to_owned(),
        offline: settings.flag("offline"),
        retries: settings.variable("UV_HTTP_RETRIES").and_then(|text| text.parse().ok()).unwrap_or(RETRIES),
        variables: settings.variables().clone(),
    }
}

fn build(session: &Session, images: &Images, args: &BuildArgs) -> Ended {
    let started = Instant::now();
    let spec = session.spec(args.spec.as_deref())?;
    let name = Reference::parse(args.tag.as_deref().unwrap_or(&spec.name))?;
    let target = args.target.trim_end_matches('/');
    if !target.starts_with('/') || target.len() < 2 || target.split('/').any(|part| part == "..") {
        anyhow::bail!("`--target {}` is not an absolute path", args.target);
    }
    let lock = session.rig.lock(&spec, &lock_request(&args.lock), &session.reporter)?;
    refuse_backend(&lock, &spec)?;
    let watch = Told(&session.reporter);
    let epoch = epoch(session)?;
    let mut request = request_of(args, &spec, &lock, epoch)?;
    request.base = args.base.as_deref().map(|base| images.base(base, epoch)).transpose()?;
    let python = check_base(images, &request, &lock, &watch)?;
    // What the build is decided by says whether it was done before.
    let compiled = spec.compile != Compile::Never;
    let inputs = json!([spec.env_vars, spec.link_scripts, python, compiled]).to_string();
    request.labels.insert("org.envharness.spec".into(), spec.name.clone());
    request.labels.insert("org.envharness.lock".into(), lock.digest().to_string());
    let identity = request.identity(target, &inputs);
    let image = match images.rename_build(&identity, &request, &name)? {
        Some(image) => image,
        None => {
            let stage = StageRequest { target, python: python.as_deref() };
            let staged = session.rig.stage(&spec, &lock, stage, &session.reporter)?;
            let content = Content {
                folder: staged.path.clone(),
                target: target.to_owned(),
                packages: staged.packages.iter().map(|one| PackageFiles { name: one.name.clone(), files: one.files.clone() }).collect(),
                library: staged.library.clone(),
            };
            let compiler = if compiled { Some(Compiler { identity: staged.bytecode_identity(), staged: &staged }) } else { None };
            variables(&mut request, &staged, &spec);
            images.build(&content, compiler.as_ref().map(|one| one as &dyn Bytecode), &request, &identity, &name, &watch)?
        }
    };
    if let Some(path) = &args.output {
        let format = if args.format == ImageFormat::Docker { Format::Docker } else { Format::Oci };
        watch.step(&format!("Writing {}", path.display()));
        images.export(&image, format, path)?;
    }
    session.reporter.finish();
    said(session, &image, "Built", started);
    Ok(exit::OK)
}

fn refuse_backend(lock: &Lock, spec: &Spec) -> Result<(), ImageError> {
    if matches!(lock.backend, Backend::Conda | Backend::Venv) {
        return Ok(());
    }
    let reason = format!("`{}` has the backend {}, of which no image is built", spec.name, lock.backend);
    Err(ImageError::Base { reason, hint: "use `backend: conda` or `backend: venv`".into() })
}

/// `SOURCE_DATE_EPOCH`, as reproducible builds have it.
fn epoch(session: &Session) -> anyhow::Result<u64> {
    let Some(text) = session.rig.settings.variable("SOURCE_DATE_EPOCH").filter(|text| !text.is_empty()) else { return Ok(EPOCH) };
    // A tar's header has room for eleven octal digits.
    let most = 0o77_777_777_777;
    text.parse().ok().filter(|time| *time <= most).ok_or_else(|| anyhow::anyhow!("SOURCE_DATE_EPOCH=`{text}` is not a number of seconds"))
}

fn request_of(args: &BuildArgs, spec: &Spec, lock: &Lock, epoch: u64) -> anyhow::Result<BuildRequest> {
    let mut labels = BTreeMap::new();
    if let Some(text) = &spec.description {
        labels.insert("org.opencontainers.image.description".to_owned(), text.clone());
    }
    for label in &args.label {
        let (name, value) = label.split_once('=').ok_or_else(|| anyhow::anyhow!("`--label {label}` is not NAME=VALUE"))?;
        labels.insert(name.to_owned(), value.to_owned());
    }
    Ok(BuildRequest {
        lock: lock.digest().to_string(),
        compression: if args.compression == ImageCompression::Zstd { Compression::Zstd } else { Compression::Gzip },
        epoch,
        entrypoint: args.entrypoint.clone(),
        command: if args.command.is_empty() && args.entrypoint.is_empty() { vec!["python".into()] } else { args.command.clone() },
        workdir: args.workdir.clone(),
        user: args.user.clone(),
        labels,
        ..BuildRequest::default()
    })
}

/// Whether the environment can run on its base; gives the base's Python where the packages stand on one.
fn check_base(images: &Images, request: &BuildRequest, lock: &Lock, watch: &dyn Watch) -> Result<Option<String>, ImageError> {
    let minor = lock.python.minor();
    let facts = request.base.as_ref().map(|base| images.facts(base)).transpose()?;
    if lock.backend != Backend::Conda {
        let hint = format!("give `--base` with a Python {minor} in it, or use `backend: conda`, which brings its own");
        let Some(facts) = facts else {
            let reason = "a venv stands on a Python of its machine, and no base was given that has one".to_owned();
            return Err(ImageError::Base { reason, hint });
        };
        return facts.python(&minor).map(Some).ok_or_else(|| {
            let found = facts.minors();
            let there = if found.is_empty() { "none".to_owned() } else { found.join(", ") };
            ImageError::Base { reason: format!("the lock wants Python {minor}, and its base has {there}"), hint }
        });
    }
    if facts.is_none_or(|facts| !facts.has_glibc()) {
        let message = "the image has no GNU C library, which conda packages need from the system";
        watch.warning(message, "give `--base` with a small system in it; nothing of this machine's own is copied");
    }
    Ok(None)
}

/// PATH, what activation sets, and the spec's own variables. Secrets never come into an image.
fn variables(request: &mut BuildRequest, staged: &Staged, spec: &Spec) {
    let of_base = request.base.as_ref().and_then(|base| base.configuration.config().as_ref()?.env().clone()).unwrap_or_default();
    let path = of_base.iter().find_map(|line| line.strip_prefix("PATH=")).unwrap_or(PATH);
    let folders: Vec<&str> = staged.folders.iter().map(String::as_str).chain([path]).collect();
    request.env.push(("PATH".into(), folders.join(":")));
    request.env.extend(staged.variables.iter().cloned());
    let own = spec.env_vars.iter().filter(|(name, _)| !spec.secrets.contains_key(*name));
    request.env.extend(own.map(|(name, value)| (name.clone(), value.clone())));
}

fn said(session: &Session, image: &Image, verb: &str, started: Instant) {
    let layers = image.manifest.layers();
    let bytes: u64 = layers.iter().map(|layer| layer.size()).sum();
    if session.printer.is_json() {
        session.printer.json(&as_json(image));
    } else {
        let (count, size, millis) = (counted(layers.len(), "layer"), human_bytes(bytes), started.elapsed().as_millis());
        session.printer.done(&format!("{verb} {} ({count}, {size}) in {millis}ms", image.name));
        session.printer.data(&image.digest.to_string());
    }
}

fn as_json(image: &Image) -> Value {
    let layers: Vec<Value> =
        image.manifest.layers().iter().map(|layer| json!({ "digest": layer.digest().to_string(), "bytes": layer.size() })).collect();
    let bytes: u64 = image.manifest.layers().iter().map(|layer| layer.size()).sum();
    json!({
        "schema": 1,
        "name": image.name.to_string(),
        "digest": image.digest.to_string(),
        "lock_digest": Some(&image.lock).filter(|lock| !lock.is_empty()),
        "layers": layers,
        "bytes": bytes,
    })
}

fn list(session: &Session, images: &Images) -> Ended {
    let all = images.list()?;
    let distinct: u64 = Images::sizes(&all).values().sum();
    if session.printer.is_json() {
        let rows: Vec<Value> = all.iter().map(as_json).collect();
        session.printer.json(&json!({ "schema": 1, "folder": images.root(), "images": rows, "bytes": distinct }));
        return Ok(exit::OK);
    }
    let short = |digest: &str| digest.trim_start_matches("sha256:").chars().take(12).collect::<String>();
    let row = |image: &Image| {
        let bytes: u64 = image.manifest.layers().iter().map(|layer| layer.size()).sum();
        let lock = if image.lock.is_empty() { "-".to_owned() } else { short(&image.lock) };
        let layers = image.manifest.layers().len().to_string();
        vec![image.name.to_string(), short(&image.digest.to_string()), lock, layers, human_bytes(bytes)]
    };
    let rows: Vec<Vec<String>> = all.iter().map(row).collect();
    session.printer.table(&["NAME", "DIGEST", "LOCK", "LAYERS", "SIZE"], &rows);
    let layers: BTreeSet<String> = all.iter().flat_map(|image| image.manifest.layers()).map(|layer| layer.digest().to_string()).collect();
    session.printer.note(&format!("{} take {} together.", counted(layers.len(), "different layer"), human_bytes(distinct)));
    Ok(exit::OK)
}

fn prune(session: &Session, images: &Images, names: &[String], all: bool, dry_run: bool) -> Ended {
    let names = names.iter().map(|name| Reference::parse(name)).collect::<Result<Vec<_>, _>>()?;
    let report = images.prune(&names, all, dry_run)?;
    if session.printer.is_json() {
        session
            .printer
            .json(&json!({ "schema": 1, "images": report.images, "blobs": report.blobs, "bytes": report.bytes, "dry_run": dry_run }));
        return Ok(exit::OK);
    }
    for name in &report.images {
        session.printer.data(name);
    }
    let verb = if dry_run { "Would remove" } else { "Removed" };
    let (count, blobs, size) = (counted(report.images.len(), "image"), counted(report.blobs, "blob"), human_bytes(report.bytes));
    session.printer.done(&format!("{verb} {count} and {blobs} ({size})"));
    Ok(exit::OK)
}

/// Prints an error of images with its hint; gives its exit code.
pub(super) fn failed(printer: Printer, error: &ImageError) -> i32 {
    printer.error(error, &[], error.hint().as_deref());
    code_of(error)
}
