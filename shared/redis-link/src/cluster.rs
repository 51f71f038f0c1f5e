//! A cluster. Commands go to the nodes that serve their slots, in parallel, and follow a slot that moves.
//!
//! Every node has a connection and a breaker of its own, so a lost master affects only the readers whose views it
//! holds. The cluster connection of the `redis` crate sends no commands while it looks for a lost node. All operations
//! are idempotent, so they may be repeated on another node.

mod attempt;

use std::{
    collections::{BTreeMap, HashMap},
    sync::{Arc, MutexGuard, PoisonError, atomic::Ordering},
    time::{Duration, Instant},
};

use arc_swap::ArcSwapOption;
use futures::{
    FutureExt as _,
    future::{join_all, select_ok},
};
use rand::seq::IteratorRandom;
use redis::{Client, ConnectionAddr, ConnectionInfo, RedisError, TlsCertificates, Value};
use tokio::sync::Mutex;
use tracing::{debug, warn};

use self::attempt::{Open, Outcome, Responses, Role, Way};
use crate::{
    LinkError, Result,
    bundle::{Bundle, Consistency, Reply, work_of},
    epoch::Epoch,
    error::{is_unknown_function, link_error},
    iam::Handshake,
    node::Node,
    options::{RedisOptions, open},
    topology::{Address, Member, Topology, slot_of},
};

/// The maximum weight of one round trip to a node, in users or commands. Other callers are served between two trips.
const WEIGHT_PER_TRIP: usize = 50;

/// The maximum number of attempts for one command. Redirections and pauses for a moving slot count.
const ROUNDS: u32 = 8;

/// The unit of the pause before another attempt at a moving slot. The n-th pause has n units.
const PAUSE: Duration = Duration::from_millis(5);

/// The shortest time between two reads of the map, and the age at which the map is read again.
const REFRESH_AFTER: Duration = Duration::from_millis(100);
const REFRESH_WITHIN: Duration = Duration::from_secs(60);

/// The number of nodes from which a new map is read, in addition to the seeds.
const ASKED: usize = 4;

pub(crate) struct Cluster {
    /// The connection settings of a node, without its address.
    template: ConnectionInfo,
    certificates: Option<TlsCertificates>,
    handshake: Handshake,
    seeds: Vec<Arc<Member>>,
    /// The nodes of the map, and those that redirections have named since, with their connections and breakers.
    nodes: std::sync::Mutex<HashMap<Address, Node>>,
    topology: ArcSwapOption<Topology>,
    /// Held while the map is read. The time of the last failure, if the last read failed.
    refreshing: Mutex<Option<Instant>>,
    /// Whether [`Consistency::Eventual`] allows replicas.
    pub(crate) replica_reads: bool,
    paced: bool,
    /// The time from the start of a call within which a new attempt may begin.
    patience: Duration,
    /// The source of the function library, for nodes that do not have it.
    library: Arc<str>,
}

/// The bundles that need another attempt after a round, and what must happen before it.
struct Again {
    open: Vec<Open>,
    refresh: bool,
    pause: bool,
}

type Group = (Arc<Member>, Role, Vec<Open>);

impl Cluster {
    /// Prepares the cluster without any connection. Each seed leads to all nodes.
    pub(crate) fn new(
        seeds: Vec<Client>,
        handshake: Handshake,
        options: &RedisOptions,
        library: Arc<str>,
    ) -> Result<Self, RedisError> {
        let none = || RedisError::from((redis::ErrorKind::InvalidClientConfig, "the URL of a cluster needs a host and a port"));
        let template = seeds.first().ok_or_else(none)?.get_connection_info().clone();
        let seeds = seeds.into_iter().map(|client| {
            let (ConnectionAddr::Tcp(host, port) | ConnectionAddr::TcpTls { host, port, .. }) =
                client.get_connection_info().addr()
            else {
                return Err(none());
            };
            let address = Address { host: host.clone(), port: *port };
            Ok(Member::new(address, Node::new(client, handshake.clone(), true, options.paced, library.clone())))
        });
        let seeds = seeds.collect::<Result<_, _>>()?;
        let (nodes, topology, refreshing) = (Default::default(), ArcSwapOption::empty(), Mutex::default());
        let certificates = options.certificates()?;
        let RedisOptions { replica_reads, paced, response_timeout: patience, .. } = *options;
        Ok(Self {
            template,
            certificates,
            handshake,
            seeds,
            nodes,
            topology,
            refreshing,
            replica_reads,
            paced,
            patience,
            library,
        })
    }

