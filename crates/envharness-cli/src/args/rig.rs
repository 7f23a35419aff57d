//! `rig`.

use std::path::PathBuf;

use clap::Args;

/// What `rig` takes.
#[derive(Debug, Args)]
pub struct RigArgs {
    /// A script, a notebook, a folder, a spec, a lock, a git address, or `-` for a traceback on standard input
    pub target: String,
    /// What is decided beforehand
    #[command(flatten)]
    pub wishes: WishFlags,
    /// How long it is tried
    #[command(flatten)]
    pub budget: BudgetFlags,
    /// The spec's file; beside the target by default
    #[arg(long, short, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Replace a file that is there
    #[arg(long)]
    pub force: bool,
    /// Print the evidence and the decisions, and try nothing
    #[arg(long)]
    pub explain: bool,
    /// Trust the target's own words: without a command, one that its README tells is the check
    #[arg(long)]
    pub trust: bool,
    /// A program that is asked where no rule knows a way: reads JSON, proposes changes as JSON
    #[arg(long, value_name = "CMD")]
    pub advisor: Option<String>,
    /// The check and its words, after `--`; by default the imports, and for an env package that it loads and resets
    #[arg(last = true, value_name = "CMD")]
    pub command: Vec<String>,
}

/// What is decided beforehand.
#[derive(Debug, Clone, Default, Args)]
#[command(next_help_heading = "Decisions")]
pub struct WishFlags {
    /// The Python, such as 3.11
    #[arg(long, value_name = "VERSION")]
    pub python: Option<String>,
    /// The day that versions are of, such as 2023-05-31; `none` for those of today
    #[arg(long, value_name = "DAY")]
    pub date: Option<String>,
    /// A further package (can be repeated)
    #[arg(long, value_name = "REQUIREMENT")]
    pub with: Vec<String>,
}

/// How long it is tried.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Budget")]
pub struct BudgetFlags {
    /// The most attempts
    #[arg(long, value_name = "N", default_value_t = 8)]
    pub attempts: usize,
    /// The longest time for all attempts
    #[arg(long, value_name = "TIME", default_value = "30m")]
    pub budget: String,
    /// The longest run of the check
    #[arg(long, value_name = "TIME", default_value = "10m")]
    pub timeout: String,
}
