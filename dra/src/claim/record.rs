//! Defines the type of claim records. A record contains this driver's parameters, which other
//! programs do not read.

use injection_plan::claim_record::ClaimRecord;

use super::parameters::Parameters;

pub use injection_plan::claim_record::{ClaimUid, PendingDevice};

pub type Record = ClaimRecord<Parameters>;

pub type PreparedDevice = injection_plan::claim_record::PreparedDevice<Parameters>;
