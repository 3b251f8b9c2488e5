//! The record of a prepared claim, with the parameters that only this driver reads.

use injection_plan::claim_record::ClaimRecord;

use super::parameters::Parameters;

pub use injection_plan::claim_record::{ClaimUid, PendingDevice};

pub type Record = ClaimRecord<Parameters>;

pub type PreparedDevice = injection_plan::claim_record::PreparedDevice<Parameters>;
