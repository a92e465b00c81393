//! [`Control`] by Zenoh: discovery, mutual TLS, liveliness and queries are its own.
//!
//! ```text
//! atta/CLUSTER/node/NAME   liveliness token of a member
//! atta/CLUSTER/ask/NAME    queries to it
//! ```
//! All other keys are refused by the access control, from outside and to outside.

use std::{
    fmt::Write as _,
    net::SocketAddr,
    sync::{Arc, Mutex, OnceLock, PoisonError},
    time::Duration,
};

use base64::{Engine as _, prelude::BASE64_STANDARD};
use zenoh::{
    Config, Session, Wait,
    liveliness::LivelinessToken,
    pubsub::Subscriber,
    query::Queryable,
    sample::{Sample, SampleKind},
};

use crate::key::Identity;

use super::{Answerer, Change, Control, ControlError, MAX_MESSAGE, NodeName, Watcher};

/// How long a session waits for what it sends before it takes the peer for gone.
const WAIT_BEFORE_CLOSE_US: u64 = 500_000;
/// How long nodes that have announced themselves are asked for.
const MEMBERS_DEADLINE: Duration = Duration::from_secs(1);

/// How a node reaches the others.
#[derive(Clone, Debug)]
pub struct Network {
    /// What this node shows to others, and knows them by.
    pub identity: Identity,
    /// Addresses to listen on; port 0: any.
    pub listen: Vec<SocketAddr>,
    /// Addresses of other nodes, which are dialled again until they answer.
    pub peers: Vec<SocketAddr>,
    /// Whether nodes are sought by multicast.
    pub discovers: bool,
    /// After how long a silent peer is taken for gone.
    pub lease: Duration,
}

/// A session of Zenoh.
pub struct ZenohControl {
    session: Session,
    cluster: String,
    name: NodeName,
    parts: Mutex<Parts>,
    answerer: Arc<OnceLock<Answerer>>,
}

/// What lives as long as the session.
#[derive(Default)]
struct Parts {
    token: Option<LivelinessToken>,
    queryable: Option<Queryable<()>>,
    watchers: Vec<Subscriber<()>>,
}

impl std::fmt::Debug for ZenohControl {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ZenohControl")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl ZenohControl {
    /// Opens a session; listens, dials and seeks peers in the background.
    ///
    /// # Errors
    /// [`ControlError::Network`]: an address that cannot be listened on, certificates that do not
    /// fit.
    pub fn open(network: &Network) -> Result<Self, ControlError> {
        let config = Config::from_json5(&config_json(network)).map_err(failure)?;
        Ok(Self {
            session: zenoh::open(config).wait().map_err(failure)?,
            cluster: network.identity.cluster().to_owned(),
            name: NodeName::new(network.identity.name())?,
            parts: Mutex::default(),
            answerer: Arc::default(),
        })
    }

    fn key(&self, kind: &str, name: &str) -> String {
        format!("atta/{}/{kind}/{name}", self.cluster)
    }

    fn parts(&self) -> std::sync::MutexGuard<'_, Parts> {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Control for ZenohControl {
    fn announce(&self) -> Result<(), ControlError> {
        if self.members()?.contains(&self.name) {
            return Err(ControlError::Taken(self.name.clone()));
        }
        let liveliness = self.session.liveliness();
        let token = liveliness.declare_token(self.key("node", self.name.as_str()));
        self.parts().token = Some(token.wait().map_err(failure)?);
        Ok(())
    }

    fn members(&self) -> Result<Vec<NodeName>, ControlError> {
        let liveliness = self.session.liveliness();
        let tokens = liveliness
            .get(self.key("node", "*"))
            .timeout(MEMBERS_DEADLINE);
        let tokens = tokens.wait().map_err(failure)?;
        let mut names: Vec<NodeName> = std::iter::from_fn(|| tokens.recv().ok())
            .filter_map(|reply| name_of(reply.result().ok()?))
            .collect();
        names.sort();
        names.dedup();
        Ok(names)
    }

    fn ask(
        &self,
        node: &NodeName,
        question: &[u8],
        deadline: Duration,
    ) -> Result<Vec<u8>, ControlError> {
        check_length(question.len())?;
        let query = self.session.get(self.key("ask", node.as_str()));
        let replies = query.payload(question).timeout(deadline).wait();
        let replies = replies.map_err(failure)?;
        let answer = std::iter::from_fn(|| replies.recv().ok()).find_map(|reply| {
            let sample = reply.result().ok()?;
            Some((
                sample.payload().len(),
                sample.payload().to_bytes().into_owned(),
            ))
        });
        let Some((n, answer)) = answer else {
            let node = node.clone();
            return Err(ControlError::Silent { node, deadline });
        };
        check_length(n)?;
        Ok(answer)
    }

