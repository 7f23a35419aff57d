//! The dynamics against Gymnasium, and the environment through its JSON.

use serde_json::{Value, json};

use super::*;

/// Twenty steps recorded from Gymnasium 1.4.0 from the state `START`: action, state, observation, reward, terminated.
type Row = (usize, [f64; 4], [f32; 4], f64, bool);
const START: [f64; 4] = [0.01, -0.02, 0.03, 0.04];
const RECORDED: [Row; 20] = [
    (
        1,
        [0.009600000000000001, 0.17467919574755525, 0.030799999999999998, -0.2430687179600081],
        [0.0096, 0.17467919, 0.0308, -0.24306872],
        1.0,
        false,
    ),
    (
        0,
        [0.013093583914951107, -0.020868848948191993, 0.025938625640799837, 0.0591679999394166],
        [0.013093584, -0.020868849, 0.025938626, 0.059168],
        1.0,
        false,
    ),
    (
        1,
        [0.012676206935987267, 0.1738717748734813, 0.02712198563958817, -0.22521957255967326],
        [0.012676207, 0.17387177, 0.027121985, -0.22521958],
        1.0,
        false,
    ),
    (
        1,
        [0.016153642433456895, 0.36859581150093934, 0.022617594188394704, -0.509225318312219],
        [0.016153643, 0.3685958, 0.022617593, -0.5092253],
        1.0,
        false,
    ),
    (
        0,
        [0.023525558663475683, 0.17316263692575581, 0.012433087822150324, -0.20950152868114708],
        [0.023525558, 0.17316264, 0.012433087, -0.20950153],
        1.0,
        false,
    ),
    (
        1,
        [0.0269888114019908, 0.3681046253751335, 0.008243057248527383, -0.4982366771563557],
        [0.026988812, 0.36810464, 0.008243057, -0.4982367],
        1.0,
        false,
    ),
    (
        0,
        [0.03435090390949347, 0.1728674289893566, -0.0017216762945997319, -0.2029674006167645],
        [0.034350906, 0.17286743, -0.0017216763, -0.2029674],
        1.0,
        false,
    ),
    (
        0,
        [0.0378082524892806, -0.022229857802506442, -0.005781024306935022, 0.08917192326455281],
        [0.03780825, -0.022229858, -0.005781024, 0.08917192],
        1.0,
        false,
    ),
    (
        1,
        [0.037363655333230474, 0.17297447772710509, -0.003997585841643966, -0.20532929889068235],
        [0.037363656, 0.17297448, -0.0039975857, -0.2053293],
        1.0,
        false,
    ),
    (
        1,
        [0.040823144887772576, 0.3681533669141926, -0.008104171819457613, -0.49927058046118256],
        [0.040823147, 0.36815336, -0.008104172, -0.4992706],
        1.0,
        false,
    ),
    (
        1,
        [0.04818621222605643, 0.563388629668444, -0.018089583428681263, -0.7944964581415864],
        [0.048186213, 0.56338865, -0.018089583, -0.7944965],
        1.0,
        false,
    ),
    (
        1,
        [0.05945398481942531, 0.7587541386154997, -0.033979512591512995, -1.0928148228110997],
        [0.059453987, 0.75875413, -0.033979513, -1.0928148],
        1.0,
        false,
    ),
    (
        1,
        [0.07462906759173529, 0.9543069336665629, -0.05583580904773499, -1.395962746066754],
        [0.07462907, 0.95430696, -0.05583581, -1.3959627],
        1.0,
        false,
    ),
    (
        1,
        [0.09371520626506655, 1.1500772771873153, -0.08375506396907006, -1.7055678240026342],
        [0.093715206, 1.1500772, -0.08375506, -1.7055678],
        1.0,
        false,
    ),
    (
        1,
        [0.11671675180881286, 1.3460570103706804, -0.11786642044912275, -2.023102150855231],
        [0.11671675, 1.346057, -0.11786642, -2.023102],
        1.0,
        false,
    ),
    (
        1,
        [0.14363789201622645, 1.5421857132123034, -0.15832846346622736, -2.349826580221954],
        [0.1436379, 1.5421857, -0.15832846, -2.3498266],
        1.0,
        false,
    ),
    (
        1,
        [0.17448160628047252, 1.7383344241118648, -0.20532499507066643, -2.6867238990393116],
        [0.1744816, 1.7383344, -0.20532499, -2.686724],
        1.0,
        false,
    ),
    (
        1,
        [0.2092482947627098, 1.9342871030615938, -0.25905947305145266, -3.034421161856454],
        [0.20924829, 1.9342871, -0.25905946, -3.0344212],
        1.0,
        true,
    ),
    (
        1,
        [0.2479340368239417, 2.129720691299202, -0.31974789628858175, -3.3931039369352174],
        [0.24793404, 2.1297207, -0.3197479, -3.3931038],
        0.0,
        true,
    ),
    (
        1,
        [0.2905284506499257, 2.3241855761502923, -0.3876099750272861, -3.7624287051219985],
        [0.29052845, 2.3241856, -0.38761, -3.7624288],
        0.0,
        true,
    ),
];

