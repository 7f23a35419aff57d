//! What a server serves: a host, its names, its schemas and its contract.

use envharness_spec::{Contract, ContractError, Validator};
use envharness_wire::reply::Validation;
use envharness_worker::{Host, NativeHost, Pool};
use serde_json::{Value, json};
use tokio::sync::OnceCell;

/// Where the environment came from.
#[derive(Debug, Clone, Default)]
pub struct Origin {
    /// The version of the env package.
    pub version: Option<String>,
    /// The name of the env package, where it has one of its own.
    pub package: Option<String>,
    /// The digest of the lock its workers run from.
    pub lock: Option<String>,
}

/// A loaded target.
#[derive(Debug)]
pub struct Served {
    /// What hosts its sessions.
    pub host: Host,
    /// The public name, as `/list_environments` has it.
    pub name: String,
    /// The class.
    pub class: String,
    /// The contract.
    pub contract: Contract,
    /// The contract's digest.
    pub digest: String,
    /// The body of `/schema`.
    pub schema: String,
    /// How error items are written.
    pub validation: Validation,
    /// Judges actions where the contract does.
    pub validator: Option<Validator>,
    /// Where it came from.
    pub origin: Origin,
    /// What a fresh instance said of itself.
    pub(crate) metadata: OnceCell<bytes::Bytes>,
    /// How many times the target had been loaded before, while authoring.
    pub generation: u32,
}

impl Served {
    /// Serves a pool.
    ///
    /// # Errors
    /// [`ContractError`] for schemas that are none.
    pub fn pool(pool: Pool, origin: Origin, strict: bool, generation: u32) -> Result<Self, ContractError> {
        let loaded = pool.loaded().clone();
        let schemas = loaded.schema;
        let parts = [&schemas.action, &schemas.observation, &schemas.reset, &schemas.state];
        let contract = contract(&origin, &loaded.name, parts)?;
        let schema = json!({"action": schemas.action, "observation": schemas.observation, "state": schemas.state,
            "reset_observation": schemas.reset_observation});
        let validator = if strict { Some(Validator::compile(&contract.action)?) } else { None };
        Ok(Self {
            name: loaded.name,
            class: loaded.class,
            digest: contract.digest().to_string(),
            contract,
            schema: schema.to_string(),
            validation: Validation { pydantic: loaded.pydantic },
            validator,
            origin,
            metadata: OnceCell::new(),
            generation,
            host: Host::Pool(pool),
        })
    }

    /// Serves an environment that is compiled in.
    ///
    /// # Errors
    /// [`ContractError`] for schemas that are none.
    pub fn native(host: NativeHost) -> Result<Self, ContractError> {
        let descriptor = host.descriptor();
        let (action, observation) = ((descriptor.action)(), (descriptor.observation)());
        let (reset, state) = ((descriptor.reset)(), (descriptor.state)());
        let origin = Origin { version: Some(env!("CARGO_PKG_VERSION").to_owned()), ..Origin::default() };
        let contract = contract(&origin, descriptor.name, [&action, &observation, &reset, &state])?;
        let schema = json!({"action": action, "observation": observation, "state": state, "reset_observation": observation});
        Ok(Self {
            name: descriptor.name.to_owned(),
            class: descriptor.class_name.to_owned(),
            digest: contract.digest().to_string(),
            contract,
            schema: schema.to_string(),
            validation: Validation::default(),
            validator: None,
            origin,
            metadata: OnceCell::new(),
            generation: 0,
            host: Host::Native(host),
        })
    }
}

impl Served {
    /// Whether actions and observations are single tensors each, which can travel raw.
    pub(crate) fn is_tensor(&self) -> bool {
        let kind = |schema: &Value, key: &str| {
            let kind = schema["properties"][key]["x-space"]["kind"].as_str();
            matches!(kind, Some("Box" | "Discrete" | "MultiDiscrete" | "MultiBinary"))
        };
        kind(&self.contract.action, "action") && kind(&self.contract.observation, "observation")
    }
}

fn contract(origin: &Origin, name: &str, [action, observation, reset, state]: [&Value; 4]) -> Result<Contract, ContractError> {
    let contract = Contract {
        name: origin.package.clone().unwrap_or_else(|| name.to_owned()),
        version: origin.version.clone().unwrap_or_else(|| "1.0.0".to_owned()),
        action: action.clone(),
        observation: observation.clone(),
        reset: reset.clone(),
        state: state.clone(),
    };
    contract.check()?;
    Ok(contract)
}
