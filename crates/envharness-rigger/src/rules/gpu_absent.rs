//! `gpu-absent`: the task asks for a GPU and there is none.

use super::{Finding, Rule, Scene};
use crate::plan::Change;
use crate::problem::Problem;

pub(super) struct GpuAbsent;

const SIGNS: [&str; 8] = [
    "Found no NVIDIA driver on your system",
    "Torch not compiled with CUDA enabled",
    "No CUDA GPUs are available",
    "no CUDA-capable device is detected",
    "libcuda.so.1: cannot open shared object file",
    "CUDA is not available",
    "torch.cuda.is_available() is False",
    "and this machine has 0",
];

impl Rule for GpuAbsent {
    fn name(&self) -> &'static str {
        "gpu-absent"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        let sign = SIGNS.iter().find(|sign| problem.text.contains(**sign))?;
        if scene.world.gpus > 0 && !sign.contains("not compiled") {
            return None;
        }
        let place = scene.evidence.gpu.first().map(|place| format!(" ({place})")).unwrap_or_default();
        let mut finding = Finding::new(self.name(), format!("a GPU is asked for{place} and this machine has {}", scene.world.gpus));
        if scene.plan.base.resources.gpu.is_some() && scene.plan.hide_gpu.is_none() {
            finding = finding.way(vec![Change::Gpu(false)]);
        }
        Some(finding.offer("run it where a GPU is, or tell the task to use the CPU, as with `--device cpu`"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;
    use crate::problem::Stage;

    #[test]
    fn it_is_said_and_not_invented() {
        let mut scene = scene(&["torch"], &[]);
        scene.evidence.gpu = vec!["train.py:7".into()];
        let text = "RuntimeError: Found no NVIDIA driver on your system. Please check";
        let found = scene.ask(&GpuAbsent, &problem(Stage::Check, None, text)).unwrap();
        assert!(found.ways.is_empty() && found.cause.contains("train.py:7") && found.offer.is_some());
        scene.world.gpus = 1;
        assert!(scene.ask(&GpuAbsent, &problem(Stage::Check, None, text)).is_none());
    }
}
