//! Images to and from a registry (OCI Distribution API).

mod client;
mod credentials;

use std::fs;
use std::future::Future;
use std::io::{Read as _, Write as _};
use std::sync::atomic::{AtomicU64, Ordering};

use envharness_spec::{Digest, human_bytes};
use oci_spec::image::{Descriptor, ImageIndex, ImageManifest, MediaType, Os};
use reqwest::{Method, RequestBuilder, StatusCode, header};

use crate::error::{ImageError, IoContext as _};
use crate::export::media_type;
use crate::hashing::Hasher;
use crate::images::{Image, Images, Watch, descriptor, digest_of, parse};
use crate::import::architecture;
use crate::reference::Reference;
use client::{Client, with_query};

pub use client::Options as RegistryOptions;

/// What can come for the name of an image.
const ACCEPTED: &str = "application/vnd.oci.image.manifest.v1+json, application/vnd.oci.image.index.v1+json, \
    application/vnd.docker.distribution.manifest.v2+json, application/vnd.docker.distribution.manifest.list.v2+json";
/// The most that a manifest may be.
const MOST_MANIFEST: u64 = 8 << 20;
/// Told again after so many bytes.
const STEP: u64 = 4 << 20;

/// Bytes that have passed, told as they grow.
struct Counter<'a> {
    verb: &'static str,
    name: String,
    total: u64,
    passed: AtomicU64,
    watch: &'a dyn Watch,
}

impl Counter<'_> {
    fn add(&self, bytes: u64) {
        let before = self.passed.fetch_add(bytes, Ordering::Relaxed);
        if before / STEP != (before + bytes) / STEP || before == 0 {
            let now = human_bytes(before + bytes);
            self.watch.step(&format!("{} {}, {now} of {}", self.verb, self.name, human_bytes(self.total)));
        }
    }
}

fn plain(request: RequestBuilder) -> Result<RequestBuilder, ImageError> {
    Ok(request)
}

fn wait<T>(work: impl Future<Output = Result<T, ImageError>>) -> Result<T, ImageError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.on("start the network of", std::path::Path::new("this process"))?.block_on(work)
}

impl Images {
    /// Sends an image under its own name, or another. Returns the digest of its manifest.
    ///
    /// # Errors
    /// [`ImageError`]; a registry then has no new name.
    pub fn push(&self, image: &Image, to: &Reference, options: &RegistryOptions, watch: &dyn Watch) -> Result<Digest, ImageError> {
        let _lock = self.in_use()?;
        let registry = to.registry.clone().unwrap_or_else(|| options.default_registry.clone());
        let client = Client::new(&registry, &to.path, options, watch)?;
        wait(async {
            let blobs: Vec<&Descriptor> = image.manifest.layers().iter().chain([image.manifest.config()]).collect();
            let total = blobs.iter().map(|one| one.size()).sum();
            let counter = Counter { verb: "Pushing", name: to.to_string(), total, passed: AtomicU64::new(0), watch };
            for one in blobs {
                self.push_blob(&client, one, to, options, &counter).await?;
            }
            let action = format!("take `{to}`");
            let bytes = fs::read(self.blob(&image.digest)).on("read", &self.blob(&image.digest))?;
            let kind = media_type(&image.manifest).to_string();
            let put = |request: RequestBuilder| Ok(request.header(header::CONTENT_TYPE, &kind).body(bytes.clone()));
            let address = format!("{}/manifests/{}", client.address, to.tag);
            let response = client.send(Method::PUT, &address, &action, &put).await?;
            client.expect(response, &action, &to.to_string()).await?;
            Ok(image.digest.clone())
        })
    }

