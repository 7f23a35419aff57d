//! Images of an engine.

use std::collections::BTreeMap;
use std::io::Read;

use bollard::auth::DockerCredentials;
use bollard::query_parameters::{
    BuildImageOptionsBuilder, CreateImageOptionsBuilder, ImportImageOptionsBuilder, RemoveImageOptionsBuilder,
};
use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http_body_util::Full;

use crate::engine::{Call, Engine};
use crate::error::EngineError;

/// What is known of an image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ImageFacts {
    /// The digest of its configuration, `sha256:...`: what it is, wherever it came from.
    pub id: String,
    /// Its names with the digest of a registry.
    pub repo_digests: Vec<String>,
    /// Variables.
    pub env: Vec<String>,
    /// The user it names.
    pub user: String,
    /// The folder it starts in.
    pub workdir: String,
    /// Its size in bytes.
    pub bytes: u64,
    /// Labels.
    pub labels: BTreeMap<String, String>,
}

/// A step of a pull, of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullStep {
    /// The layer, as the engine calls it.
    pub layer: String,
    /// What is done with it.
    pub status: String,
    /// Bytes that are there.
    pub current: u64,
    /// Bytes of all.
    pub total: u64,
}

/// Who pulls.
#[derive(Clone)]
pub struct Credentials {
    /// The user.
    pub user: String,
    /// The password.
    pub password: String,
}

impl Engine {
    /// An image by its name, digest or id; `None` when the engine has none.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn image(&self, name: &str, call: &dyn Call) -> Result<Option<ImageFacts>, EngineError> {
        let found = self.wait(&format!("look for the image `{name}`"), call, self.client().inspect_image(name));
        let image = match found {
            Err(error) if error.is_missing() => return Ok(None),
            other => other?,
        };
        let config = image.config.unwrap_or_default();
        Ok(Some(ImageFacts {
            id: image.id.unwrap_or_default(),
            // Podman names images of this machine so, and no registry knows them.
            repo_digests: image.repo_digests.unwrap_or_default().into_iter().filter(|name| !name.starts_with("localhost/")).collect(),
            env: config.env.unwrap_or_default(),
            user: config.user.unwrap_or_default(),
            workdir: config.working_dir.unwrap_or_default(),
            bytes: u64::try_from(image.size.unwrap_or(0)).unwrap_or(0),
            labels: config.labels.unwrap_or_default().into_iter().collect(),
        }))
    }

    /// Pulls an image, telling each step.
    ///
    /// # Errors
    /// [`EngineError::NoImage`] with the engine's reason.
    pub fn pull(
        &self,
        name: &str,
        credentials: Option<&Credentials>,
        step: &mut dyn FnMut(PullStep),
        call: &dyn Call,
    ) -> Result<(), EngineError> {
        let action = format!("pull `{name}`");
        let (repository, tag) = split_name(name);
        let options = CreateImageOptionsBuilder::default().from_image(repository).tag(tag).build();
        let auth = credentials.map(|credentials| DockerCredentials {
            username: Some(credentials.user.clone()),
            password: Some(credentials.password.clone()),
            ..DockerCredentials::default()
        });
        let pulled = self.wait(&action, call, async {
            let mut steps = std::pin::pin!(self.client().create_image(Some(options), None, auth));
            while let Some(told) = steps.next().await {
                let told = told?;
                let detail = told.progress_detail.unwrap_or_default();
                let bytes = |value: Option<i64>| u64::try_from(value.unwrap_or(0)).unwrap_or(0);
                step(PullStep {
                    layer: told.id.unwrap_or_default(),
                    status: told.status.unwrap_or_default(),
                    current: bytes(detail.current),
                    total: bytes(detail.total),
                });
            }
            Ok(())
        });
        pulled.map_err(|error| match error {
            EngineError::Refused { kind, reason, .. } => EngineError::NoImage { kind, name: name.to_owned(), pull: Some(reason) },
            other => other,
        })
    }

    /// Takes in an archive of `docker save`.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn load(&self, archive: impl Read + Send + 'static, call: &dyn Call) -> Result<(), EngineError> {
        let options = ImportImageOptionsBuilder::default().quiet(true).build();
        let pieces = stream::iter(Pieces(archive));
        self.wait("load an image", call, async {
            let mut told = std::pin::pin!(self.client().import_image_stream(options, pieces, None));
            while let Some(line) = told.next().await {
                line?;
            }
            Ok(())
        })
    }

    /// Builds an image from a tar of its context; `line` gets what the build prints.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn build(
        &self,
        tar: Vec<u8>,
        dockerfile: &str,
        name: &str,
        labels: &BTreeMap<String, String>,
        line: &mut dyn FnMut(&str),
        call: &dyn Call,
    ) -> Result<(), EngineError> {
        let labels = labels.iter().map(|(name, value)| (name.clone(), value.clone())).collect();
        let options = BuildImageOptionsBuilder::default().dockerfile(dockerfile).t(name).rm(true).forcerm(true).labels(&labels).build();
        let body = http_body_util::Either::Left(Full::new(Bytes::from(tar)));
        self.wait(&format!("build the image `{name}`"), call, async {
            let mut told = std::pin::pin!(self.client().build_image(options, None, Some(body)));
            while let Some(told) = told.next().await {
                if let Some(text) = told?.stream {
                    line(text.trim_end());
                }
            }
            Ok(())
        })
    }

    /// Removes an image's name, and the image with its last one.
    ///
    /// # Errors
    /// [`EngineError`]; none when it is not there.
    pub fn remove_image(&self, name: &str, call: &dyn Call) -> Result<(), EngineError> {
        let options = RemoveImageOptionsBuilder::default().force(true).build();
        let removed = self.wait(&format!("remove the image `{name}`"), call, self.client().remove_image(name, Some(options), None));
        match removed {
            Err(error) if !error.is_missing() => Err(error),
            _ => Ok(()),
        }
    }
}

/// Repository and tag or digest, as the engine wants them apart.
fn split_name(name: &str) -> (&str, &str) {
    if let Some((repository, digest)) = name.split_once('@') {
        return (repository, digest);
    }
    match name.rsplit_once(':') {
        Some((repository, tag)) if !tag.contains('/') => (repository, tag),
        _ => (name, "latest"),
    }
}

/// A reader as pieces of a body.
struct Pieces<R>(R);

impl<R: Read> Iterator for Pieces<R> {
    type Item = std::io::Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut buffer = vec![0_u8; 1 << 18];
        match self.0.read(&mut buffer) {
            Ok(0) => None,
            Ok(read) => {
                buffer.truncate(read);
                Some(Ok(buffer.into()))
            }
            Err(error) => Some(Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::split_name;

    #[test]
    fn names_are_taken_apart_as_docker_does() {
        assert_eq!(split_name("debian"), ("debian", "latest"));
        assert_eq!(split_name("127.0.0.1:5000/a/b"), ("127.0.0.1:5000/a/b", "latest"));
        assert_eq!(split_name("127.0.0.1:5000/a/b:1"), ("127.0.0.1:5000/a/b", "1"));
        assert_eq!(split_name("a/b@sha256:12"), ("a/b", "sha256:12"));
    }
}
