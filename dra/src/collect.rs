//! Unprepares claims that the kubelet does not unprepare, because it lost its own record of
//! them, or because they were deleted by force while it did not run.

use std::time::{Duration, Instant};

use kube::Client;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::api_error;
use crate::claim::{ClaimUid, Claims, Record, granted};
use crate::claim_api::claims_with;
use crate::inventory::Inventory;

/// The time between two searches, and between two restorations without a reason.
const PERIOD: Duration = Duration::from_secs(600);

/// The time within which a CDI specification that was removed is written again.
const LOOK: Duration = Duration::from_secs(5);

/// Keeps the CDI specifications of prepared claims in place. After a restart of the node there
/// are none, because their directory is a tmpfs.
pub(crate) async fn restore(claims: Claims, inventory: watch::Receiver<Inventory>) {
    let mut reported = Vec::new();
    loop {
        let (own, known) = (claims.clone(), inventory.borrow().clone());
        let problems = match spawn_blocking(move || own.restore(&known)).await {
            Ok(Ok(problems)) => problems,
            Ok(Err(error)) => vec![format!("cannot read the prepared claims: {error}")],
            Err(error) => vec![format!("cannot read the prepared claims: {error}")],
        };
        if problems != reported {
            problems.iter().for_each(|line| tracing::warn!("{line}"));
            reported = problems;
        }
        // The specifications are also written when none is missing, because one may have been
        // changed.
        let until = Instant::now() + PERIOD;
        tokio::time::sleep(LOOK).await;
        while Instant::now() < until && claims.have_specifications() {
            tokio::time::sleep(LOOK).await;
        }
    }
}

/// Searches in a loop for claims that nobody uses, and unprepares them.
pub(crate) async fn run(client: Client, claims: Claims, inventory: watch::Receiver<Inventory>) {
    loop {
        let own = claims.clone();
        if let Ok(Ok((records, _))) = spawn_blocking(move || own.prepared()).await {
            for record in records {
                let known = inventory.borrow().clone();
                if let Err(error) = unused(&client, &claims, &record, &known).await {
                    tracing::warn!("claim {}: {error:#}", record.title());
                }
            }
        }
        tokio::time::sleep(PERIOD).await;
    }
}

/// Unprepares those of the given claims that nobody uses.
pub(crate) async fn these(
    client: &Client,
    claims: &Claims,
    uids: &[ClaimUid],
    inventory: &Inventory,
) -> Result<(), anyhow::Error> {
    let own = claims.clone();
    let (records, _) = spawn_blocking(move || own.prepared()).await??;
    for record in records.iter().filter(|record| uids.contains(&record.uid)) {
        unused(client, claims, record, inventory).await?;
    }
    Ok(())
}

/// Unprepares a claim that the API server does not have, or that is reserved for no pod.
async fn unused(
    client: &Client,
    claims: &Claims,
    record: &Record,
    inventory: &Inventory,
) -> Result<(), anyhow::Error> {
    // The record is read before the API server is asked: the answer may be older than a
    // preparation for a new pod.
    let Some(seen) = claims.see(&record.uid)? else {
        return Ok(());
    };
    let api = claims_with(client, &record.namespace, &record.name)?;
    let found = api.get_opt(&record.name).await;
    let found = found.map_err(|error| anyhow::Error::msg(api_error::text(error)))?;
    let why = match found {
        None => "there is no such claim".to_owned(),
        Some(claim) => match granted(&claim, &record.uid) {
            Err(error) if error.is_of_another() => error.to_string(),
            _ => return Ok(()),
        },
    };
    let (claims, uid, inventory) = (claims.clone(), record.uid.clone(), inventory.clone());
    let unprepare = move || claims.unprepare_seen(&uid, &seen, &inventory);
    let title = record.title();
    match spawn_blocking(unprepare).await?? {
        true => tracing::info!("claim {title} was prepared, but {why}: removed what was prepared"),
        false => tracing::info!("claim {title} was prepared anew meanwhile, and stays"),
    }
    Ok(())
}
