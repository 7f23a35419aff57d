//! Files of a container that are nowhere on this machine.

use std::io::Write;

use bollard::query_parameters::{ContainerArchiveInfoOptionsBuilder, DownloadFromContainerOptionsBuilder, UploadToContainerOptionsBuilder};
use bytes::Bytes;
use futures_util::StreamExt as _;
use http_body_util::Full;

use crate::engine::{Call, Engine};
use crate::error::EngineError;

/// What a path of a container is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PathStat {
    /// Its size.
    pub bytes: u64,
    /// Whether it is a folder.
    pub is_folder: bool,
    /// Where a link leads; empty for what is none.
    pub link: String,
}

/// Go's bit for a folder in a file's mode.
const GO_FOLDER: u64 = 1 << 31;

impl Engine {
    /// What a path is; `None` when it is not there.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn stat(&self, container: &str, path: &str, call: &dyn Call) -> Result<Option<PathStat>, EngineError> {
        let options = ContainerArchiveInfoOptionsBuilder::default().path(path).build();
        let action = format!("look at `{path}`");
        match self.wait(&action, call, self.client().get_container_archive_info(container, Some(options))) {
            Ok(stat) => Ok(Some(PathStat {
                bytes: u64::try_from(stat.size).unwrap_or(0),
                is_folder: u64::from(stat.file_mode) & GO_FOLDER != 0,
                link: stat.link_target,
            })),
            Err(error) if error.is_missing() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes a path as a tar.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn download(&self, container: &str, path: &str, to: &mut dyn Write, call: &dyn Call) -> Result<(), EngineError> {
        let options = DownloadFromContainerOptionsBuilder::default().path(path).build();
        self.wait(&format!("read `{path}`"), call, async {
            let mut pieces = std::pin::pin!(self.client().download_from_container(container, Some(options)));
            while let Some(piece) = pieces.next().await {
                to.write_all(&piece?)?;
            }
            Ok(())
        })
    }

    /// Unpacks a tar in a folder.
    ///
    /// # Errors
    /// [`EngineError`].
    pub fn upload(&self, container: &str, folder: &str, tar: Vec<u8>, call: &dyn Call) -> Result<(), EngineError> {
        let options = UploadToContainerOptionsBuilder::default().path(folder).build();
        let body = http_body_util::Either::Left(Full::new(Bytes::from(tar)));
        self.wait(&format!("write to `{folder}`"), call, self.client().upload_to_container(container, Some(options), body))
    }
}
