//! Unprepares claims that the kubelet will never unprepare, because it lost its own record of
//! them, or because they were deleted by force while it did not run.

use std::time::{Duration, Instant};

use anyhow::Context;
use injection_plan::cdi::directory::is_removed_mount;
use kube::Client;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::api_error;
use crate::claim::{ClaimUid, NodeClaims, Record, allocated_requests};
use crate::claim_api::claims_api;
use crate::claim_users::{ClaimUse, ClaimUsers};
use crate::inventory::Inventory;

/// The interval at which unused claims are searched for, and at which all CDI specifications are
/// written again.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(600);

/// The interval at which missing CDI specifications are noticed.
const POLL_INTERVAL: Duration = Duration::from_secs(5);

/// Keeps the CDI specifications of prepared claims in place. There are none after the node has
/// restarted, because their directory is a tmpfs. Returns if the directory was removed on the host
/// while it is mounted in this container.
pub(crate) async fn restore_specifications(
    claims: NodeClaims,
    inventory: watch::Receiver<Inventory>,
) {
    let mut reported = Vec::new();
    loop {
        let (claims_to_restore, current_inventory) = (claims.clone(), inventory.borrow().clone());
        let problems = match spawn_blocking(move || {
            claims_to_restore.restore_specifications(&current_inventory)
        })
        .await
        {
            Ok(Ok(problems)) => problems,
            Ok(Err(error)) => vec![format!("cannot read the prepared claims: {error}")],
            Err(error) => vec![format!("cannot read the prepared claims: {error}")],
        };
        if problems != reported {
            problems.iter().for_each(|line| tracing::warn!("{line}"));
            reported = problems;
        }
        if is_removed_mount(&claims.cdi) {
            tracing::error!(
                "{} was removed on the host, and is still mounted here: ending, so that this \
                 container is started again with the directory that is there then",
                claims.cdi.display()
            );
            return;
        }
        // All specifications are written again even if none is missing, because one may have been
        // changed.
        let next_restoration = Instant::now() + CLEANUP_INTERVAL;
        tokio::time::sleep(POLL_INTERVAL).await;
        while Instant::now() < next_restoration
            && claims.have_specifications()
            && !is_removed_mount(&claims.cdi)
        {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }
}

/// Searches periodically for claims that no pod uses, and unprepares them.
pub(crate) async fn run(
    client: Client,
    claims: NodeClaims,
    users: ClaimUsers,
    inventory: watch::Receiver<Inventory>,
) {
    let mut reported = Vec::new();
    loop {
        let mut problems = Vec::new();
        let claims_to_read = claims.clone();
        if let Ok(Ok((records, _))) = spawn_blocking(move || claims_to_read.read_records()).await {
            for record in records {
                let current_inventory = inventory.borrow().clone();
                if let Err(error) =
                    unprepare_if_unused(&client, &claims, &users, &record, &current_inventory).await
                {
                    problems.push(format!("claim {}: {error:#}", record.title()));
                }
            }
        }
        if problems != reported {
            problems.iter().for_each(|line| tracing::warn!("{line}"));
            reported = problems;
        }
        tokio::time::sleep(CLEANUP_INTERVAL).await;
    }
}

/// Unprepares the given claims as far as no pod uses them.
pub(crate) async fn unprepare_unused(
    client: &Client,
    claims: &NodeClaims,
    users: &ClaimUsers,
    uids: &[ClaimUid],
    inventory: &Inventory,
) -> Result<(), anyhow::Error> {
    let claims_to_read = claims.clone();
    let (records, _) = spawn_blocking(move || claims_to_read.read_records()).await??;
    for record in records.iter().filter(|record| uids.contains(&record.uid)) {
        let result = unprepare_if_unused(client, claims, users, record, inventory).await;
        // The caller's message names the claim that is being prepared, so this error names the
        // other one.
        result.with_context(|| format!("the device of claim {}", record.title()))?;
    }
    Ok(())
}

/// Unprepares a claim that the API server does not have, or that is reserved for no pod, if no pod
/// of this node uses it.
async fn unprepare_if_unused(
    client: &Client,
    claims: &NodeClaims,
    users: &ClaimUsers,
    record: &Record,
    inventory: &Inventory,
) -> Result<(), anyhow::Error> {
    // The record is opened before the API server is asked, because the claim may be prepared for a
    // new pod after the answer.
    let Some(record_file) = claims.open_record(&record.uid)? else {
        return Ok(());
    };
    let api = claims_api(client, &record.namespace, &record.name)?;
    let answer = api.get_opt(&record.name).await;
    let answer = answer.map_err(|error| anyhow::Error::msg(api_error::describe(error)))?;
    let reason = match answer {
        None => "there is no such claim".to_owned(),
        Some(claim) => match allocated_requests(&claim, &record.uid) {
            Err(error) if error.is_claim_unused() => error.to_string(),
            _ => {
                // The claim may have been reserved for further pods since it was prepared.
                let running = users.find_running_pods().await;
                let (claims, uid) = (claims.clone(), record.uid.clone());
                let update = move || claims.update_pods(&uid, &claim, running.as_ref());
                return Ok(spawn_blocking(update).await??);
            }
        },
    };
    match users.find_use(record).await {
        ClaimUse::Unused => {}
        ClaimUse::InUse => anyhow::bail!(
            "{reason}, but a pod of this node still uses it, so its devices stay with that pod: end \
             the pod"
        ),
        ClaimUse::Unknown(error) => anyhow::bail!(
            "{reason}, but whether a pod of this node still uses it cannot be found out, so its \
             devices stay prepared: {error}"
        ),
    }
    let (claims, uid, inventory) = (claims.clone(), record.uid.clone(), inventory.clone());
    let unprepare = move || claims.unprepare_unchanged(&uid, &record_file, &inventory);
    let title = record.title();
    if spawn_blocking(unprepare).await?? {
        tracing::info!("claim {title} was prepared, but {reason}: removed what was prepared")
    } else {
        tracing::info!("claim {title} was prepared anew meanwhile, and stays")
    }
    Ok(())
}