    async fn push_blob(
        &self,
        client: &Client<'_>,
        one: &Descriptor,
        to: &Reference,
        options: &RegistryOptions,
        counter: &Counter<'_>,
    ) -> Result<(), ImageError> {
        let digest = digest_of(one, &to.to_string())?;
        let text = digest.to_string();
        let action = format!("take a layer of `{to}`");
        let head = client.send(Method::HEAD, &format!("{}/blobs/{text}", client.address), &action, &plain).await?;
        if head.status().is_success() {
            counter.add(one.size());
            return Ok(());
        }
        // Damage is found here, and not by the registry's refusal.
        self.copy_out(&digest, one.size(), &mut std::io::sink())?;
        let uploads = format!("{}/blobs/uploads/", client.address);
        let mut address = uploads.clone();
        if let Some(from) = self.elsewhere(&digest, to, options)? {
            address = with_query(&uploads, &[("mount", &text), ("from", &from)]).unwrap_or(address);
        }
        let mut left = options.retries;
        loop {
            let response = client.send(Method::POST, &address, &action, &plain).await?;
            if response.status() == StatusCode::CREATED {
                counter.add(one.size());
                return Ok(());
            }
            let response = client.expect(response, &action, &to.to_string()).await?;
            let location = response.headers().get(header::LOCATION).and_then(|value| value.to_str().ok()).unwrap_or_default();
            let target = response.url().join(location).ok().and_then(|url| with_query(url.as_str(), &[("digest", &text)]));
            let target = target.ok_or_else(|| ImageError::Registry {
                registry: client.registry.clone(),
                action: action.clone(),
                reason: format!("`{location}` is no address"),
            })?;
            let path = self.blob(&digest);
            let before = counter.passed.load(Ordering::Relaxed);
            let put = |request: RequestBuilder| {
                let file = fs::File::open(&path).on("read", &path)?;
                let request = request.header(header::CONTENT_LENGTH, one.size()).header(header::CONTENT_TYPE, "application/octet-stream");
                Ok(request.body(reqwest::Body::wrap_stream(chunks(file))))
            };
            let response = client.send(Method::PUT, &target, &action, &put).await?;
            // An upload that a server lost is begun anew.
            if response.status() == StatusCode::NOT_FOUND && left > 0 {
                left -= 1;
                counter.passed.store(before, Ordering::Relaxed);
                continue;
            }
            client.expect(response, &action, &to.to_string()).await?;
            counter.add(one.size());
            return Ok(());
        }
    }

    /// Another repository of the same registry that has a blob, as far as this store knows.
    fn elsewhere(&self, digest: &Digest, to: &Reference, options: &RegistryOptions) -> Result<Option<String>, ImageError> {
        let registry = |name: &Reference| name.registry.clone().unwrap_or_else(|| options.default_registry.clone());
        let has = |image: &Image| {
            registry(&image.name) == registry(to)
                && image.name.path != to.path
                && image.manifest.layers().iter().any(|layer| layer.digest().to_string() == digest.to_string())
        };
        Ok(self.list()?.into_iter().find(has).map(|image| image.name.path))
    }

    /// Fetches an image and gives it its name.
    ///
    /// # Errors
    /// [`ImageError`]; the store then has no new image.
    pub fn pull(&self, from: &Reference, options: &RegistryOptions, watch: &dyn Watch) -> Result<Image, ImageError> {
        let _lock = self.in_use()?;
        let registry = from.registry.clone().unwrap_or_else(|| options.default_registry.clone());
        let client = Client::new(&registry, &from.path, options, watch)?;
        wait(async {
            let (mut bytes, mut kind) = self.manifest(&client, &from.tag, from, None).await?;
            if matches!(kind, MediaType::ImageIndex) || kind.to_string().ends_with("manifest.list.v2+json") {
                let index: ImageIndex = parse(&bytes, &from.to_string())?;
                let fits = |one: &&Descriptor| {
                    one.platform().as_ref().is_some_and(|p| *p.os() == Os::Linux && *p.architecture() == architecture())
                };
                let one = index.manifests().iter().find(fits).ok_or_else(|| ImageError::NotThere {
                    registry: registry.clone(),
                    name: format!("{from} for linux/{}", architecture()),
                })?;
                let digest = digest_of(one, &from.to_string())?;
                (bytes, kind) = self.manifest(&client, &digest.to_string(), from, Some(&digest)).await?;
            }
            let manifest: ImageManifest = parse(&bytes, &from.to_string())?;
            let blobs: Vec<&Descriptor> = manifest.layers().iter().chain([manifest.config()]).collect();
            let total = blobs.iter().map(|one| one.size()).sum();
            let counter = Counter { verb: "Pulling", name: from.to_string(), total, passed: AtomicU64::new(0), watch };
            for one in blobs {
                self.pull_blob(&client, one, from, options, &counter).await?;
            }
            let (digest, size) = self.keep(&bytes)?;
            self.name(from, descriptor(kind, &digest, size)?, &[])?;
            Ok(Image { name: from.clone(), digest, lock: String::new(), manifest })
        })
    }

