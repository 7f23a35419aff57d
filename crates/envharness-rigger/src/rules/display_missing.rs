//! `display-missing`: a window is to be opened where there is no display.

use super::{Finding, Rule, Scene};
use crate::plan::Change;
use crate::problem::Problem;

pub(super) struct DisplayMissing;

/// What is said, and the variable that makes do without a display.
const SIGNS: [(&str, &str, &str); 9] = [
    ("no display name and no $DISPLAY environment variable", "MPLBACKEND", "Agg"),
    ("headless mode", "MPLBACKEND", "Agg"),
    ("Cannot load backend 'TkAgg'", "MPLBACKEND", "Agg"),
    ("Could not load the Qt platform plugin", "QT_QPA_PLATFORM", "offscreen"),
    ("could not connect to display", "QT_QPA_PLATFORM", "offscreen"),
    ("No available video device", "SDL_VIDEODRIVER", "dummy"),
    ("video system not initialized", "SDL_VIDEODRIVER", "dummy"),
    ("ALSA: Couldn't open audio device", "SDL_AUDIODRIVER", "dummy"),
    ("WARNING: dsp: No such audio device", "SDL_AUDIODRIVER", "dummy"),
];
const HOPELESS: [&str; 3] = ["Cannot connect to \"None\"", "NoSuchDisplayException", "Unable to open display"];

impl Rule for DisplayMissing {
    fn name(&self) -> &'static str {
        "display-missing"
    }

    fn find(&self, problem: &Problem, scene: Scene<'_>) -> Option<Finding> {
        if let Some(sign) = HOPELESS.iter().find(|sign| problem.text.contains(**sign)) {
            return Some(
                Finding::new(self.name(), format!("it opens a window and there is no display: {sign}")).offer("run it under `xvfb-run`"),
            );
        }
        let (sign, name, value) =
            SIGNS.iter().find(|(sign, name, _)| problem.text.contains(sign) && !scene.plan.env.contains_key(*name))?;
        let cause = format!("it opens a window and there is no display: {sign}");
        let change = Change::Env((*name).to_owned(), (*value).to_owned());
        Some(Finding::new(self.name(), cause).way(vec![change]).offer("or run it under `xvfb-run`"))
    }
}

#[cfg(test)]
mod tests {
    use super::super::scenes::{problem, scene};
    use super::*;
    use crate::problem::Stage;

    #[test]
    fn a_variable_makes_do_without() {
        let text = "_tkinter.TclError: no display name and no $DISPLAY environment variable";
        let found = scene(&[], &[]).ask(&DisplayMissing, &problem(Stage::Check, None, text)).unwrap();
        assert_eq!(found.ways, [[Change::Env("MPLBACKEND".into(), "Agg".into())]]);
        let found =
            scene(&[], &[]).ask(&DisplayMissing, &problem(Stage::Check, None, "pyglet.canvas.xlib.NoSuchDisplayException: x")).unwrap();
        assert!(found.ways.is_empty() && found.offer.unwrap().contains("xvfb-run"));
    }
}
