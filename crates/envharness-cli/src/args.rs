//! What can be typed.

mod image;
mod rig;
mod serve;

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use clap_complete::engine::{ArgValueCandidates, CompletionCandidate};
use envharness_rig::Inputs;

pub use image::{BuildArgs, ImageCommand, ImageCompression, ImageFormat};
pub use rig::RigArgs;
pub use serve::{Concurrency, ContractCommand, LogFormat, ServeArgs, ServeMode, TargetFlags, TraceCommand};

/// Turns a declarative spec into a locked, isolated environment, runs things in it, and serves environments for training.
#[derive(Debug, Parser)]
#[command(name = "envharness", version, propagate_version = true, max_term_width = 100, after_help = AFTER_HELP)]
pub struct Cli {
    #[command(flatten)]
    pub global: Global,
    #[command(subcommand)]
    pub command: Command,
}

const AFTER_HELP: &str = "Exit codes: 0 ok, 1 expected failure, 2 usage, 3 outside world, 70 fault of envharness, 130 interrupted;
`run`, `exec` and `shell` pass on the command's own code, and give 124 when its time was over and 125 when it could not be started.";

/// Flags of every command.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Global")]
pub struct Global {
    /// How much to log on standard error
    #[arg(long, global = true, value_name = "LEVEL", env = "ENVHARNESS_LOG", ignore_case = true)]
    pub log_level: Option<LogLevel>,
    /// The form of the result on standard output
    #[arg(long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    pub output_format: OutputFormat,
    /// Say nothing but errors and the result
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
    /// Say more; twice for all
    #[arg(short, long, global = true, action = clap::ArgAction::Count)]
    pub verbose: u8,
    /// Show no progress, even on a terminal
    #[arg(long, global = true)]
    pub no_progress: bool,
    /// Never use the network
    #[arg(long, global = true)]
    pub offline: bool,
    /// Never run a package's own build code
    #[arg(long, global = true)]
    pub no_build: bool,
    /// The default package index [setting: index]
    #[arg(long, global = true, value_name = "URL")]
    pub index: Option<String>,
    /// A further package index, before the default one (can be repeated) [setting: extra_indexes]
    #[arg(long, global = true, value_name = "[NAME=]URL")]
    pub extra_index: Vec<String>,
    /// A folder or page with archives (can be repeated) [setting: find_links]
    #[arg(long, global = true, value_name = "PLACE")]
    pub find_links: Vec<String>,
    /// The folder of finished environments and all state [env: ENVHARNESS_HOME]
    #[arg(long, global = true, value_name = "DIR")]
    pub home: Option<PathBuf>,
    /// The folder of downloads [env: ENVHARNESS_CACHE]
    #[arg(long, global = true, value_name = "DIR")]
    pub cache: Option<PathBuf>,
    /// Work as if started in this folder
    #[arg(long, global = true, value_name = "DIR")]
    pub project: Option<PathBuf>,
}

/// Levels of the log.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum LogLevel {
    /// Nothing but errors
    Error,
    /// Warnings too
    Warn,
    /// The main steps too
    Info,
    /// Every program started and every event
    Debug,
    /// Everything
    Trace,
}

/// Forms of a result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum OutputFormat {
    /// For a person
    #[default]
    Text,
    /// One JSON document
    Json,
    /// One JSON document a line
    Jsonl,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Write a commented envharness.yaml and a .envharness folder
    Init(InitArgs),
    /// Make a spec that works from a task that has none, or none that does
    Rig(Box<RigArgs>),
    /// Read a spec and say what is wrong with it
    #[command(alias = "validate")]
    Check(CheckArgs),
    /// Resolve a spec into a lock
    Lock(LockArgs),
    /// Make the environment of a spec
    Sync(SyncArgs),
    /// Make idle contexts, which the next `run` and `get_context` take in milliseconds
    Warm(WarmArgs),
    /// Make a context and print its id
    Create(CreateArgs),
    /// Run a command in the environment of a spec
    Run(RunArgs),
    /// Run a command in a context
    Exec(ExecArgs),
    /// Open a shell in a context
    Shell(ShellArgs),
    /// Serve an environment to OpenEnv clients
    Serve(Box<ServeArgs>),
    /// The contract of an environment
    #[command(subcommand)]
    Contract(ContractCommand),
    /// What sessions did
    #[command(subcommand)]
    Trace(TraceCommand),
    /// List contexts
    #[command(visible_alias = "ls")]
    List,
    /// Show all that is known of a context
    Inspect(IdArgs),
    /// Copy files into or out of a context
    Cp(CpArgs),
    /// Show what the commands of a context printed
    Logs(LogsArgs),
    /// Remove contexts
    Rm(RmArgs),
    /// Remove contexts past their time and environments nobody uses
    Gc(GcArgs),
    /// Write a lock as requirements.txt or pylock.toml
    Export(ExportArgs),
    /// Make images of specs and move them to and from registries
    #[command(subcommand)]
    Image(ImageCommand),
    /// Look after the store
    #[command(subcommand)]
    Store(StoreCommand),
    /// Compile the byte-code of an environment
    Compile(SyncArgs),
    /// Show the settings
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check what this machine can do
    Doctor,
    /// Print the completion script of a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the reference of every command
    #[command(hide = true)]
    Reference,
}