#[test]
fn twenty_steps_are_those_of_gymnasium() {
    let mut pole = CartPole::new();
    pole.set_state(START);
    for (step, (action, state, observation, reward, terminated)) in RECORDED.into_iter().enumerate() {
        let transition = pole.step_action(action).expect("a state was set");
        let ours = pole.state().expect("a state was set");
        // numpy's own sine may differ from the system's in the last bit.
        let close = ours.iter().zip(state).all(|(ours, theirs)| (ours - theirs).abs() <= 1e-14);
        assert!(close, "step {step}: {ours:?}, Gymnasium has {state:?}");
        assert_eq!(transition, Transition { observation, reward, terminated, truncated: false }, "step {step}");
    }
}

#[test]
fn an_episode_is_cut_off_at_500_steps() {
    let mut pole = CartPole::new();
    pole.set_state([0.0; 4]);
    let mut steps = 0;
    loop {
        // A push towards the side to which the pole falls keeps it up.
        let [x, x_dot, theta, theta_dot] = pole.state().expect("a state was set");
        let push = 0.1 * x + 0.3 * x_dot + 3.0 * theta + theta_dot > 0.0;
        let transition = pole.step_action(usize::from(push)).expect("a state was set");
        steps += 1;
        assert!(!transition.terminated, "the pole fell at step {steps}");
        assert_eq!(transition.truncated, steps == MAX_STEPS);
        assert_eq!(transition.reward, 1.0);
        if transition.truncated {
            return;
        }
    }
}

#[test]
fn a_seed_repeats_its_episode_and_no_seed_goes_on() {
    let (mut a, mut b) = (CartPole::new(), CartPole::new());
    let first = a.reset(Some(7));
    assert_eq!(first, b.reset(Some(7)));
    assert_ne!(first, a.reset(None));
    assert_eq!(a.state(), {
        b.reset(None);
        b.state()
    });
    assert_ne!(first, a.reset(Some(8)));
    assert!(first.iter().all(|value| value.abs() <= 0.05));
}

#[test]
fn a_step_before_the_reset_or_with_another_action_is_refused() {
    let mut pole = CartPole::new();
    assert_eq!(pole.step_action(0), Err(EnvError::Failed("`cartpole` needs a reset before its first step".into())));
    pole.reset(None);
    assert_eq!(pole.step_action(2), Err(EnvError::Failed("`cartpole` has the actions 0 and 1, and not 2".into())));
}

