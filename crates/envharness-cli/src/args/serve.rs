//! What can be typed about environment servers.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};

/// Where an environment is and what it runs in.
#[derive(Debug, Args)]
pub struct TargetFlags {
    /// The folder of an env package, `module:name`, `gym:ID` or `native:NAME`
    #[arg(default_value = ".")]
    pub target: String,
    /// Rig an environment with this package too (can be repeated)
    #[arg(long, value_name = "REQUIREMENT", help_heading = "Environment")]
    pub with: Vec<String>,
    /// Rig the environment of this spec
    #[arg(long, value_name = "FILE", help_heading = "Environment")]
    pub spec: Option<PathBuf>,
    /// Use the real openenv package, and run the application as it is
    #[arg(long, help_heading = "Environment")]
    pub reference: bool,
    /// The longest load, such as 2m
    #[arg(long, value_name = "TIME", help_heading = "Environment", default_value = "2m")]
    pub start_timeout: String,
}

/// `envharness serve`.
#[derive(Debug, Args)]
pub struct ServeArgs {
    #[command(flatten)]
    pub target: TargetFlags,
    /// The address to listen on, or `unix:PATH` [env: HOST] [default: 127.0.0.1]
    #[arg(long, value_name = "ADDRESS")]
    pub host: Option<String>,
    /// The port, 0 for any that is free [env: PORT] [default: the package's, else 8000]
    #[arg(long, value_name = "PORT")]
    pub port: Option<u16>,
    /// Load changed sources anew
    #[arg(long)]
    pub reload: bool,
    /// What clients may do [env: OPENENV_MODE] [default: what the application says, else simulation]
    #[arg(long, value_enum, value_name = "MODE")]
    pub mode: Option<ServeMode>,
    /// Have the contract judge every action, and refuse NaN and infinities
    #[arg(long)]
    pub strict: bool,
    /// Write every session as JSON lines into this folder
    #[arg(long, value_name = "DIR")]
    pub trace: Option<PathBuf>,
    /// The form of the log on standard error
    #[arg(long, value_enum, default_value_t, value_name = "FORMAT")]
    pub log_format: LogFormat,
    /// Worker processes [env: WEB_CONCURRENCY] [default: one a core]
    #[arg(long, value_name = "N", help_heading = "Sessions", value_parser = clap::value_parser!(u32).range(1..=1024))]
    pub workers: Option<u32>,
    /// Sessions at once [env: MAX_CONCURRENT_ENVS] [default: what the author allows]
    #[arg(long, value_name = "N", help_heading = "Sessions", value_parser = clap::value_parser!(u32).range(1..))]
    pub max_sessions: Option<u32>,
    /// Sessions that one address may have
    #[arg(long, value_name = "N", help_heading = "Sessions")]
    pub max_sessions_per_client: Option<usize>,
    /// End a session that no socket holds after this time, such as 10m; 0 for never [default: 1h]
    #[arg(long, value_name = "TIME", help_heading = "Sessions")]
    pub session_timeout: Option<String>,
    /// How long a session waits for a client whose connection broke; 0 for not at all
    #[arg(long, value_name = "TIME", help_heading = "Sessions", default_value = "30s")]
    pub resume_timeout: String,
    /// Close a socket without a message after this time, however alive
    #[arg(long, value_name = "TIME", help_heading = "Sessions")]
    pub idle_timeout: Option<String>,
    /// The longest reset or step; 0 for no limit
    #[arg(long, value_name = "TIME", help_heading = "Sessions", default_value = "10m")]
    pub step_timeout: String,
    /// How long episodes may go on when the server is asked to end
    #[arg(long, value_name = "TIME", help_heading = "Sessions", default_value = "30s")]
    pub drain_timeout: String,
    /// How sessions run
    #[arg(long, value_enum, default_value_t, value_name = "HOW", help_heading = "Sessions")]
    pub concurrency: Concurrency,
    /// The largest message in either direction, such as 16M
    #[arg(long, value_name = "SIZE", help_heading = "Sessions", default_value = "100M")]
    pub max_message_size: String,
    /// Read the token that clients must show from this file [env: ENVHARNESS_TOKEN holds the token itself]
    #[arg(long, value_name = "FILE", help_heading = "Doors")]
    pub token_file: Option<PathBuf>,
    /// Serve other machines without a token
    #[arg(long, env = "ENVHARNESS_INSECURE", value_parser = clap::builder::FalseyValueParser::new(), help_heading = "Doors")]
    pub insecure: bool,
    /// Host names that may be asked for, beside the loopback's
    #[arg(long, value_name = "HOST,…", value_delimiter = ',', help_heading = "Doors")]
    pub allowed_hosts: Vec<String>,
    /// Origins of web pages that may ask
    #[arg(long, value_name = "ORIGIN,…", value_delimiter = ',', help_heading = "Doors")]
    pub allowed_origins: Vec<String>,
    /// Proxies whose X-Forwarded-For is believed
    #[arg(long, value_name = "ADDRESS,…", value_delimiter = ',', help_heading = "Doors")]
    pub trusted_proxies: Vec<IpAddr>,
}

/// What clients may do.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum ServeMode {
    /// Everything
    Simulation,
    /// Tools only: no reset, step or state
    Production,
}

/// How the sessions of an environment run.
#[derive(Debug, Clone, Copy, Default, ValueEnum)]
pub enum Concurrency {
    /// As its class says and as was learnt
    #[default]
    Auto,
    /// On the main thread of a worker
    Inline,
    /// Each on a thread of its own
    Thread,
    /// On an event loop
    Async,
    /// Each in a process of its own
    Process,
}

/// Forms of the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// Lines for a person
    #[default]
    Text,
    /// A JSON object a line
    Json,
}

/// `envharness contract`.
#[derive(Debug, Subcommand)]
pub enum ContractCommand {
    /// Load an environment and print its contract
    Show {
        #[command(flatten)]
        target: TargetFlags,
        /// The file; standard output by default
        #[arg(long, short, value_name = "FILE")]
        output: Option<PathBuf>,
    },
}

/// `envharness trace`.
#[derive(Debug, Subcommand)]
pub enum TraceCommand {
    /// Print what a server with --trace has written
    Show {
        /// A trace, or a folder of them
        path: PathBuf,
        /// The session: the beginning of its id is enough
        #[arg(long, value_name = "ID")]
        session: Option<String>,
    },
}
