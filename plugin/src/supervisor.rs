//! Starts a server for each resource of the inventory, and ends the server when the resource
//! is gone.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use device_class::name::ResourceName;
use host_inventory::Notifications;
use tokio::sync::watch;
use tokio::task::{Id, JoinError, JoinSet};

use crate::catalog::{Resource, Resources};
use crate::server::{self, Context};

/// The time that all servers together may take to end.
const END: Duration = Duration::from_millis(700);

/// The delay before a failed server is restarted.
const RESTART: Duration = Duration::from_secs(1);

type Serving = Pin<Box<dyn Future<Output = anyhow::Result<()>> + Send>>;

pub(crate) struct Supervisor {
    serve: Box<dyn Fn(watch::Receiver<Arc<Resource>>) -> Serving>,
    running: BTreeMap<ResourceName, Running>,
    servers: JoinSet<anyhow::Result<()>>,
    /// The resources whose servers failed and are restarted next.
    failed: BTreeSet<ResourceName>,
}

struct Running {
    /// The channel with the resource's current value. The server ends when this sender is
    /// dropped.
    resource: watch::Sender<Arc<Resource>>,
    task: Id,
}

impl Supervisor {
    /// Creates a supervisor without servers. `socket_changes` notifies of changes in the
    /// kubelet's directory.
    pub(crate) fn new(context: Context, socket_changes: Notifications) -> Self {
        let serve = move |resource| -> Serving {
            Box::pin(server::serve(
                resource,
                context.clone(),
                socket_changes.clone(),
            ))
        };
        Supervisor::with(serve)
    }

    fn with(serve: impl Fn(watch::Receiver<Arc<Resource>>) -> Serving + 'static) -> Self {
        Supervisor {
            serve: Box::new(serve),
            running: BTreeMap::new(),
            servers: JoinSet::new(),
            failed: BTreeSet::new(),
        }
    }

    /// Serves the resources of `inventory`, until its sender is dropped.
    pub(crate) async fn run(&mut self, mut inventory: watch::Receiver<Resources>) {
        loop {
            let wanted = inventory.borrow_and_update().clone();
            self.adjust(&wanted);
            tokio::select! {
                changed = inventory.changed() => if changed.is_err() { return },
                Some(ended) = self.servers.join_next_with_id() => self.ended(ended),
            }
        }
    }

    /// Ends all servers: their streams end and their sockets are removed.
    pub(crate) async fn stop(&mut self) {
        self.running.clear();
        let all = async { while self.servers.join_next().await.is_some() {} };
        if tokio::time::timeout(END, all).await.is_err() {
            // A server waits for its clients, which keep their connections. To drop its task
            // removes its socket nevertheless.
            self.servers.shutdown().await;
        }
    }

    fn adjust(&mut self, wanted: &Resources) {
        self.running.retain(|name, _| {
            let stays = wanted.contains_key(name);
            if !stays {
                tracing::info!(resource = %name, "no devices left, unregistering");
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
        let devices = resource.devices().len();
        tracing::info!(resource = %name, class = %resource.terms.class, devices, "serving");
        let (resource, receiver) = watch::channel(resource);
        let server = (self.serve)(receiver);
        let wait = match self.failed.remove(&name) {
            true => RESTART,
            false => Duration::ZERO,
        };
        let server = async move {
            tokio::time::sleep(wait).await;
            server.await
        };
        let task = self.servers.spawn(server).id();
        self.running.insert(name, Running { resource, task });
    }

    /// Handles the end of a server. A server that was ended on purpose has no entry in
    /// `running` any more. A server with an entry has failed, and the next `adjust` restarts
    /// it.
    fn ended(&mut self, ended: Result<(Id, anyhow::Result<()>), JoinError>) {
        let (task, reason) = match ended {
            Ok((task, Ok(()))) => (task, "it ended unexpectedly".to_owned()),
            Ok((task, Err(error))) => (task, format!("{error:#}")),
            Err(error) => (error.id(), error.to_string()),
        };
        let failed = self
            .running
            .iter()
            .find(|(_, running)| running.task == task);
        if let Some(name) = failed.map(|(name, _)| name.clone()) {
            tracing::error!(resource = %name, "server failed, restarting it: {reason}");
            self.running.remove(&name);
            self.failed.insert(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::catalog::fixture::{device, resource};

    #[tokio::test]
    async fn a_server_that_fails_in_any_way_is_restarted() {
        let starts = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&starts);
        let serve = move |resource: watch::Receiver<Arc<Resource>>| -> Serving {
            let start = count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                let _resource = resource;
                match start {
                    0 => Err(anyhow::anyhow!("its half ended")),
                    // As in a build for tests, where a panic is one task's end.
                    1 => panic!("a fault of ours"),
                    2 => Ok(()),
                    _ => std::future::pending().await,
                }
            })
        };
        let mut supervisor = Supervisor::with(serve);
        let npus = Arc::new(resource(vec![device("a")]));
        let (_inventory, receiver) = watch::channel(Resources::from([(npus.name.clone(), npus)]));
        let last = async {
            while starts.load(Ordering::Relaxed) < 4 {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::select! {
            () = supervisor.run(receiver) => panic!("it should run on"),
            () = tokio::time::sleep(60 * RESTART) => panic!("it was not restarted"),
            () = last => {}
        }
    }
}
