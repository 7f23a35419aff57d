//! `init`: a commented envharness.yaml and the `.envharness` folder.

use std::fs;
use std::path::Path;

use envharness_rig::SETTINGS;
use serde_json::json;

use super::Ended;
use crate::args::InitArgs;
use crate::exit;
use crate::printer::Printer;

const EXAMPLE: &str = "# yaml-language-server: $schema=.envharness/spec.schema.json
name: example
description: What this environment is for
environment:
  python: \"3.11\"
  dependencies:
    pip:
      - numpy<2
resources:
  gpu: false
";

pub(super) fn run(args: &InitArgs, printer: Printer) -> Ended {
    let folder = &args.folder;
    let inner = folder.join(".envharness");
    let mut files = vec![
        (folder.join("envharness.yaml"), settings_file()),
        (inner.join("spec.schema.json"), envharness_spec::SPEC_SCHEMA.to_owned()),
        (inner.join(".gitignore"), "*\n!.gitignore\n!spec.schema.json\n!config.json\n".to_owned()),
    ];
    if args.example {
        files.push((folder.join("task_spec.yaml"), EXAMPLE.to_owned()));
    }
    // Files of a person; the schema is ours and may always be renewed.
    let kept: Vec<&Path> = files.iter().map(|(path, _)| path.as_path()).filter(|p| p.exists() && !p.starts_with(&inner)).collect();
    if let Some(path) = kept.first().filter(|_| !args.force) {
        anyhow::bail!("`{}` is there already; give --force to replace it", path.display());
    }
    fs::create_dir_all(&inner).map_err(|error| anyhow::anyhow!("failed to create `{}`: {error}", inner.display()))?;
    for (path, text) in &files {
        envharness_store::write_atomic(path, text.as_bytes()).map_err(envharness_rig::RigError::from)?;
    }
    if printer.is_json() {
        printer.json(&json!({ "schema": 1, "written": files.iter().map(|(path, _)| path).collect::<Vec<_>>() }));
    } else {
        printer.done(&format!("Wrote {}", files.iter().map(|(p, _)| p.display().to_string()).collect::<Vec<_>>().join(", ")));
    }
    Ok(exit::OK)
}

/// Every setting with its meaning, at its default, as a comment.
fn settings_file() -> String {
    let mut out = String::from(
        "# Settings of envharness for this folder. Every line is a default; take the `#` away to change it.\n\
         # Order: defaults < ~/.config/envharness/envharness.yaml < this file < ENVHARNESS_* variables < flags.\n\
         # `envharness config show` says where each value comes from.\n",
    );
    let mut group = "";
    for (key, default, meaning) in SETTINGS {
        let value = if default.is_empty() { "" } else { default };
        match key.split_once('.') {
            Some((head, name)) => {
                if head != group {
                    out.push_str(&format!("\n# {head}:\n"));
                    group = head;
                }
                out.push_str(&format!("#   # {meaning}\n#   {name}: {value}\n"));
            }
            None => out.push_str(&format!("\n# {meaning}\n# {key}: {value}\n")),
        }
    }
    out.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n"
}