    /// A manifest's bytes, and what they are.
    async fn manifest(
        &self,
        client: &Client<'_>,
        tag: &str,
        from: &Reference,
        wanted: Option<&Digest>,
    ) -> Result<(Vec<u8>, MediaType), ImageError> {
        let action = format!("give `{from}`");
        let accept = |request: RequestBuilder| Ok(request.header(header::ACCEPT, ACCEPTED));
        let response = client.send(Method::GET, &format!("{}/manifests/{tag}", client.address), &action, &accept).await?;
        let mut response = client.expect(response, &action, &from.to_string()).await?;
        let text = |name: header::HeaderName| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let kind = text(header::CONTENT_TYPE).unwrap_or_default();
        let told = text(header::HeaderName::from_static("docker-content-digest")).and_then(|told| Digest::parse(&told));
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(|error| client.unreachable(&error))? {
            bytes.extend_from_slice(&chunk);
            if bytes.len() as u64 > MOST_MANIFEST {
                return Err(ImageError::broken(from, "its manifest is too large"));
            }
        }
        let found = Digest::of(&bytes);
        if let Some(wanted) = wanted.or(told.as_ref()).filter(|wanted| **wanted != found) {
            let reason = format!("its manifest has the hash {found}");
            return Err(ImageError::Damaged { digest: wanted.to_string(), place: from.to_string(), reason });
        }
        Ok((bytes, MediaType::from(kind.split(';').next().unwrap_or_default().trim())))
    }

    async fn pull_blob(
        &self,
        client: &Client<'_>,
        one: &Descriptor,
        from: &Reference,
        options: &RegistryOptions,
        counter: &Counter<'_>,
    ) -> Result<(), ImageError> {
        let digest = digest_of(one, &from.to_string())?;
        if self.has(&digest, one.size()) {
            counter.add(one.size());
            return Ok(());
        }
        let folder = self.temporary()?;
        let draft = folder.path().join("blob");
        let before = counter.passed.load(Ordering::Relaxed);
        let mut left = options.retries;
        loop {
            match self.fetch(client, &digest, one.size(), from, &draft, counter).await {
                Ok(()) => return self.adopt(&draft, &digest),
                // A broken transfer may be whole the next time.
                Err(ImageError::Unreachable { .. } | ImageError::Damaged { .. }) if left > 0 => left -= 1,
                Err(error) => return Err(error),
            }
            counter.passed.store(before, Ordering::Relaxed);
        }
    }

    async fn fetch(
        &self,
        client: &Client<'_>,
        digest: &Digest,
        size: u64,
        from: &Reference,
        draft: &std::path::Path,
        counter: &Counter<'_>,
    ) -> Result<(), ImageError> {
        let action = format!("give a layer of `{from}`");
        let response = client.send(Method::GET, &format!("{}/blobs/{digest}", client.address), &action, &plain).await?;
        let mut response = client.expect(response, &action, &format!("{from} ({digest})")).await?;
        let mut file = fs::File::create(draft).on("write", draft)?;
        let mut hasher = Hasher::default();
        let mut count = 0;
        while let Some(chunk) = response.chunk().await.map_err(|error| client.unreachable(&error))? {
            if counter.watch.interrupted() {
                return Err(ImageError::Interrupted);
            }
            count += chunk.len() as u64;
            // More than was announced is not kept.
            if count > size {
                break;
            }
            hasher.update(&chunk);
            file.write_all(&chunk).on("write", draft)?;
            counter.add(chunk.len() as u64);
        }
        let found = hasher.digest();
        if count == size && found == *digest {
            return Ok(());
        }
        let reason = format!("{count} bytes of {size} came, and their hash is {found}");
        Err(ImageError::Damaged { digest: digest.to_string(), place: from.to_string(), reason })
    }
}

/// A file in pieces, as a body.
fn chunks(file: fs::File) -> impl futures_util::Stream<Item = std::io::Result<Vec<u8>>> + Send + 'static {
    futures_util::stream::try_unfold(file, |mut file| async move {
        let mut buffer = vec![0_u8; 256 << 10];
        let count = file.read(&mut buffer)?;
        buffer.truncate(count);
        Ok(if count == 0 { None } else { Some((buffer, file)) })
    })
}