/// What may happen to a lock.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Lock")]
pub struct LockFlags {
    /// Refuse a lock that does not answer its spec
    #[arg(long, conflicts_with = "frozen")]
    pub locked: bool,
    /// Use the lock without a look at the spec
    #[arg(long)]
    pub frozen: bool,
}

#[derive(Debug, Args)]
pub struct InitArgs {
    /// The folder
    #[arg(default_value = ".")]
    pub folder: PathBuf,
    /// Replace files that are there
    #[arg(long)]
    pub force: bool,
    /// Write an example task_spec.yaml too
    #[arg(long)]
    pub example: bool,
}

#[derive(Debug, Args)]
pub struct CheckArgs {
    /// The spec; the folder's own by default
    pub spec: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub struct LockArgs {
    /// The spec; the folder's own by default
    pub spec: Option<PathBuf>,
    #[command(flatten)]
    pub lock: LockFlags,
    /// Take the newest versions that fit
    #[arg(long, short = 'U', conflicts_with_all = ["locked", "frozen"])]
    pub upgrade: bool,
    /// Take the newest version of one package (can be repeated)
    #[arg(long, short = 'P', value_name = "NAME", conflicts_with_all = ["locked", "frozen"])]
    pub upgrade_package: Vec<String>,
    /// Resolve for a further platform, such as linux-aarch64 (can be repeated)
    #[arg(long, value_name = "PLATFORM", conflicts_with_all = ["locked", "frozen"])]
    pub platform: Vec<String>,
}

#[derive(Debug, Args)]
pub struct SyncArgs {
    /// The spec; the folder's own by default
    pub spec: Option<PathBuf>,
    #[command(flatten)]
    pub lock: LockFlags,
}

#[derive(Debug, Args)]
pub struct WarmArgs {
    /// The spec; the folder's own by default
    pub spec: Option<PathBuf>,
    /// How many idle contexts shall wait
    #[arg(long, short = 'n', value_name = "N", default_value_t = 1)]
    pub count: usize,
    #[command(flatten)]
    pub lock: LockFlags,
}

#[derive(Debug, Args)]
pub struct CreateArgs {
    /// The spec; the folder's own by default
    pub spec: Option<PathBuf>,
    #[command(flatten)]
    pub lock: LockFlags,
    /// The longest time to create, such as 10m
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
}

/// How a command is run.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Command")]
pub struct CommandFlags {
    /// Set a variable (can be repeated)
    #[arg(long, short, value_name = "NAME=VALUE")]
    pub env: Vec<String>,
    /// Run in this folder
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The longest run, such as 10m
    #[arg(long, value_name = "TIME")]
    pub timeout: Option<String>,
    /// The longest silence, such as 30s
    #[arg(long, value_name = "TIME")]
    pub no_output_timeout: Option<String>,
}

#[derive(Debug, Args)]
pub struct RunArgs {
    /// The spec; the folder's own by default
    pub spec: Option<PathBuf>,
    #[command(flatten)]
    pub lock: LockFlags,
    #[command(flatten)]
    pub flags: CommandFlags,
    /// Keep what the last run left in the context's folder
    #[arg(long)]
    pub no_fresh: bool,
    /// The command and its words, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ExecArgs {
    /// The context: the beginning of its id is enough
    #[arg(add = ArgValueCandidates::new(context_ids))]
    pub id: String,
    #[command(flatten)]
    pub flags: CommandFlags,
    /// The command and its words, after `--`
    #[arg(last = true, required = true, value_name = "CMD")]
    pub command: Vec<String>,
}

#[derive(Debug, Args)]
pub struct ShellArgs {
    /// The context: the beginning of its id is enough
    #[arg(add = ArgValueCandidates::new(context_ids))]
    pub id: String,
    #[command(flatten)]
    pub flags: CommandFlags,
}

#[derive(Debug, Args)]
pub struct IdArgs {
    /// The context: the beginning of its id is enough
    #[arg(add = ArgValueCandidates::new(context_ids))]
    pub id: String,
}

#[derive(Debug, Args)]
pub struct CpArgs {
    /// A path, or ID:PATH
    pub source: String,
    /// A path, or ID:PATH
    pub target: String,
}

#[derive(Debug, Args)]
pub struct LogsArgs {
    /// The context: the beginning of its id is enough
    #[arg(add = ArgValueCandidates::new(context_ids))]
    pub id: String,
    /// Go on as more is written, until the context is gone
    #[arg(long, short)]
    pub follow: bool,
    /// The last lines only
    #[arg(long, short = 'n', value_name = "LINES")]
    pub tail: Option<usize>,
}

#[derive(Debug, Args)]
pub struct RmArgs {
    /// The contexts: the beginnings of their ids are enough
    #[arg(required_unless_present = "all", add = ArgValueCandidates::new(context_ids))]
    pub ids: Vec<String>,
    /// Also one that a live process holds
    #[arg(long, short)]
    pub force: bool,
    /// Every context that nobody holds
    #[arg(long, conflicts_with = "ids")]
    pub all: bool,
    /// Do not ask
    #[arg(long, short)]
    pub yes: bool,
}

#[derive(Debug, Args)]
pub struct GcArgs {
    /// Remove environments unused for longer, such as 7d [setting: gc.max_age]
    #[arg(long, value_name = "TIME")]
    pub max_age: Option<String>,
    /// Remove the least recently used while all take more, such as 20G [setting: gc.max_size]
    #[arg(long, value_name = "SIZE")]
    pub max_size: Option<String>,
    /// Only say what would go
    #[arg(long)]
    pub dry_run: bool,
}

#[derive(Debug, Args)]
pub struct ExportArgs {
    /// The spec; the folder's own by default
    pub spec: Option<PathBuf>,
    #[command(flatten)]
    pub lock: LockFlags,
    /// The form
    #[arg(long, value_enum, default_value_t)]
    pub format: ExportFormat,
    /// The file; standard output by default
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
}

/// Forms of an export.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum ExportFormat {
    /// requirements.txt with hashes
    #[default]
    #[value(name = "requirements.txt", alias = "requirements")]
    Requirements,
    /// PEP 751 pylock.toml
    #[value(name = "pylock.toml", alias = "pylock")]
    Pylock,
    /// conda's environment.yml, every package exact
    #[value(name = "environment.yml", alias = "environment")]
    Environment,
    /// conda's explicit list of addresses
    #[value(name = "explicit")]
    Explicit,
    /// pixi.lock
    #[value(name = "pixi.lock", alias = "pixi")]
    Pixi,
    /// conda-lock.yml
    #[value(name = "conda-lock.yml", alias = "conda-lock")]
    CondaLock,
    /// The normalised spec
    #[value(name = "spec.yaml", alias = "spec")]
    Spec,
}

