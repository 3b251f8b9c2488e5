//! Gives every resource of the inventory its server, and takes it away again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use device_class::name::ResourceName;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use crate::api::deviceplugin::DevicePluginOptions;
use crate::catalog::{Inventory, Resource};
use crate::nudge::Nudged;
use crate::server::{self, Context, ServeError};
use crate::service::options;

/// How long servers may take to end, altogether.
const END: Duration = Duration::from_millis(700);

/// A server that failed starts again after so long.
const RESTART: Duration = Duration::from_secs(1);

/// All servers of this process.
pub struct Supervisor {
    context: Context,
    nudge: Nudged,
    running: BTreeMap<ResourceName, Running>,
    servers: JoinSet<Result<(), ServeError>>,
}

struct Running {
    /// The kubelet reads them when it connects, and never again.
    options: DevicePluginOptions,
    /// Dropped, it ends the server.
    resource: watch::Sender<Arc<Resource>>,
    task: Id,
}

impl Supervisor {
    /// No server yet. `nudge` changes when something happens in the kubelet's
    /// directory.
    pub fn new(context: Context, nudge: Nudged) -> Self {
        let (running, servers) = (BTreeMap::new(), JoinSet::new());
        Supervisor {
            context,
            nudge,
            running,
            servers,
        }
    }

    /// Serves what `inventory` holds, until its sender is dropped.
    pub async fn run(&mut self, mut inventory: watch::Receiver<Inventory>) {
        loop {
            let wanted = inventory.borrow_and_update().clone();
            self.adjust(&wanted);
            tokio::select! {
                changed = inventory.changed() => if changed.is_err() { return },
                Some(ended) = self.servers.join_next_with_id() => self.ended(ended).await,
            }
        }
    }

    /// Ends all servers: their streams end, their sockets go.
    pub async fn stop(&mut self) {
        self.running.clear();
        let all = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(END, all).await.is_err() {
            // A client keeps its connection: dropping the task removes the socket.
            self.servers.shutdown().await;
        }
    }

    fn adjust(&mut self, wanted: &Inventory) {
        let renewed = |name: &ResourceName, running: &Running| {
            let wanted = wanted.get(name);
            wanted.is_some_and(|wanted| options(wanted) != running.options)
        };
        self.running.retain(|name, running| !renewed(name, running));
        self.running.retain(|name, _| {
            let stays = wanted.contains_key(name);
            if !stays {
                tracing::info!("{name}: withdrawn, no device is left");
                self.context.metrics.withdrawn(name);
            }
            stays
        });
        for (name, resource) in wanted {
            match self.running.get(name) {
                Some(running) => {
                    running.resource.send_if_modified(|known| {
                        let changed = known != resource;
                        *known = Arc::clone(resource);
                        changed
                    });
                }
                None => self.start(name.clone(), Arc::clone(resource)),
            }
        }
    }

    fn start(&mut self, name: ResourceName, resource: Arc<Resource>) {
        tracing::info!(
            "{name}: {} of class {}",
            devices(&resource),
            resource.terms.class
        );
        let options = options(&resource);
        let (resource, receiver) = watch::channel(resource);
        let server = server::serve(receiver, self.context.clone(), self.nudge.clone());
        let task = self.servers.spawn(server).id();
        self.running.insert(
            name,
            Running {
                options,
                resource,
                task,
            },
        );
    }

    /// A server that was told to end has no entry any more. One that has
    /// failed, and the next `adjust` starts it again.
    async fn ended(&mut self, ended: Result<(Id, Result<(), ServeError>), JoinError>) {
        let (task, reason) = match ended {
            Ok((task, Ok(()))) => (task, "ended without a reason".to_owned()),
            Ok((task, Err(error))) => (task, error.to_string()),
            Err(error) => (error.id(), error.to_string()),
        };
        let failed = self
            .running
            .iter()
            .find(|(_, running)| running.task == task);
        if let Some(name) = failed.map(|(name, _)| name.clone()) {
            tracing::error!("{name}: server failed, starting it again: {reason}");
            self.running.remove(&name);
            tokio::time::sleep(RESTART).await;
        }
    }
}

fn devices(resource: &Resource) -> String {
    match resource.devices().len() {
        1 => "1 device".to_owned(),
        count => format!("{count} devices"),
    }
}