    /// Runs each bundle on the node of its slot, bundles of one node in their order. Returns the replies in order.
    pub(crate) async fn run(self: &Arc<Self>, operation: &'static str, bundles: Vec<Bundle>) -> Vec<Result<Reply>> {
        // The time of bulk work is mostly its wait for its turn.
        let bulk = bundles.iter().any(|bundle| bundle.bulk.is_some());
        let until = (!bulk).then(|| Instant::now() + self.patience);
        let mut responses: Responses = bundles.iter().map(|_| None).collect();
        let open = bundles.into_iter().enumerate().map(|(index, bundle)| {
            let slot = slot_of(&bundle.commands);
            Open { index, slot, bundle, way: Way::Map, failed: None }
        });
        let mut open: Vec<Open> = open.collect();
        for round in 1.. {
            let topology = match self.topology(operation).await {
                Ok(topology) => topology,
                Err(error) => {
                    let detail = error.to_string();
                    for open in open {
                        responses[open.index] = Some(Err(unavailable(operation, &detail)));
                    }
                    break;
                }
            };
            let Again { open: again, refresh, pause } = self.round(operation, &topology, open, &mut responses).await;
            if again.is_empty() || round == ROUNDS || until.is_some_and(|until| Instant::now() > until) {
                if refresh {
                    self.refresh_behind(&topology);
                }
                again.into_iter().for_each(|open| open.give_up(operation, "the slot is moving", &mut responses));
                break;
            }
            if refresh {
                self.refresh(&topology).await;
            }
            if pause {
                tokio::time::sleep(PAUSE * round).await;
            }
            open = again;
        }
        let unsent = || Err(unavailable(operation, "no request was sent"));
        responses.into_iter().map(|response| response.unwrap_or_else(unsent)).collect()
    }

    /// Sends every open bundle once. Adds the final responses.
    async fn round(&self, operation: &'static str, topology: &Topology, open: Vec<Open>, responses: &mut Responses) -> Again {
        let (groups, unserved) = self.group(topology, open);
        let mut again = Again { open: Vec::new(), refresh: !unserved.is_empty(), pause: false };
        unserved.into_iter().for_each(|open| open.give_up(operation, "no node serves the slot", responses));
        let outcomes = join_all(groups.into_iter().map(|group| self.send(operation, group))).await;
        for (address, mut open, outcome) in outcomes.into_iter().flatten() {
            match outcome {
                Outcome::Done(response) => responses[open.index] = Some(response),
                Outcome::Again { way, refresh, pause, failed } => {
                    again.refresh |= refresh;
                    again.pause |= pause;
                    open.way = way;
                    open.failed = failed.map(|error| (address, error));
                    again.open.push(open);
                }
            }
        }
        again
    }

    /// Checks that every primary responds.
    pub(crate) async fn ping(self: &Arc<Self>, operation: &'static str) -> Result<()> {
        let topology = self.topology(operation).await?;
        let ping = [redis::cmd("PING")];
        let pings = topology.primaries();
        let responses = join_all(pings.iter().map(|member| member.node.send(operation, &ping))).await;
        let responses: Result<Vec<Reply>> = responses.into_iter().collect();
        responses.map(drop).inspect_err(|_| self.refresh_behind(&topology))
    }

