//! Unprepares claims that the kubelet will never unprepare, because it has lost its checkpoint, or
//! because the claims were deleted by force while the kubelet did not run. Also restores missing
//! CDI specifications of claims.

use std::time::{Duration, Instant};

use anyhow::Context;
use injection_plan::cdi::directory::is_removed_mount;
use kube::Client;
use tokio::sync::watch;
use tokio::task::spawn_blocking;

use crate::api_error;
use crate::claim::{ClaimPreparer, ClaimUid, Record, list_allocated_devices};
use crate::claim_api::build_claims_api;
use crate::claim_users::{ClaimUse, ClaimUsers};
use crate::inventory::Inventory;

/// The interval of two tasks. One searches for prepared claims that no pod uses, and the other
/// writes the CDI specifications of all claims again.
const CLEANUP_INTERVAL: Duration = Duration::from_secs(600);

/// The interval at which the driver checks that every prepared claim has its CDI specification
/// file.
const SPECIFICATION_CHECK_INTERVAL: Duration = Duration::from_secs(5);

/// Writes missing CDI specifications of prepared claims again, until the task is cancelled. After a
/// restart of the node all are missing, because their directory is a tmpfs. Returns if the
/// directory was removed on the host while it is mounted in this container.
pub(crate) async fn restore_specifications(
    claims: ClaimPreparer,
    inventory: watch::Receiver<Inventory>,
) {
    let mut reported_problems = Vec::new();
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
        if problems != reported_problems {
            problems.iter().for_each(|line| tracing::warn!("{line}"));
            reported_problems = problems;
        }
        if is_removed_mount(&claims.cdi_directory) {
            tracing::error!(
                "{} was removed on the host, and is still mounted here: ending, so that this \
                 container is started again with the directory that is there then",
                claims.cdi_directory.display()
            );
            return;
        }
        // At the end of this interval all specifications are written again even if none is missing,
        // because another program may have changed one.
        let next_restoration = Instant::now() + CLEANUP_INTERVAL;
        tokio::time::sleep(SPECIFICATION_CHECK_INTERVAL).await;
        while Instant::now() < next_restoration
            && claims.have_all_specifications()
            && !is_removed_mount(&claims.cdi_directory)
        {
            tokio::time::sleep(SPECIFICATION_CHECK_INTERVAL).await;
        }
    }
}

/// Unprepares claims that no pod uses. Searches for such claims periodically, until the task is
/// cancelled.
pub(crate) async fn run(
    client: Client,
    claims: ClaimPreparer,
    claim_users: ClaimUsers,
    inventory: watch::Receiver<Inventory>,
) {
    let mut reported_problems = Vec::new();
    loop {
        let mut problems = Vec::new();
        let claims_to_read = claims.clone();
        if let Ok(Ok((records, _))) = spawn_blocking(move || claims_to_read.read_records()).await {
            for record in records {
                let current_inventory = inventory.borrow().clone();
                if let Err(error) = unprepare_claim_if_unused(
                    &client,
                    &claims,
                    &claim_users,
                    &record,
                    &current_inventory,
                )
                .await
                {
                    problems.push(format!("claim {}: {error:#}", record.qualified_name()));
                }
            }
        }
        if problems != reported_problems {
            problems.iter().for_each(|line| tracing::warn!("{line}"));
            reported_problems = problems;
        }
        tokio::time::sleep(CLEANUP_INTERVAL).await;
    }
}

/// Unprepares each of the claims `uids` that no pod uses. Stops with an error at the first claim
/// that is in use or cannot be checked.
pub(crate) async fn unprepare_unused_claims(
    client: &Client,
    claims: &ClaimPreparer,
    claim_users: &ClaimUsers,
    uids: &[ClaimUid],
    inventory: &Inventory,
) -> Result<(), anyhow::Error> {
    let claims_to_read = claims.clone();
    let (records, _) = spawn_blocking(move || claims_to_read.read_records()).await??;
    for record in records.iter().filter(|record| uids.contains(&record.uid)) {
        let result =
            unprepare_claim_if_unused(client, claims, claim_users, record, inventory).await;
        // The context names the claim that still has the device. The caller adds the name of the
        // claim that it prepares, so that the error contains both.
        result.with_context(|| format!("the device of claim {}", record.qualified_name()))?;
    }
    Ok(())
}

/// Unprepares the claim of a record if two conditions hold: no pod of this node uses the claim, and
/// the API server has no such claim or the claim is not reserved for a pod. Otherwise updates the
/// pods in the record.
async fn unprepare_claim_if_unused(
    client: &Client,
    claims: &ClaimPreparer,
    claim_users: &ClaimUsers,
    record: &Record,
    inventory: &Inventory,
) -> Result<(), anyhow::Error> {
    // The record is opened before the API server is asked, because the claim may be prepared for a
    // new pod after the answer. The record is then another file than this open one.
    let Some(record_file) = claims.open_record(&record.uid)? else {
        return Ok(());
    };
    let api = build_claims_api(client, &record.namespace, &record.name)?;
    let answer = api.get_opt(&record.name).await;
    let current_claim =
        answer.map_err(|error| anyhow::Error::msg(api_error::describe_error(error)))?;
    let reason = match current_claim {
        None => "there is no such claim".to_owned(),
        Some(claim) => match list_allocated_devices(&claim, &record.uid) {
            Err(error) if error.is_claim_unused() => error.to_string(),
            _ => {
                // The claim stays prepared. Its record is updated, because the claim may be
                // reserved for more pods than when the record was written.
                let running_pods = claim_users.find_running_pods().await;
                let (claims, uid) = (claims.clone(), record.uid.clone());
                let update_record = move || claims.update_pods(&uid, &claim, running_pods.as_ref());
                return Ok(spawn_blocking(update_record).await??);
            }
        },
    };
    match claim_users.determine_claim_use(record).await {
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
    let unprepare = move || claims.unprepare_if_record_unchanged(&uid, &record_file, &inventory);
    let title = record.qualified_name();
    if spawn_blocking(unprepare).await?? {
        tracing::info!("claim {title} was prepared, but {reason}: removed what was prepared")
    } else {
        tracing::info!("claim {title} was prepared anew meanwhile, and stays")
    }
    Ok(())
}