#[test]
fn the_wire_carries_what_the_dynamics_give() {
    let mut env = CartPoleEnv::default();
    let mut pole = CartPole::new();
    let args = ResetArgs { seed: Some(3), episode_id: Some("e".into()), ..ResetArgs::default() };
    let reset = env.reset(&args).expect("a reset");
    let first = pole.reset(Some(3));
    let read = |outcome: &Outcome| serde_json::from_slice::<Value>(&outcome.observation).expect("JSON");
    assert_eq!(read(&reset)["observation"].as_array().map(Vec::len), Some(4));
    assert_eq!(serde_json::from_value::<[f32; 4]>(read(&reset)["observation"].clone()).expect("floats"), first);
    assert_eq!((reset.reward, reset.done), (Some(0.0), false));
    loop {
        let outcome = env.step(br#"{"action": 1.0, "metadata": {"why": []}}"#).expect("a step");
        let transition = pole.step_action(1).expect("a step");
        let seen = read(&outcome);
        assert_eq!(serde_json::from_value::<[f32; 4]>(seen["observation"].clone()).expect("floats"), transition.observation);
        assert_eq!((&seen["terminated"], &seen["truncated"]), (&json!(transition.terminated), &json!(false)));
        assert_eq!(outcome.done, transition.terminated);
        if outcome.done {
            break;
        }
    }
    let state: Value = serde_json::from_slice(&env.state()).expect("JSON");
    assert_eq!(state["episode_id"], "e");
    assert!(state["step_count"].as_u64().is_some_and(|steps| steps > 5));
}

#[test]
fn a_raw_episode_is_that_of_the_wire() {
    let (mut raw, mut wire) = (CartPoleEnv::default(), CartPoleEnv::default());
    let mut seen = [0; 16];
    for seed in 0..20 {
        let args = ResetArgs { seed: Some(seed), episode_id: Some("e".into()), ..ResetArgs::default() };
        let mut told = wire.reset(&args).expect("a reset");
        let mut outcome = raw.reset_raw(&args, &mut seen).expect("a reset");
        for step in 0_i64..600 {
            let value: Value = serde_json::from_slice(&told.observation).expect("JSON");
            let floats: [f32; 4] = serde_json::from_value(value["observation"].clone()).expect("floats");
            assert_eq!(floats.map(f32::to_le_bytes).as_flattened(), seen);
            assert_eq!((json!(outcome.terminated), json!(outcome.truncated)), (value["terminated"].clone(), value["truncated"].clone()));
            assert_eq!((Some(outcome.reward), outcome.terminated || outcome.truncated), (told.reward, told.done));
            assert_eq!(raw.state(), wire.state());
            if told.done {
                break;
            }
            let action = (step ^ (step >> 2)) & 1;
            told = wire.step(json!({"action": action}).to_string().as_bytes()).expect("a step");
            outcome = raw.step_raw(&action.to_le_bytes(), &mut seen).expect("a step");
        }
        assert!(told.done);
    }
}

#[test]
fn raw_bytes_that_are_no_action_are_refused_and_change_nothing() {
    let mut env = CartPoleEnv::default();
    let mut seen = [0; 16];
    env.reset_raw(&ResetArgs::default(), &mut seen).expect("a reset");
    let (before, state) = (seen, env.state());
    for (action, input) in [
        (&2_i64.to_le_bytes()[..], json!(2)),
        (&(-1_i64).to_le_bytes()[..], json!(-1)),
        (b"\0\0\0\0", json!("4 bytes in the place of 8")),
        (b"", json!("0 bytes in the place of 8")),
        (b"\0\0\0\0\0\0\0\0\0", json!("9 bytes in the place of 8")),
    ] {
        let Err(EnvError::Invalid(problems)) = env.step_raw(action, &mut seen) else { panic!("{action:?}") };
        assert_eq!(
            json!(problems),
            json!([{"type": "value_error", "loc": ["action"], "msg": "Value is not in Discrete(2)", "input": input}])
        );
    }
    assert!(matches!(env.step_raw(&[0; 8], &mut [0; 15]), Err(EnvError::Failed(_))));
    assert!(matches!(env.reset_raw(&ResetArgs::default(), &mut [0; 20]), Err(EnvError::Failed(_))));
    assert_eq!((seen, env.state()), (before, state));
}