    /// One step of a walk over the keys of one primary after another. The first byte of the cursor numbers the primary.
    /// If a node joins or leaves during a walk, the walk may miss keys or return them twice.
    pub(crate) async fn scan(
        self: &Arc<Self>,
        operation: &'static str,
        cursor: u64,
        options: &[&str],
    ) -> Result<(u64, Vec<Vec<u8>>)> {
        const NODE: u32 = 56;
        let (place, of_node) = (cursor >> NODE, cursor & ((1 << NODE) - 1));
        let primaries = self.topology(operation).await?.primaries();
        let Some(member) = primaries.get(place as usize) else { return Ok((0, Vec::new())) };
        let (next, found) = member.node.scan(operation, of_node, options).await?;
        let is_last = place as usize + 1 == primaries.len();
        let next = match next {
            0 if is_last => 0,
            0 => (place + 1) << NODE,
            next => place << NODE | next,
        };
        Ok((next, found))
    }

    /// Groups bundles by their node, in order. No node serves those of the second list, or only the one that failed.
    fn group(&self, topology: &Topology, open: Vec<Open>) -> (Vec<Group>, Vec<Open>) {
        let (mut groups, mut unserved) = (BTreeMap::<(Address, Role), Group>::new(), Vec::new());
        for open in open {
            let has_failed = |member: &Member| open.failed.as_ref().is_some_and(|(address, _)| *address == member.address);
            match self.way(topology, &open).filter(|(member, _)| !has_failed(member)) {
                Some((member, role)) => {
                    let group = groups.entry((member.address.clone(), role));
                    group.or_insert_with(|| (member, role, Vec::new())).2.push(open);
                }
                None => unserved.push(open),
            }
        }
        (groups.into_values().collect(), unserved)
    }

    fn way(&self, topology: &Topology, open: &Open) -> Option<(Arc<Member>, Role)> {
        match &open.way {
            Way::Moved(address) => Some((self.member(topology, address)?, Role::Primary)),
            Way::Ask(address) => Some((self.member(topology, address)?, Role::Importing)),
            Way::Map | Way::Primary => {
                // A bundle without a key may go to any node.
                let range = topology.range(open.slot.unwrap_or_default())?;
                let old = self.replica_reads && open.bundle.consistency == Consistency::Eventual && open.way == Way::Map;
                // Without its primary's epoch, a replica's views of another epoch cannot be recognized.
                let replica = range.primary.node.epoch().filter(|_| old).zip(range.replicas.iter().choose(&mut rand::rng()));
                Some(match replica {
                    Some((epoch, replica)) => (replica.clone(), Role::Replica(epoch)),
                    None => (range.primary.clone(), Role::Primary),
                })
            }
        }
    }

    /// Sends a node its bundles, some in each trip.
    async fn send(&self, operation: &'static str, (member, role, bundles): Group) -> Vec<(Address, Open, Outcome)> {
        let (mut sent, mut failed) = (Vec::with_capacity(bundles.len()), None::<String>);
        let mut bundles = bundles.into_iter().peekable();
        while bundles.peek().is_some() {
            let mut trip = Vec::new();
            let mut weight = 0;
            let weight_of = |open: &Open| open.bundle.bulk.unwrap_or(1);
            while let Some(open) = bundles.next_if(|open| trip.is_empty() || weight + weight_of(open) <= WEIGHT_PER_TRIP) {
                weight += weight_of(&open);
                trip.push(open);
            }
            let outcomes = match &failed {
                // The previous trip to this node failed.
                Some(detail) => Err(unavailable(operation, detail)),
                None => self.trip(operation, &member, role, &trip).await,
            };
            match outcomes {
                Ok(outcomes) => {
                    sent.extend(trip.into_iter().zip(outcomes).map(|(open, outcome)| (member.address.clone(), open, outcome)));
                }
                Err(error) => {
                    failed.get_or_insert_with(|| error.to_string());
                    let mut error = Some(error);
                    for open in trip {
                        let error = error.take().unwrap_or_else(|| unavailable(operation, "the node does not respond"));
                        let way = if role.is_replica() { Way::Primary } else { Way::Map };
                        let again = Outcome::Again { way, refresh: true, pause: false, failed: Some(error) };
                        sent.push((member.address.clone(), open, again));
                    }
                }
            }
        }
        sent
    }

