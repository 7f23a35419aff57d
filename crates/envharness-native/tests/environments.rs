//! Every native environment through the trait, judged by its own contract.

use envharness_native::{Descriptor, Env, EnvError, Problem, ResetArgs, all, find};
use envharness_spec::contract::{Contract, Part};
use serde_json::{Value, json};

fn contract(descriptor: &Descriptor) -> Contract {
    Contract {
        name: descriptor.name.to_owned(),
        version: "0".to_owned(),
        action: (descriptor.action)(),
        observation: (descriptor.observation)(),
        reset: (descriptor.reset)(),
        state: (descriptor.state)(),
    }
}

fn actions(name: &str) -> Vec<Value> {
    match name {
        "echo" => vec![json!({"message": "hi"}), json!({"message": "", "metadata": {"a": [1]}})],
        "cartpole" => vec![json!({"action": 0}), json!({"action": 1})],
        _ => ["UP", "DOWN", "LEFT", "RIGHT"].iter().map(|action| json!({"action": action})).collect(),
    }
}

fn step(env: &mut dyn Env, action: &Value) -> Result<(Value, Option<f64>, bool), EnvError> {
    let outcome = env.step(action.to_string().as_bytes())?;
    Ok((serde_json::from_slice(&outcome.observation).expect("JSON"), outcome.reward, outcome.done))
}

fn state(env: &dyn Env) -> Value {
    serde_json::from_slice(&env.state()).expect("JSON")
}

fn problems(env: &mut dyn Env, action: &str) -> Vec<Problem> {
    match env.step(action.as_bytes()) {
        Err(EnvError::Invalid(problems)) => problems,
        other => panic!("{action}: {other:?}"),
    }
}

#[test]
fn every_environment_keeps_its_contract() {
    for descriptor in all() {
        let contract = contract(descriptor);
        contract.check().expect("a contract");
        let [observations, states] = [Part::Observation, Part::State].map(|part| contract.validator(part).expect("a schema"));
        let mut env = (descriptor.make)();
        let args = ResetArgs { seed: Some(1), episode_id: Some("e1".into()), ..ResetArgs::default() };
        let first = env.reset(&args).expect("a reset");
        assert_eq!((first.reward, first.done), (Some(0.0), false), "{}", descriptor.name);
        assert_eq!(state(&*env), json!({"episode_id": "e1", "step_count": 0}));
        let mut seen = vec![serde_json::from_slice(&first.observation).expect("JSON")];
        let actions = actions(descriptor.name);
        for action in &actions {
            assert!(contract.validator(Part::Action).expect("a schema").is_valid(action), "{action}");
            let (mut observation, reward, done) = step(&mut *env, action).expect("a step");
            observation["reward"] = json!(reward);
            observation["done"] = json!(done);
            seen.push(observation);
        }
        for observation in seen {
            assert_eq!(observations.problems(&observation), [], "{} {observation}", descriptor.name);
        }
        assert_eq!(state(&*env), json!({"episode_id": "e1", "step_count": actions.len()}));
        assert!(states.is_valid(&state(&*env)));
    }
    assert!(find("nothing").is_none());
}

