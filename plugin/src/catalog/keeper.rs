//! Looks at the host again and again, and tells what is there now.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use device_class::DeviceClass;
use device_class::host::RealHost;
use tokio::sync::watch;

use super::{Classes, Inventory, Scan, changes, scan};

/// Where classes and devices are looked for.
#[derive(Debug, Clone)]
pub struct Source {
    /// The directories of class files; a later one masks an earlier one.
    pub classes: Vec<PathBuf>,
    /// The root of the host's tree.
    pub host_root: PathBuf,
}

/// Keeps the inventory up to date.
#[derive(Debug)]
pub struct Keeper {
    source: Source,
    classes: Arc<Vec<DeviceClass>>,
    inventory: watch::Sender<Inventory>,
    /// What was said already, so that it is said once.
    warnings: Vec<String>,
}

impl Keeper {
    /// Reads the classes and looks at the host for the first time.
    pub async fn start(source: Source) -> Self {
        let mut keeper = Keeper {
            source,
            classes: Arc::default(),
            inventory: watch::channel(Inventory::new()).0,
            warnings: Vec::new(),
        };
        keeper.load_classes();
        keeper.look().await;
        keeper
    }

    /// The inventory, and word of its changes.
    pub fn subscribe(&self) -> watch::Receiver<Inventory> {
        self.inventory.subscribe()
    }

    /// Looks at the host every `period`, and at once when `nudge` changes.
    pub async fn run(mut self, period: Duration, mut nudge: watch::Receiver<u64>) {
        loop {
            // A closed channel only means that nobody nudges.
            let nudged = async {
                if nudge.changed().await.is_err() {
                    std::future::pending::<()>().await;
                }
            };
            let _ = tokio::time::timeout(period, nudged).await;
            self.look().await;
        }
    }

    /// Reads the class files again, and says what is wrong with them.
    pub fn load_classes(&mut self) {
        let Classes { usable, errors } = Classes::load(&self.source.classes);
        for error in &errors {
            tracing::error!("class left out: {error}");
        }
        let names: Vec<&str> = usable.iter().map(|class| class.name.as_str()).collect();
        if names.is_empty() {
            let looked: Vec<String> = self
                .source
                .classes
                .iter()
                .map(|d| d.display().to_string())
                .collect();
            tracing::warn!(
                "no class in {}: nothing to advertise until there is one",
                looked.join(", ")
            );
        } else {
            tracing::info!("classes: {}", names.join(", "));
        }
        self.classes = Arc::new(usable);
    }

    /// One look at the host. It is not done on the thread that serves: a
    /// driver may keep a read of its attributes waiting.
    async fn look(&mut self) {
        let (classes, root) = (Arc::clone(&self.classes), self.source.host_root.clone());
        let looking = tokio::task::spawn_blocking(move || match RealHost::open(&root) {
            Ok(host) => scan(&classes, &host),
            Err(error) => Scan {
                warnings: vec![format!(
                    "the host's root {} can't be opened: {error}",
                    root.display()
                )],
                ..Scan::default()
            },
        });
        match looking.await {
            Ok(Scan {
                inventory,
                warnings,
            }) => {
                for warning in warnings
                    .iter()
                    .filter(|warning| !self.warnings.contains(warning))
                {
                    tracing::warn!("{warning}");
                }
                self.warnings = warnings;
                self.publish(inventory);
            }
            Err(error) => {
                tracing::error!("the look at the host failed, the last one stays: {error}")
            }
        }
    }

    fn publish(&self, inventory: Inventory) {
        self.inventory.send_if_modified(|known| {
            if *known == inventory {
                return false;
            }
            for (name, resource) in &inventory {
                if let Some(before) = known.get(name) {
                    for change in changes(before, resource) {
                        tracing::info!("{name}: {change}");
                    }
                }
            }
            *known = inventory;
            true
        });
    }
}