    /// Makes one round trip. If the node lacks the function library, this loads it.
    async fn trip(&self, operation: &'static str, member: &Member, role: Role, bundles: &[Open]) -> Result<Vec<Outcome>> {
        let mut commands = Vec::new();
        let check = !role.is_replica() && !member.checked.load(Ordering::Relaxed);
        if check {
            commands.push(Epoch::command());
        }
        if role.is_replica() {
            // In every trip, because the connection may be new.
            commands.extend([redis::cmd("READONLY"), redis::cmd("ROLE")]);
        }
        for open in bundles {
            commands.extend((role == Role::Importing).then(|| redis::cmd("ASKING")));
            commands.extend(open.bundle.commands.iter().cloned());
        }
        let work = work_of(bundles.iter().map(|open| &open.bundle));
        let Reply { values, epoch } = member.node.send_paced(operation, &commands, work).await?;
        let mut responses = values.into_iter();
        if check {
            if responses.next().and_then(Epoch::of_value) != Some(epoch) || epoch == Epoch::NONE {
                // A replica became master on this connection. Records since then carry the previous epoch, so they
                // count as missing.
                warn!(node = %member.address, "a node took over from another; its views are rebuilt");
                member.node.learn_again().await;
                let again = |open: &Open| Outcome::Again { way: open.way.clone(), refresh: false, pause: false, failed: None };
                return Ok(bundles.iter().map(again).collect());
            }
            member.checked.store(true, Ordering::Relaxed);
        }
        let epoch = if let Role::Replica(primary) = role { primary } else { epoch };
        if role.is_replica() {
            responses.next();
            if !responses.next().is_some_and(|role| follows_its_primary(&role)) {
                let lagging = |_: &Open| Outcome::Again { way: Way::Primary, refresh: false, pause: false, failed: None };
                return Ok(bundles.iter().map(lagging).collect());
            }
        }
        let (mut load, mut outcomes) = (false, Vec::with_capacity(bundles.len()));
        for open in bundles {
            if role == Role::Importing {
                responses.next();
            }
            let response: Vec<Value> = responses.by_ref().take(open.bundle.commands.len()).collect();
            load |= response.iter().any(is_unknown_function);
            outcomes.push(Outcome::of(operation, Reply { values: response, epoch }, &open.way, role, &member.address));
        }
        if load {
            member.node.load_library().await?;
        }
        Ok(outcomes)
    }

    /// Returns the map. Reads it if there is none, and refreshes an old one in the background.
    async fn topology(self: &Arc<Self>, operation: &'static str) -> Result<Arc<Topology>> {
        if let Some(topology) = self.topology.load_full() {
            if topology.read_at.elapsed() > REFRESH_WITHIN {
                self.refresh_behind(&topology);
            }
            return Ok(topology);
        }
        let error = self.read(None).await.err();
        self.topology.load_full().ok_or_else(|| error.unwrap_or_else(|| unavailable(operation, "no map of the cluster")))
    }

    /// Reads the map again, unless it is newer than `seen` or was read a moment ago.
    async fn refresh(&self, seen: &Arc<Topology>) {
        if seen.read_at.elapsed() < REFRESH_AFTER {
            return;
        }
        if let Err(error) = self.read(Some(seen)).await {
            // An operation that needs the map returns an error.
            debug!(error = &error as &dyn std::error::Error, "the map of the cluster could not be read");
        }
    }

