//! What can be typed of images.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

use super::LockFlags;

/// The commands of images.
#[derive(Debug, Subcommand)]
pub enum ImageCommand {
    /// Make an OCI image of a spec, without any engine
    Build(Box<BuildArgs>),
    /// List the images of the store
    #[command(visible_alias = "ls")]
    List,
    /// Remove images, and the layers that no image has
    Prune {
        /// Images to remove first
        #[arg(value_name = "NAME:TAG")]
        names: Vec<String>,
        /// Remove every image
        #[arg(long, conflicts_with = "names")]
        all: bool,
        /// Only say what would go
        #[arg(long)]
        dry_run: bool,
    },
    /// Send an image to a registry
    Push {
        /// The image
        #[arg(value_name = "NAME:TAG")]
        name: String,
        /// Its name there; the same by default
        #[arg(value_name = "TO")]
        to: Option<String>,
    },
    /// Fetch an image from a registry
    Pull {
        /// The image, such as registry.example.org/team/trainer:1
        #[arg(value_name = "NAME:TAG")]
        name: String,
    },
}

#[derive(Debug, Args)]
pub struct BuildArgs {
    /// The spec; the folder's own by default
    pub spec: Option<PathBuf>,
    #[command(flatten)]
    pub lock: LockFlags,
    /// The image's name; the spec's by default
    #[arg(long, short, value_name = "NAME:TAG")]
    pub tag: Option<String>,
    /// Also write it to a folder, or an archive when this ends in .tar
    #[arg(long, short, value_name = "PATH")]
    pub output: Option<PathBuf>,
    /// What is written to --output: an OCI layout, or an archive for `docker load`
    #[arg(long, value_enum, default_value_t, requires = "output")]
    pub format: ImageFormat,
    /// What it starts from: an image of the store, an OCI layout, an archive of `docker save`, a root file system
    #[arg(long, value_name = "NAME_OR_PATH")]
    pub base: Option<String>,
    /// How layers are compressed
    #[arg(long, value_enum, default_value_t)]
    pub compression: ImageCompression,
    /// Where the environment lies in the image
    #[arg(long, value_name = "DIR", default_value = "/opt/envharness/env")]
    pub target: String,
    /// The folder that its processes start in
    #[arg(long, value_name = "DIR", default_value = "/work")]
    pub workdir: String,
    /// The user of its processes: UID, UID:GID or a name of the base
    #[arg(long, value_name = "USER", default_value = "")]
    pub user: String,
    /// A word of the program that is always started (can be repeated)
    #[arg(long, value_name = "WORD")]
    pub entrypoint: Vec<String>,
    /// Add a label (can be repeated)
    #[arg(long, value_name = "NAME=VALUE")]
    pub label: Vec<String>,
    /// What is started when nothing is said, after `--`; python by default
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// Forms of a written image.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ImageFormat {
    /// An OCI image layout
    #[default]
    Oci,
    /// An archive for `docker load`; it is an OCI archive too
    Docker,
}

/// Compressions of layers.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum ImageCompression {
    /// Read by every engine
    #[default]
    Gzip,
    /// Smaller; for docker 23, podman 4 and newer
    Zstd,
}
