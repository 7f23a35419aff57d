//! OCI images of envharness, without any engine.
//!
//! A prefix that lies ready ([`Content`]) is dealt out to layers by package ([`plan`]), each layer is a tar whose bytes its
//! content alone decides, and [`Images`], a folder of the store, is an OCI image layout that other tools read as it is. An
//! image leaves it as a layout, as an archive for `docker load`, or to a registry.
//!
//! ```
//! use envharness_image::Reference;
//!
//! let name = Reference::parse("registry.example.org/team/trainer:1")?;
//! assert_eq!((name.path.as_str(), name.tag.as_str()), ("team/trainer", "1"));
//! # Ok::<(), envharness_image::ImageError>(())
//! ```

mod build;
mod error;
mod export;
mod facts;
mod hashing;
mod images;
mod import;
mod layer;
pub mod plan;
mod reference;
mod registry;
pub mod tree;

pub use build::{BuildRequest, Bytecode, Content, PackageFiles};
pub use error::{Fault, ImageError};
pub use export::Format;
pub use facts::Facts;
pub use images::{Image, Images, Pruned, Watch};
pub use import::Base;
pub use layer::{Compression, Packed, Stamp, compress, open_tar, pack, write_tar};
pub use reference::Reference;
pub use registry::RegistryOptions;