    /// The same in the background, unless a read of the map is in progress.
    fn refresh_behind(self: &Arc<Self>, seen: &Arc<Topology>) {
        if self.refreshing.try_lock().is_ok() {
            let (cluster, seen) = (self.clone(), seen.clone());
            tokio::spawn(async move { cluster.refresh(&seen).await });
        }
    }

    async fn read(&self, seen: Option<&Arc<Topology>>) -> Result<()> {
        let mut failed = self.refreshing.lock().await;
        let known = self.topology.load_full();
        if known.as_ref().map(Arc::as_ptr) != seen.map(Arc::as_ptr) {
            return Ok(());
        }
        if failed.is_some_and(|at| at.elapsed() < REFRESH_AFTER) {
            return Err(unavailable("topology", "no node returned a map a moment ago"));
        }
        let members = known.map(|topology| topology.members()).unwrap_or_default();
        let asked = members.into_iter().choose_multiple(&mut rand::rng(), ASKED).into_iter().chain(self.seeds.iter().cloned());
        let response = select_ok(asked.map(|member| self.ask(member).boxed())).await;
        *failed = response.is_err().then(Instant::now);
        let (topology, _) = response?;
        let members = topology.members();
        self.nodes().retain(|address, _| members.iter().any(|member| member.address == *address));
        debug!(nodes = members.len(), primaries = topology.primaries().len(), "the map of the cluster was read");
        self.topology.store(Some(Arc::new(topology)));
        Ok(())
    }

    /// Reads the map from one node.
    async fn ask(&self, asked: Arc<Member>) -> Result<Topology> {
        const OPERATION: &str = "topology";
        let command = [redis::cmd("CLUSTER").arg("SLOTS").clone()];
        let response = asked.node.send(OPERATION, &command).await?.values.pop().unwrap_or(Value::Nil);
        let response = response.extract_error().map_err(|error| link_error(OPERATION, error))?;
        let mut members = HashMap::<Address, Arc<Member>>::new();
        let find = |address: Address| match members.get(&address) {
            Some(member) => Some(member.clone()),
            None => {
                let member = Member::new(address.clone(), self.node(&address)?);
                members.insert(address, member.clone());
                Some(member)
            }
        };
        let topology = Topology::read(response, &asked.address.host, find).filter(|topology| !topology.primaries().is_empty());
        topology.ok_or_else(|| unavailable(OPERATION, "the cluster serves no slots"))
    }

    /// The node with this address, from the map or new.
    fn member(&self, topology: &Topology, address: &Address) -> Option<Arc<Member>> {
        let known = topology.members().into_iter().find(|member| member.address == *address);
        known.or_else(|| Some(Member::new(address.clone(), self.node(address)?)))
    }

    /// The connection to an address. Prepares one if there is none.
    fn node(&self, address: &Address) -> Option<Node> {
        if let Some(node) = self.nodes().get(address) {
            return Some(node.clone());
        }
        let Address { host, port } = address.clone();
        let addr = match self.template.addr() {
            ConnectionAddr::TcpTls { .. } => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            _ => ConnectionAddr::Tcp(host, port),
        };
        let node = open(self.template.clone().set_addr(addr), self.certificates.as_ref())
            .map(|client| Node::new(client, self.handshake.clone(), true, self.paced, self.library.clone()))
            .inspect_err(|error| warn!(%address, %error, "a node of the cluster cannot be used"))
            .ok()?;
        self.nodes().insert(address.clone(), node.clone());
        Some(node)
    }

    fn nodes(&self) -> MutexGuard<'_, HashMap<Address, Node>> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether a response to `ROLE` comes from a replica that is connected to its primary.
fn follows_its_primary(role: &Value) -> bool {
    let state = |part: &Value| matches!(part, Value::BulkString(state) if state == b"connected");
    matches!(role, Value::Array(parts) if parts.get(3).is_some_and(state))
}

fn unavailable(operation: &'static str, detail: &str) -> LinkError {
    LinkError::Unavailable { operation, source: detail.into() }
}