    fn answer(&self, answerer: Answerer) -> Result<(), ControlError> {
        if self.answerer.set(answerer).is_err() {
            return Err(ControlError::Network(
                "questions are answered already".to_owned(),
            ));
        }
        let answerer = Arc::clone(&self.answerer);
        let queryable = self
            .session
            .declare_queryable(self.key("ask", self.name.as_str()));
        let queryable = queryable.callback(move |query| {
            let question = query.payload().map(|p| p.to_bytes().into_owned());
            let Some(question) = question.filter(|q| q.len() <= MAX_MESSAGE) else {
                return;
            };
            if let Some(answerer) = answerer.get() {
                // An answer that cannot be sent is silence, which the node that asks expects.
                let _ = query.reply(query.key_expr(), answerer(&question)).wait();
            }
        });
        self.parts().queryable = Some(queryable.wait().map_err(failure)?);
        Ok(())
    }

    fn watch(&self, watcher: Watcher) -> Result<(), ControlError> {
        let liveliness = self.session.liveliness();
        let tokens = liveliness
            .declare_subscriber(self.key("node", "*"))
            .history(true);
        let tokens = tokens.callback(move |sample| {
            let Some(name) = name_of(&sample) else { return };
            watcher(match sample.kind() {
                SampleKind::Put => Change::Joined(name),
                SampleKind::Delete => Change::Left(name),
            });
        });
        let tokens = tokens.wait().map_err(failure)?;
        self.parts().watchers.push(tokens);
        Ok(())
    }

    fn close(&self) {
        let parts = std::mem::take(&mut *self.parts());
        drop(parts);
        // It waits for peers that do not take their last message; nothing depends on its result.
        let _ = self.session.close().wait();
    }
}

/// The node that a sample is about, by the last part of its key.
fn name_of(sample: &Sample) -> Option<NodeName> {
    let (_, name) = sample.key_expr().as_str().rsplit_once('/')?;
    NodeName::new(name).ok()
}

fn check_length(n: usize) -> Result<(), ControlError> {
    match n <= MAX_MESSAGE {
        true => Ok(()),
        false => Err(ControlError::TooLong { n }),
    }
}

fn failure(error: impl std::fmt::Display) -> ControlError {
    ControlError::Network(error.to_string())
}

/// Zenoh's configuration: peers by TLS only, with certificates on both sides, and no key but ours.
fn config_json(network: &Network) -> String {
    let endpoints = |addresses: &[SocketAddr]| {
        let mut list = String::new();
        for address in addresses {
            let _ = write!(list, "\"tls/{address}\",");
        }
        list
    };
    let identity = &network.identity;
    format!(
        r#"{{
  mode: "peer",
  listen: {{ endpoints: [{listen}], exit_on_failure: true }},
  connect: {{ endpoints: [{peers}], exit_on_failure: false }},
  open: {{ return_conditions: {{ connect_scouted: false, declares: true }} }},
  scouting: {{ multicast: {{ enabled: {discovers} }}, gossip: {{ enabled: true }} }},
  adminspace: {{ enabled: false }},
  transport: {{
    unicast: {{ accept_timeout: 3000, accept_pending: 8, max_sessions: 64, max_links: 1 }},
    link: {{
      protocols: ["tls"],
      tx: {{
        lease: {lease},
        keep_alive: 4,
        queue: {{ congestion_control: {{ block: {{ wait_before_close: {wait} }} }} }},
      }},
      rx: {{ max_message_size: {max_message} }},
      tls: {{
        root_ca_certificate_base64: {authority},
        listen_certificate_base64: {certificate},
        listen_private_key_base64: {key},
        connect_certificate_base64: {certificate},
        connect_private_key_base64: {key},
        enable_mtls: true,
        verify_name_on_connect: false,
        close_link_on_expiration: false,
      }},
    }},
    shared_memory: {{ enabled: false }},
  }},
  access_control: {{
    enabled: true,
    default_permission: "deny",
    rules: [{{
      id: "own",
      messages: ["put", "declare_subscriber", "query", "reply", "declare_queryable",
        "liveliness_token", "liveliness_query", "declare_liveliness_subscriber"],
      flows: ["egress", "ingress"],
      permission: "allow",
      key_exprs: ["atta/{cluster}/**"],
    }}],
    subjects: [{{ id: "members" }}],
    policies: [{{ rules: ["own"], subjects: ["members"] }}],
  }},
}}"#,
        listen = endpoints(&network.listen),
        peers = endpoints(&network.peers),
        discovers = network.discovers,
        lease = network.lease.as_millis(),
        wait = WAIT_BEFORE_CLOSE_US,
        max_message = 256 << 10,
        authority = pem("CERTIFICATE", identity.authority_der()),
        certificate = pem("CERTIFICATE", identity.leaf_der()),
        key = pem("PRIVATE KEY", identity.secret_key_der()),
        cluster = identity.cluster(),
    )
}

/// A JSON string with PEM in base64, as Zenoh takes certificates and keys.
fn pem(label: &str, der: &[u8]) -> String {
    let body = BASE64_STANDARD.encode(der);
    let pem = format!("-----BEGIN {label}-----\n{body}\n-----END {label}-----\n");
    format!("{:?}", BASE64_STANDARD.encode(pem))
}