#[test]
fn a_bad_action_is_refused_in_pydantics_words_and_changes_nothing() {
    for descriptor in all() {
        let mut env = (descriptor.make)();
        env.reset(&ResetArgs::default()).expect("a reset");
        let field = if descriptor.name == "echo" { "message" } else { "action" };
        let missing = problems(&mut *env, r#"{"bad": 1}"#);
        let missing: Vec<String> = missing.iter().map(|problem| format!("{}: {problem}", problem.kind)).collect();
        assert_eq!(missing, [format!("missing: {field}: Field required"), "extra_forbidden: bad: Extra inputs are not permitted".into()]);
        for metadata in ["null", "3", "[]"] {
            let mut action = actions(descriptor.name)[0].clone();
            action["metadata"] = serde_json::from_str(metadata).expect("JSON");
            assert_eq!(problems(&mut *env, &action.to_string())[0].kind, "dict_type");
        }
        assert_eq!(state(&*env)["step_count"], 0);
    }
}

#[test]
fn echo_says_what_a_python_echo_says() {
    let mut env = (find("echo").expect("echo").make)();
    let reset = env.reset(&ResetArgs::default()).expect("a reset");
    assert_eq!(reset.observation, br#"{"metadata":{},"echoed_message":"ready","message_length":0}"#);
    let outcome = env.step(r#"{"message": "h\u00e9llo \ud83d\ude00"}"#.as_bytes()).expect("a step");
    assert_eq!(String::from_utf8_lossy(&outcome.observation), r#"{"metadata":{},"echoed_message":"héllo 😀","message_length":7}"#);
    assert_eq!(outcome.reward, Some(7.0 * 0.1));
    assert_eq!(state(&*env), json!({"episode_id": null, "step_count": 1}));
    // A key that occurs twice counts as in Python: the last one.
    let twice = env.step(br#"{"message": "a", "message": "b"}"#).expect("a step");
    assert_eq!(twice.observation, br#"{"metadata":{},"echoed_message":"b","message_length":1}"#);
    assert_eq!(
        problems(&mut *env, r#"{"message": 5}"#),
        [Problem::new("string_type", vec!["message".into()], "Input should be a valid string", json!(5))]
    );
}

#[test]
fn cartpole_and_grid_world_name_their_choices() {
    let mut pole = (find("cartpole").expect("cartpole").make)();
    let early = pole.step(br#"{"action": 1}"#);
    assert_eq!(early, Err(EnvError::Failed("`cartpole` needs a reset before its first step".into())));
    pole.reset(&ResetArgs::default()).expect("a reset");
    for action in ["2", "-1", "0.5", "\"1\"", "true", "1e300"] {
        let problems = problems(&mut *pole, &format!("{{\"action\": {action}}}"));
        let texts: Vec<String> = problems.iter().map(Problem::to_string).collect();
        assert_eq!(texts, ["action: Input should be 0 or 1"], "{action}");
    }
    let mut grid = (find("grid_world").expect("grid_world").make)();
    grid.reset(&ResetArgs::default()).expect("a reset");
    assert_eq!(problems(&mut *grid, r#"{"action": "up"}"#)[0].msg, "Input should be 'UP', 'DOWN', 'LEFT' or 'RIGHT'");
}

#[test]
fn grid_world_ends_at_the_goal_and_has_walls() {
    let mut env = (find("grid_world").expect("grid_world").make)();
    env.reset(&ResetArgs::default()).expect("a reset");
    let (wall, reward, done) = step(&mut *env, &json!({"action": "UP"})).expect("a step");
    assert_eq!((&wall["x"], &wall["y"], reward, done), (&json!(0), &json!(0), Some(-0.1), false));
    let way = ["DOWN", "DOWN", "DOWN", "DOWN", "DOWN", "RIGHT", "RIGHT", "RIGHT"];
    for action in way {
        assert!(!step(&mut *env, &json!({"action": action})).expect("a step").2);
    }
    let (goal, reward, done) = step(&mut *env, &json!({"action": "RIGHT"})).expect("a step");
    assert_eq!((&goal["x"], &goal["y"], &goal["goal"], reward, done), (&json!(4), &json!(4), &json!([4, 4]), Some(1.0), true));
    env.reset(&ResetArgs::default()).expect("a reset");
    let (again, ..) = step(&mut *env, &json!({"action": "LEFT"})).expect("a step");
    assert_eq!((&again["x"], &again["y"]), (&json!(0), &json!(0)));
}

#[test]
fn spaces_are_told_where_values_are_single_tensors() {
    for descriptor in all() {
        let mut env = (descriptor.make)();
        let spaces = descriptor.spaces.map(|spaces| spaces());
        let schemas = [(descriptor.action)(), (descriptor.observation)()];
        let Some(spaces) = spaces else {
            let failed = Err(EnvError::Failed("this environment has no raw values".into()));
            assert_eq!(env.reset_raw(&ResetArgs::default(), &mut []), failed);
            assert_eq!(env.step_raw(b"", &mut []), failed);
            continue;
        };
        for (space, schema, key) in [(spaces.action, &schemas[0], "action"), (spaces.observation, &schemas[1], "observation")] {
            let told = &schema["properties"][key]["x-space"];
            assert_eq!(told["dtype"], space.dtype.name(), "{}", descriptor.name);
            assert_eq!(told.get("shape").unwrap_or(&json!([])), &json!(space.shape));
        }
        let mut seen = vec![0; spaces.observation.bytes()];
        env.reset_raw(&ResetArgs::default(), &mut seen).expect("a reset");
        env.step_raw(&vec![0; spaces.action.bytes()], &mut seen).expect("a step");
    }
    assert!(find("cartpole").is_some_and(|descriptor| descriptor.spaces.is_some()));
}