#[derive(Debug, Subcommand)]
pub enum StoreCommand {
    /// Print the folder of the store
    Dir,
    /// Show what the store takes
    Size,
    /// Check every environment, file by file
    Verify {
        /// Keys of environments; all by default
        keys: Vec<String>,
        /// Compare names and sizes only
        #[arg(long)]
        quick: bool,
        /// Put broken ones aside, so that the next create builds them anew
        #[arg(long)]
        repair: bool,
    },
    /// Remove everything in the store that is not in use
    Clean {
        /// Do not ask
        #[arg(long, short)]
        yes: bool,
    },
}

#[derive(Debug, Subcommand)]
pub enum ConfigCommand {
    /// Show every setting with its value and where that came from
    Show,
}

impl Global {
    /// What the settings are read from, flags last.
    pub fn inputs(&self) -> anyhow::Result<Inputs> {
        let Self {
            log_level: _,
            output_format: _,
            quiet: _,
            verbose: _,
            no_progress: _,
            offline,
            no_build,
            index,
            extra_index,
            find_links,
            home,
            cache,
            project,
        } = self;
        if let Some(folder) = project {
            std::env::set_current_dir(folder).map_err(|error| anyhow::anyhow!("failed to enter `{}`: {error}", folder.display()))?;
        }
        let mut inputs = Inputs::of_process()?;
        let mut flag = |key: &str, value: Option<String>, name: &str| {
            inputs.flags.extend(value.map(|value| (key.to_owned(), value, name.to_owned())));
        };
        flag("offline", offline.then(|| "true".to_owned()), "--offline");
        flag("no_build", no_build.then(|| "true".to_owned()), "--no-build");
        flag("index", index.clone(), "--index");
        let list = |values: &[String]| (!values.is_empty()).then(|| values.join("\n"));
        flag("extra_indexes", list(extra_index), "--extra-index");
        flag("find_links", list(find_links), "--find-links");
        flag("home", home.as_ref().map(|p| p.display().to_string()), "--home");
        flag("cache", cache.as_ref().map(|p| p.display().to_string()), "--cache");
        Ok(inputs)
    }
}

/// Ids of contexts, for shell completion.
fn context_ids() -> Vec<CompletionCandidate> {
    let ids = || -> anyhow::Result<Vec<String>> {
        let settings = envharness_rig::Settings::load(Inputs::of_process()?)?;
        Ok(settings.open_home()?.contexts()?.into_iter().map(|row| row.id).collect())
    };
    ids().unwrap_or_default().into_iter().map(CompletionCandidate::new).collect()
}
